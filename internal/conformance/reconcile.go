package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// reconcile applies the differences that the rules account for to the wanted
// recording, and returns the rules used.
func (r Rules) reconcile(p *Played, want *Recording) []string {
	used := slices.Clone(p.Rules)
	want.Results = plain(want.Results).([]any)
	want.Requests = plain(want.Requests).([]any)
	x := &reconciler{rules: r, played: p, want: want, unmade: map[string]string{}, used: func(name string) {
		if !slices.Contains(used, name) {
			used = append(used, name)
		}
	}}
	steps := p.scenario.Steps
	for i := range min(len(want.Results), len(p.Results), len(steps)) {
		w, _ := want.Results[i].(object)
		g, _ := p.Results[i].(object)
		x.sentAgain(w, g, i)
		x.result(w, g, steps[:i], &steps[i])
		gotErr, _ := g["error"].(object)
		if gotErr["code"] == "sandbox_stopped" && steps[i].Op == "getCommand" {
			// The official SDK starts another session, which has no such command.
			if last, _ := seenOf(g); last < len(want.Requests) && isLook(want.Requests[last]) {
				x.cut("look-ups-do-not-start", i, last)
			}
		}
		rule, refused := g["#refused"].(string)
		if message, _ := gotErr["message"].(string); refused {
			rule = refusal(rule, w, &steps[i])
			x.unmade["nothing saved as "+steps[i].Save] = rule
		} else {
			rule = x.unmade[message]
		}
		x.cut(rule, i, seenBefore(want.Results, i))
	}
	x.requests()
	if !slices.ContainsFunc(used, func(name string) bool { return !r.has(name) }) {
		return used
	}
	return nil
}

type reconciler struct {
	rules  Rules
	played *Played
	want   *Recording
	used   func(string)
	before []Step
	step   *Step
	script any
	// lenient are the names of what only this SDK made of a response.
	lenient []string
	// unmade are the rules of refusals, by what is said of what they did not make.
	unmade map[string]string
}

// result applies the rules about the result of a step.
func (x *reconciler) result(w, g object, before []Step, s *Step) {
	x.before, x.step = before, s
	if s.Op == "fs.readdir" && slices.Contains(x.played.Rules, "directory-in-one-listing") {
		sortByName(w["value"]) // as this SDK's is by itself
	}
	// What the official SDK could not make has nothing to say later.
	wantErr, _ := w["error"].(object)
	message, _ := wantErr["message"].(string)
	_, gaveValue := g["value"]
	if name, ok := strings.CutPrefix(message, "nothing saved as "); ok && gaveValue && slices.Contains(x.lenient, name) {
		delete(w, "error")
		w["value"] = g["value"]
	}
	x.allow(s.Op, w, g)
	if wantErr != nil && w["error"] == nil {
		x.lenient = append(x.lenient, s.Save)
	}
}

func sortByName(v any) {
	list, _ := v.([]any)
	name := func(v any) string {
		if m, ok := v.(object); ok {
			v = m["name"]
		}
		return fmt.Sprint(v)
	}
	slices.SortStableFunc(list, func(a, b any) int { return strings.Compare(name(a), name(b)) })
}

// sentAgain is about calls that the driver repeats: this SDK may not have sent
// more requests than the driver has made calls.
func (x *reconciler) sentAgain(w, g object, i int) {
	calls, counted := g["#sent"].(float64)
	to, ok := seenOf(g)
	if !counted || !ok || !slices.Contains(x.played.Rules, "once-not-repeated") {
		return
	}
	got := x.played
	to = min(to, len(got.Requests))
	sent := got.Requests[min(seenBefore(got.Results, i), to):to]
	for _, r := range sent {
		n := 0.0
		for _, other := range sent {
			if m, _ := other.(object); m["method"] == "POST" && question(r) == question(other) {
				n++
			}
		}
		if n > calls {
			w["sent again by itself"] = n - calls
		}
	}
}

// cut removes from the wanted recording the requests of a call from one on, which
// this SDK does not make, and the exchanges that remained for them. The call's
// result is this SDK's.
func (x *reconciler) cut(rule string, i, from int) {
	to, ok := seenOf(x.want.Results[i])
	if !ok || !x.rules.has(rule) || to <= from || to > len(x.want.Requests) {
		return // the official SDK does not make any either
	}
	w := x.want.Results[i].(object)
	x.used(rule)
	for range to - from {
		x.drop(from)
	}
	w["seen"] = float64(from)
	delete(w, "value")
	w["error"] = x.played.Results[i].(object)["error"]
}

// drop removes from the wanted recording a request that this SDK does not make,
// and its exchange from those that were not requested.
func (x *reconciler) drop(i int) {
	m, _ := x.want.Requests[i].(object)
	if k := slices.Index(x.played.Unused, fmt.Sprintf("%v %v", m["method"], m["path"])); k >= 0 {
		x.played.Unused = slices.Delete(x.played.Unused, k, k+1)
	}
	x.want.Requests = slices.Delete(x.want.Requests, i, i+1)
	for _, r := range x.want.Results {
		if n, ok := seenOf(r); ok && n > i {
			r.(object)["seen"] = float64(n - 1)
		}
	}
}

func seenOf(result any) (int, bool) {
	m, _ := result.(object)
	n, ok := m["seen"].(float64)
	return int(n), ok
}

// seenBefore is how many requests had been made when a step began.
func seenBefore(results []any, i int) int {
	for _, before := range slices.Backward(results[:i]) {
		if n, ok := seenOf(before); ok {
			return n
		}
	}
	return 0
}

// requests applies the rules about requests: first those about requests that only
// the official SDK makes.
func (x *reconciler) requests() {
	got := x.played.Requests
	given := x.given()
	if x.played.scenario.Order == "any" {
		x.shared()
	}
	for i := 0; i < len(x.want.Requests); i++ {
		w, _ := x.want.Requests[i].(object)
		var g object
		if i < len(got) {
			g, _ = got[i].(object)
		}
		switch same := g["method"] == w["method"] && g["path"] == w["path"]; {
		case same:
			x.asGiven(w, g, given)
			x.empty(w, g)
			x.allow("request", w, g)
		case len(given) > 0 && strings.HasPrefix(fmt.Sprint(w["path"]), "/__"):
			// It renews the token that the caller gave.
			x.used("explicit-credentials-kept")
			x.drop(i)
			i--
		case x.knownEnd(w, i):
			x.used("known-end-not-asked-for")
			x.drop(i)
			i--
		}
	}
}

// empty is about pairs of a query that say nothing.
func (x *reconciler) empty(w, g object) {
	query, _ := w["query"].([]any)
	also, _ := g["query"].([]any)
	w["query"] = slices.DeleteFunc(query, func(p any) bool {
		nothing := matches([]any{"*", "~^0?$"}, p) && !slices.ContainsFunc(also, func(q any) bool { return differs("", p, q) == "" })
		if nothing {
			x.used("empty-is-none")
		}
		return nothing
	})
}

// knownEnd reports whether a request is for the end of a command whose log was
// read to the end: this SDK already knows it.
func (x *reconciler) knownEnd(w object, i int) bool {
	path, _ := w["path"].(string)
	return w["method"] == "GET" && strings.Contains(path, "/cmd/") && !strings.HasSuffix(path, "/logs") &&
		strings.Contains(fmt.Sprint(w["query"]), "[wait true]") &&
		slices.ContainsFunc(x.want.Requests[:i], func(r any) bool { return r.(object)["path"] == path+"/logs" })
}

// shared is about calls that find the sandbox stopped at the same time: the
// official SDK makes some requests once for each call, this SDK once for all.
func (x *reconciler) shared() {
	got := slices.Clone(x.played.Requests)
	var kept, extra []any
	for _, w := range x.want.Requests {
		same := func(g any) bool { return differs("", tolerant(w), tolerant(g)) == "" }
		if i := slices.IndexFunc(got, same); i >= 0 {
			got = slices.Delete(got, i, i+1)
			kept = append(kept, w)
		} else if extra = append(extra, w); !isLook(w) || !slices.ContainsFunc(kept, same) {
			return
		}
	}
	if len(extra) == 0 || len(got) > 0 {
		return
	}
	x.used("one-resume-for-all")
	x.want.Requests = slices.Concat(kept, extra)
	for range extra {
		x.drop(len(kept))
	}
}

// isLook reports whether a request looks at a session or sandbox, or starts one.
func isLook(r any) bool {
	m, _ := r.(object)
	path, _ := m["path"].(string)
	rest, ok := strings.CutPrefix(path, "/api/v2/sandboxes/")
	return ok && m["method"] == "GET" && !strings.Contains(strings.TrimPrefix(rest, "sessions/"), "/")
}

// given returns the teams of the tokens that the caller passes and that look like
// one of Vercel's own, by the header: the official SDK takes the team from the
// token and replaces it by a fresh one. This SDK sends them unchanged.
func (x *reconciler) given() object {
	teams := object{}
	all := []any{x.played.scenario.Credentials}
	for _, s := range x.played.scenario.Steps {
		all = append(all, s.Credentials, s.Args)
	}
	list, _ := plain(all).([]any)
	for _, v := range list {
		creds, _ := v.(object)
		token, _ := creds["token"].(string)
		parts := strings.Split(token, ".")
		raw, err := base64.RawURLEncoding.DecodeString(parts[min(1, len(parts)-1)])
		var claims struct {
			Owner string `json:"owner_id"`
		}
		if len(parts) == 3 && err == nil && json.Unmarshal(raw, &claims) == nil && claims.Owner != "" {
			teams[Unsubstitute("Bearer "+token, x.played.vars).(string)] = creds["teamId"]
		}
	}
	return teams
}

// asGiven puts the given credentials in place of those that the official SDK made
// of them.
func (x *reconciler) asGiven(w, g, given object) {
	headers, _ := w["headers"].(object)
	auth, _ := g["headers"].(object)["authorization"].(string)
	team, ours := given[auth]
	if headers == nil || !ours || differs("", headers, g["headers"]) == "" && differs("", w["query"], g["query"]) == "" {
		return
	}
	x.used("explicit-credentials-kept")
	headers["authorization"] = auth
	query, _ := w["query"].([]any)
	for _, p := range query {
		if pair, _ := p.([]any); len(pair) == 2 && pair[0] == "teamId" {
			pair[1] = team
		}
	}
}
