package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// reconcile changes the results of the wanted recording by the differences that the rules
// allow, and returns the used rules.
func (r Rules) reconcile(p *Played, want *Recording) []string {
	want.Results = plain(want.Results).([]any)
	want.Requests = plain(want.Requests).([]any)
	x := &ruleApplier{rules: r, played: p, want: want, used: slices.Clone(p.Rules), unmade: map[string]string{}}
	steps := p.scenario.Steps
	for i := range min(len(want.Results), len(p.Results), len(steps)) {
		w, _ := want.Results[i].(object)
		g, _ := p.Results[i].(object)
		x.step = &steps[i]
		x.sentAgain(w, g, i)
		x.result(w, g)
		x.refused(w, g, i)
	}
	x.restoreCredentials()
	if slices.ContainsFunc(x.used, func(name string) bool { return !r.has(name) }) {
		return nil
	}
	return x.used
}

// ruleApplier applies the rules to a copy of the recording. Afterwards, the copy must match.
type ruleApplier struct {
	rules  Rules
	played *Played
	want   *Recording
	used   []string
	step   *Step
	// unmade maps messages to the rules of refusals. If this SDK refuses the call that
	// makes an object, later steps on the object fail with such a message.
	unmade map[string]string
}

func (x *ruleApplier) use(rule string) {
	if !slices.Contains(x.used, rule) {
		x.used = append(x.used, rule)
	}
}

// nothingSaved is the beginning of the error for a step on an object that no step has saved.
const nothingSaved = "nothing saved as "

func errorOf(result any) object {
	r, _ := result.(object)
	failed, _ := r["error"].(object)
	return failed
}

func messageOf(result any) string {
	message, _ := errorOf(result)["message"].(string)
	return message
}

// result applies the rules about the result of a step.
func (x *ruleApplier) result(w, g object) {
	if x.step.Op == "fs.readdir" && slices.Contains(x.played.Rules, "directory-in-one-listing") {
		sortByName(w["value"]) // this SDK sorts its listing
	}
	x.allow(x.step.Op, w, g)
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

// allow compares the objects in a recorded result with those of this SDK, from the inside out.
// It copies members from g to w that may differ by a rule.
func (x *ruleApplier) allow(op string, w, g any) {
	switch w := w.(type) {
	case []any:
		list, _ := g.([]any)
		for i := range min(len(w), len(list)) {
			x.allow(op, w[i], list[i])
		}
	case object:
		got, ok := g.(object)
		if !ok {
			return
		}
		if own, ok := w["op"].(string); ok { // w is the result of a step inside another step
			op = own
		}
		for k := range w {
			x.allow(op, w[k], got[k])
		}
		x.allowMembers(op, w, got)
	}
}

func (x *ruleApplier) allowMembers(op string, w, g object) {
	wanted, got := errorOf(w), errorOf(g)
	status, _ := wanted["status"].(float64)
	take := func(rule string, members ...string) {
		x.use(rule)
		for _, k := range members {
			if v, ok := g[k]; ok {
				w[k] = v
			} else {
				delete(w, k)
			}
		}
	}
	switch {
	case wanted != nil && got == nil && status >= 200 && status < 300 && wanted["kind"] == "APIError" &&
		(strings.HasPrefix(messageOf(w), "Response JSON is not valid") || strings.HasPrefix(messageOf(w), "Can't parse JSON")):
		take("lenient-answers", "value", "error", "partial")
	case op == "delete" && status == 404 && got == nil && slices.Contains(x.played.Rules, "delete-settled"):
		take("delete-settled", "value", "error")
	case got != nil && g["#broken"] == true && slices.Contains(x.played.Rules, "stream-repaired") &&
		(wanted["kind"] == "NetworkError" || wanted["code"] == "stream_ended_early" || wanted["code"] == "sandbox_stream_closed"):
		take("stream-repaired", "error")
	case w["kind"] == "APIError" && g["kind"] == "APIError" && w["sandboxName"] == "drives" && g["sandboxName"] == nil:
		take("drives-are-no-sandbox", "sandboxName")
	case op == "localFile" && w["json"] != nil:
		if w["mode"] != "0600" && g["mode"] == "0600" {
			take("login-files-private", "mode")
		}
		var a localArgs
		var laid object
		now, _ := g["json"].(object)
		if differs("", w["json"], g["json"]) != "" && json.Unmarshal(x.step.Args, &a) == nil &&
			json.Unmarshal(x.played.scenario.Files[a.Path], &laid) == nil && slices.Equal(sortedKeys(laid), sortedKeys(now)) {
			take("login-kept", "json")
		}
	}
}

// sentAgain checks calls that the driver repeats. This SDK must not send more requests than the
// number of calls that the driver has made.
func (x *ruleApplier) sentAgain(w, g object, i int) {
	calls, counted := g["#sent"].(float64)
	to, ok := requestCount(g)
	if !counted || !ok || !slices.Contains(x.played.Rules, "once-not-repeated") {
		return
	}
	got := x.played
	to = min(to, len(got.Requests))
	sent := map[string]float64{}
	for _, r := range got.Requests[min(countBefore(got.Results, i), to):to] {
		if asked := requestKey(r); r.(object)["method"] == "POST" {
			if sent[asked]++; sent[asked] > calls {
				w["sent again by itself"] = fmt.Sprint(sent[asked], " requests for ", calls, " calls")
			}
		}
	}
}

// refused accepts the error of a call that this SDK refuses without a request. It also accepts
// the errors of later calls on the object that the refused call would have created.
func (x *ruleApplier) refused(w, g object, i int) {
	rule := x.unmade[messageOf(g)]
	if g["#refused"] != nil {
		rule = refusal(w, x.step)
		x.unmade[nothingSaved+x.step.Save] = rule
	}
	made, _ := g["#made"].(float64)
	if to, ok := requestCount(w); rule != "" && ok && to > int(made) && int(made) == countBefore(x.want.Results, i) {
		x.use(rule)
		delete(w, "value")
		w["error"] = g["error"]
	}
}

// requestCount returns the number of requests after a step.
func requestCount(result any) (int, bool) {
	m, _ := result.(object)
	n, ok := m["seen"].(float64)
	return int(n), ok
}

// countBefore returns the number of requests before a step.
func countBefore(results []any, i int) int {
	for _, before := range slices.Backward(results[:i]) {
		if n, ok := requestCount(before); ok {
			return n
		}
	}
	return 0
}

// callerTokens returns the tokens of the caller that look like Vercel's, with their teams. The official
// SDK reads the team from such a token, and renews the token. This SDK sends both unchanged.
func (s *Scenario) callerTokens() object {
	teams := object{}
	all := []any{s.Credentials}
	for _, step := range s.Steps {
		all = append(all, step.Credentials, step.Args)
	}
	for _, v := range plain(all).([]any) {
		creds, _ := v.(object)
		token, _ := creds["token"].(string)
		if parts := strings.Split(token, "."); len(parts) == 3 {
			raw, err := base64.RawURLEncoding.DecodeString(parts[1])
			claims, _ := decodeJSON(raw)
			if of, _ := claims.(object); err == nil && of["owner_id"] != nil {
				teams[token] = creds["teamId"]
			}
		}
	}
	return teams
}

// restoreCredentials restores the caller's credentials that the official SDK has replaced
// in its requests.
func (x *ruleApplier) restoreCredentials() {
	given := object{}
	for token, team := range x.played.scenario.callerTokens() {
		given[Unsubstitute("Bearer "+token, x.played.vars).(string)] = team
	}
	for i := range min(len(x.want.Requests), len(x.played.Requests)) {
		w, _ := x.want.Requests[i].(object)
		g, _ := x.played.Requests[i].(object)
		headers, _ := w["headers"].(object)
		auth, _ := g["headers"].(object)["authorization"].(string)
		team, ours := given[auth]
		if !ours || g["method"] != w["method"] || g["path"] != w["path"] ||
			differs("", headers, g["headers"]) == "" && differs("", w["query"], g["query"]) == "" {
			continue
		}
		x.use("explicit-credentials-kept")
		headers["authorization"] = auth
		for _, p := range w["query"].([]any) {
			if pair, _ := p.([]any); len(pair) == 2 && pair[0] == "teamId" {
				pair[1] = team
			}
		}
	}
}
