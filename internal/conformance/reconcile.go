package conformance

import (
	"encoding/json"
	"slices"
	"strings"
)

// reconcile applies the differences that the rules account for to the wanted
// recording, and returns the rules used.
func (r *Rules) reconcile(p *Played, want *Recording) []string {
	used := slices.Clone(p.Rules)
	add := func(name string) {
		if !slices.Contains(used, name) {
			used = append(used, name)
		}
	}
	want.Results = plain(want.Results).([]any)
	want.Requests = plain(want.Requests).([]any)
	x := &reconciler{rules: r, played: p, want: want, used: add}
	x.lists(want.Results, p.Recording.Results, p.Scenario.Steps, true)
	x.requests()
	for _, name := range used {
		if !r.has(name) {
			return nil
		}
	}
	return used
}

type reconciler struct {
	rules  *Rules
	played *Played
	want   *Recording
	used   func(string)
	// lenient are the names of what only this SDK made of a response.
	lenient []string
}

// lists visits the results of a list of steps.
func (x *reconciler) lists(want, got []any, steps []Step, top bool) {
	for i := range min(len(want), len(got), len(steps)) {
		w, ok1 := want[i].(map[string]any)
		g, ok2 := got[i].(map[string]any)
		if !ok1 || !ok2 {
			continue
		}
		x.nested(w, g, &steps[i])
		if top {
			x.sentAgain(w, g, i)
		}
		x.entry(w, g, steps[:i], &steps[i])
		if gotErr, _ := g["error"].(map[string]any); top && gotErr["code"] == "sandbox_stopped" && steps[i].Op == "getCommand" && x.rules.has(ruleLookUps) {
			x.notStarted(i)
		}
		if rule, ok := g["#refused"].(string); ok && top && x.rules.has(rule) && mayRefuse(rule, w, &steps[i]) {
			x.refused(rule, i)
		}
	}
}

// sentAgain is about calls that the driver repeats: this SDK may not have sent
// more requests than the driver has made calls.
func (x *reconciler) sentAgain(w, g map[string]any, i int) {
	calls, counted := g["#sent"].(float64)
	to, ok := seenOf(g)
	if !counted || !ok || !slices.Contains(x.played.Rules, ruleOnce) {
		return
	}
	from := 0
	for _, before := range slices.Backward(x.played.Recording.Results[:i]) {
		if n, ok := seenOf(before); ok {
			from = n
			break
		}
	}
	sent := x.played.Recording.Requests[min(from, to):min(to, len(x.played.Recording.Requests))]
	for _, r := range sent {
		n := 0.0
		for _, other := range sent {
			if m, _ := other.(map[string]any); m["method"] == "POST" && differs("", question(r), question(other)) == "" {
				n++
			}
		}
		if n > calls {
			w["sent again by itself"] = n - calls
		}
	}
}

// nested visits the branches of parallel and the steps of hooks.
func (x *reconciler) nested(w, g map[string]any, s *Step) {
	if s.Op == "parallel" {
		var a struct {
			Branches [][]Step `json:"branches"`
		}
		if json.Unmarshal(s.Args, &a) != nil {
			return
		}
		wv, _ := w["value"].([]any)
		gv, _ := g["value"].([]any)
		for i := range min(len(wv), len(gv), len(a.Branches)) {
			wl, _ := wv[i].([]any)
			gl, _ := gv[i].([]any)
			x.lists(wl, gl, a.Branches[i], false)
		}
	}
	wh, _ := w["hooks"].([]any)
	gh, _ := g["hooks"].([]any)
	for i := range min(len(wh), len(gh)) {
		we, _ := wh[i].(map[string]any)
		ge, _ := gh[i].(map[string]any)
		wl, _ := we["results"].([]any)
		gl, _ := ge["results"].([]any)
		steps := make([]Step, len(wl))
		for j := range steps {
			if m, ok := wl[j].(map[string]any); ok {
				steps[j].Op, _ = m["op"].(string)
			}
		}
		x.lists(wl, gl, steps, false)
	}
}

// entry applies the rules about one result.
func (x *reconciler) entry(w, g map[string]any, before []Step, s *Step) {
	wantErr, _ := w["error"].(map[string]any)
	gotErr, _ := g["error"].(map[string]any)
	kind, _ := wantErr["kind"].(string)
	message, _ := wantErr["message"].(string)
	_, gaveValue := g["value"]

	if x.rules.has(ruleLenient) && kind == "APIError" && gaveValue && unusable(wantErr, message) {
		x.used(ruleLenient)
		delete(w, "error")
		delete(w, "partial")
		w["value"] = g["value"]
		x.lenient = append(x.lenient, s.Save)
	}
	// What the official SDK could not make has nothing to say later.
	if name, ok := strings.CutPrefix(message, "nothing saved as "); ok && kind == "Error" && gaveValue && slices.Contains(x.lenient, name) {
		delete(w, "error")
		w["value"] = g["value"]
	}
	x.failure(w, g, s, wantErr, gotErr)
	x.success(w, g, before, s)
	if x.rules.has(ruleRepair) && gotErr != nil && g["#broken"] == true && slices.Contains(x.played.Rules, ruleRepair) {
		early := kind == "StreamError" && (wantErr["code"] == "stream_ended_early" || wantErr["code"] == "sandbox_stream_closed")
		if early || kind == "NetworkError" {
			w["error"] = g["error"]
		}
	}
	if s.Op == "localFile" {
		x.localFile(w, g, before, s)
	}
	if s.Op == "fs.readdir" && slices.Contains(x.played.Rules, ruleReaddir) {
		sortByName(w["value"])
		sortByName(g["value"])
	}
}

// unusable reports whether the official SDK rejected the response to an
// operation that had succeeded.
func unusable(e map[string]any, message string) bool {
	status, _ := e["status"].(float64)
	return status >= 200 && status < 300 &&
		(strings.HasPrefix(message, "Response JSON is not valid") || strings.HasPrefix(message, "Can't parse JSON"))
}

func sortByName(v any) {
	list, ok := v.([]any)
	if !ok {
		return
	}
	name := func(v any) string {
		if m, ok := v.(map[string]any); ok {
			v = m["name"]
		}
		s, _ := v.(string)
		return s
	}
	slices.SortStableFunc(list, func(a, b any) int { return strings.Compare(name(a), name(b)) })
}

// localFile applies the rules about files left on the local disk.
func (x *reconciler) localFile(w, g map[string]any, before []Step, s *Step) {
	wv, _ := w["value"].(map[string]any)
	gv, _ := g["value"].(map[string]any)
	var a struct {
		Path string `json:"path"`
		JSON bool   `json:"json"`
	}
	if json.Unmarshal(s.Args, &a) != nil || wv == nil || gv == nil {
		return
	}
	downloaded := slices.ContainsFunc(before, func(b Step) bool { return b.Op == "downloadFile" })
	if x.rules.has(ruleNoPartial) && gv["exists"] == false && wv["exists"] == nil && downloaded {
		x.used(ruleNoPartial)
		w["value"] = g["value"]
		return
	}
	if !a.JSON {
		return
	}
	if mode, ok := wv["mode"].(string); ok && x.rules.has(rulePrivate) && gv["mode"] == "0600" && mode != "0600" {
		x.used(rulePrivate)
		wv["mode"] = "0600"
	}
	if left, ok := wv["json"].(map[string]any); ok && len(left) == 0 && x.rules.has(ruleLoginKept) {
		var laid map[string]any
		if json.Unmarshal(x.played.Scenario.Files[a.Path], &laid) == nil && sameKeys(laid, gv["json"]) {
			x.used(ruleLoginKept)
			wv["json"] = gv["json"]
		}
	}
}

func sameKeys(laid map[string]any, got any) bool {
	m, ok := got.(map[string]any)
	if !ok || len(m) != len(laid) {
		return false
	}
	for k := range laid {
		if _, ok := m[k]; !ok {
			return false
		}
	}
	return true
}

// refused removes from the wanted recording the requests of a call that this
// SDK refuses without any request, and the exchanges that remained for it.
func (x *reconciler) refused(rule string, i int) {
	from := 0
	for j := i - 1; j >= 0; j-- {
		if n, ok := seenOf(x.want.Results[j]); ok {
			from = n
			break
		}
	}
	x.cut(rule, i, from)
}

// notStarted is about a look at a command whose session has ended, for which
// the official SDK starts another session that has no such command.
func (x *reconciler) notStarted(i int) {
	last, ok := seenOf(x.played.Recording.Results[i])
	if ok && last < len(x.want.Requests) && isResume(x.want.Requests[last]) {
		x.cut(ruleLookUps, i, last)
	}
}

// cut removes from the wanted recording the requests of a call from one on, and
// the exchanges that remained for them. The call's result is this SDK's.
func (x *reconciler) cut(rule string, i, from int) {
	to, ok := seenOf(x.want.Results[i])
	if !ok || to <= from || to > len(x.want.Requests) {
		return // the official SDK does not make any either
	}
	for _, r := range x.want.Requests[from:to] {
		x.release(r)
	}
	x.used(rule)
	x.want.Requests = slices.Delete(x.want.Requests, from, to)
	for j := i; j < len(x.want.Results); j++ {
		if n, ok := seenOf(x.want.Results[j]); ok {
			x.want.Results[j].(map[string]any)["seen"] = float64(n - (to - from))
		}
	}
	w := x.want.Results[i].(map[string]any)
	delete(w, "value")
	w["error"] = x.played.Recording.Results[i].(map[string]any)["error"]
}

func seenOf(result any) (int, bool) {
	m, _ := result.(map[string]any)
	n, ok := m["seen"].(float64)
	return int(n), ok
}
