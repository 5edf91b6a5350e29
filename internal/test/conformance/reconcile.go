package conformance

import (
	"encoding/base64"
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
		x.gaveUp(w, g, i)
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

// gaveUp is about a call that this SDK does not make, or not to its end, and
// those on what it would have made: the result is this SDK's.
func (x *reconciler) gaveUp(w, g object, i int) {
	failed, _ := g["error"].(object)
	message, _ := failed["message"].(string)
	rule, whole := x.unmade[message], true
	if refused, ok := g["#refused"].(string); ok {
		rule = refusal(refused, w, x.step)
		x.unmade["nothing saved as "+x.step.Save] = rule
	} else if failed["code"] == "sandbox_stopped" && x.step.Op == "getCommand" {
		// The official SDK starts another session, which has no such command.
		rule, whole = "look-ups-do-not-start", false
	}
	made, _ := g["#made"].(float64)
	if to, ok := seenOf(w); ok && x.rules.has(rule) && to > int(made) && (!whole || int(made) == seenBefore(x.want.Results, i)) {
		x.used(rule)
		delete(w, "value")
		w["error"] = g["error"]
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

// requests applies the rules about requests.
func (x *reconciler) requests() {
	given := object{}
	for token, team := range x.played.scenario.given() {
		given[Unsubstitute("Bearer "+token, x.played.vars).(string)] = team
	}
	for i := range min(len(x.want.Requests), len(x.played.Requests)) {
		w, _ := x.want.Requests[i].(object)
		g, _ := x.played.Requests[i].(object)
		if g["method"] == w["method"] && g["path"] == w["path"] {
			x.asGiven(w, g, given)
			x.allow("request", w, g)
		}
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
// one of Vercel's own: the official SDK takes the team from the token and replaces
// it by a fresh one. This SDK sends them unchanged.
func (s *Scenario) given() object {
	teams := object{}
	all := []any{s.Credentials}
	for _, step := range s.Steps {
		all = append(all, step.Credentials, step.Args)
	}
	list, _ := plain(all).([]any)
	for _, v := range list {
		creds, _ := v.(object)
		token, _ := creds["token"].(string)
		parts := strings.Split(token, ".")
		raw, err := base64.RawURLEncoding.DecodeString(parts[min(1, len(parts)-1)])
		claims, _ := decodeJSON(raw)
		if len(parts) == 3 && err == nil && matches(object{"owner_id": "~."}, claims) {
			teams[token] = creds["teamId"]
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
