package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Rule is a departure that is the same in every scenario. It accounts for
// exactly one kind of difference and leaves all others to be found.
type Rule struct {
	Rule string `json:"rule"`
	// Reason is why this SDK departs, in a sentence or two.
	Reason string `json:"reason"`
	// Unscripted are the requests that this SDK makes and the official one does
	// not: "METHOD /path" with * for one segment of the path, and ?key=value for a
	// pair of the query. They get status 418, do not count, and must not change
	// the result of the call.
	Unscripted []string `json:"unscripted"`
	// Env is the environment that unscripted commands have.
	Env map[string]string `json:"env"`
	// Ops are the operations that the unscripted requests belong to; none
	// means any.
	Ops []string `json:"ops"`
	// Answer is the response to such a request instead of 418:
	//
	//   - "replay": the output of the command as its run had it
	//   - "stopped": a session that was not starting, now stopped
	//   - "running": a session that was starting, now running
	//   - "ended": the log that was read, once more, and the command's end
	//   - "no snapshot": a sandbox without files
	//   - "known": the sandbox, drive or command as it was last seen
	//   - "again": the response to the same request before a session was looked at
	//   - "done": an empty success
	Answer string `json:"answer"`
	// Everywhere marks a departure with which most scenarios begin: a scenario
	// that departs by it alone counts as passed, or else the counts would mean
	// nothing.
	Everywhere bool `json:"everywhere"`
	// Words are the commands of this SDK that stand for others.
	Words []wording `json:"words"`
	// Differences are what the rule lets differ in results and requests.
	Differences []difference `json:"differences"`
}

// Rules are the rules of a departures.json.
type Rules struct{ list []Rule }

// UnmarshalJSON reads the list.
func (r *Rules) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &r.list) }

func (r *Rules) check() error {
	var errs []error
	for _, rule := range r.all() {
		if rule.Reason == "" {
			errs = append(errs, fmt.Errorf("departures.json: rule %q has no reason", rule.Rule))
		}
	}
	return errors.Join(errs...)
}

func (r *Rules) all() []Rule {
	if r == nil {
		return nil
	}
	return r.list
}

func (r *Rules) has(name string) bool {
	return r != nil && slices.ContainsFunc(r.list, func(x Rule) bool { return x.Rule == name })
}

// telling returns the rules without those that apply everywhere.
func (r *Rules) telling(used []string) []string {
	return slices.DeleteFunc(slices.Clone(used), func(name string) bool {
		return r != nil && slices.ContainsFunc(r.list, func(x Rule) bool { return x.Rule == name && x.Everywhere })
	})
}

// reasons explains why a scenario departs.
func (r *Rules) reasons(used []string) string {
	var out []string
	for _, rule := range r.list {
		if slices.Contains(used, rule.Rule) {
			out = append(out, rule.Rule+": "+rule.Reason)
		}
	}
	return strings.Join(out, " ")
}

// unscripted returns the rule that allows a request without an exchange, or
// nil. ops are the operations under way; can reports whether there is a
// response for a rule that needs one.
func (r *Rules) unscripted(e *Entry, ops []string, can func(*Rule) bool) *Rule {
	if r == nil {
		return nil
	}
	for i := range r.list {
		rule := &r.list[i]
		if len(rule.Ops) > 0 && !slices.ContainsFunc(ops, func(op string) bool { return slices.Contains(rule.Ops, op) }) {
			continue
		}
		for _, pattern := range rule.Unscripted {
			if rule.covers(pattern, e) && (rule.Answer == "" || can(rule)) {
				return rule
			}
		}
	}
	return nil
}

func (r *Rule) covers(pattern string, e *Entry) bool {
	method, target, _ := strings.Cut(pattern, " ")
	target, query, hasQuery := strings.Cut(target, "?")
	if method != e.Method {
		return false
	}
	if ok, err := path.Match(target, e.Path); err != nil || !ok {
		return false
	}
	waits := false
	matches := !hasQuery
	for _, pair := range e.Query {
		p := pair.([]any)
		waits = waits || p[0] == "wait"
		matches = matches || fmt.Sprintf("%v=%v", p[0], p[1]) == query
	}
	if !matches || waits && !hasQuery {
		return false
	}
	if r.Env == nil {
		return true
	}
	body, _ := e.jsonBody()
	env, _ := body["env"].(map[string]any)
	if len(env) != len(r.Env) {
		return false
	}
	for k, v := range r.Env {
		if env[k] != v {
			return false
		}
	}
	return true
}
