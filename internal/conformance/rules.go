package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// The known rules. A rule works only when departures.json lists it with its
// reason.
const (
	ruleLogsEnd     = "logs-end-confirmed"
	ruleRepair      = "stream-repaired"
	ruleWritten     = "written-output-not-kept"
	ruleEnglish     = "asked-again-in-english"
	ruleStopping    = "stopping-session-polled"
	ruleAgain       = "resumed-after-the-end"
	ruleShared      = "one-resume-for-all"
	ruleRace        = "create-race-adopted"
	ruleWait        = "wait-goes-on"
	ruleStarting    = "starting-session-awaited"
	ruleDownload    = "download-tried-again"
	ruleLength      = "download-length-asked"
	ruleFirstError  = "error-before-the-command"
	ruleCloses      = "stream-closed-on-break"
	ruleClose       = "close-tolerates-stopped"
	ruleOutputOrder = "output-in-order"
	ruleOnce        = "once-not-repeated"
	ruleLast        = "last-failure-reported"
	ruleAbort       = "abort-at-once"
	ruleLenient     = "lenient-answers"
	ruleMedia       = "media-type-with-parameters"
	ruleUnknown     = "unknown-records-skipped"
	ruleUTF8        = "characters-across-chunks"
	ruleHandleEnd   = "handle-knows-its-end"
	ruleDomain      = "address-of-the-route"
	ruleSnapshoting = "snapshotting-tolerated"
	ruleNoSession   = "missing-session-is-no-missing-file"
	ruleNoPartial   = "no-partial-download"
	ruleModeZero    = "mode-zero-kept"
	rulePrivate     = "login-files-private"
	ruleLoginKept   = "login-kept"
	ruleExplicit    = "explicit-credentials-kept"
	ruleDeleted     = "deleted-handle"
	ruleRefused     = "impossible-arguments-refused"
	ruleRedacted    = "redacted-value-refused"
	ruleTarget      = "target-is-no-directory"
	ruleNames       = "link-names-checked"
	ruleDashes      = "dash-before-paths"
	ruleTruncate    = "truncate-makes-no-file"
	ruleChown       = "chown-leaves-alone"
	ruleRemove      = "removed-as-by-package-os"
	ruleStat        = "stat-with-fractions"
	ruleReaddir     = "directory-in-one-listing"
	ruleAppend      = "append-adds-only"
	ruleIDs         = "ids-escaped"
	ruleEnvOrder    = "environment-sorted"
	ruleMark        = "create-marked"
	ruleTakenAway   = "half-made-taken-away"
	ruleLocked      = "hooks-locked"
	ruleSpared      = "looked-at-before-replaced"
	ruleAsked       = "end-asked-for"
	ruleStarts      = "get-starts"
	ruleAgent       = "agent-is-a-name"
	ruleRegion      = "region-not-guessed"
	ruleRegions     = "regions-always-told"
	ruleDriveErrors = "drives-are-no-sandbox"
	ruleForkMounts  = "fork-mounts"
	ruleForkKeeps   = "fork-persistence-copied"
	ruleSorted      = "prefix-sorts-by-name"
	rulePolicyParts = "unknown-policy-parts-told"
	ruleZero        = "usage-of-zero"
	ruleSteps       = "steps-in-one-command"
	ruleFollowed    = "started-with-its-output"
	ruleKnownEnd    = "known-end-not-asked-for"
	ruleDeletes     = "delete-settled"
	ruleKills       = "signal-settled"
	ruleRenewed     = "metadata-renewed"
	ruleProject     = "project-of-the-drive"
	ruleEmpty       = "empty-is-none"
	ruleLookUps     = "look-ups-do-not-start"
	ruleTooLate     = "time-out-retried"
	ruleSecond      = "extended-by-a-second"
	ruleIdentity    = "identity-checked-first"
)

var knownRules = []string{
	ruleLogsEnd, ruleRepair, ruleWritten, ruleEnglish, ruleStopping, ruleAgain, ruleShared, ruleRace, ruleWait, ruleStarting, ruleDownload, ruleLength, ruleFirstError, ruleCloses, ruleClose, ruleOutputOrder, ruleOnce,
	ruleLast, ruleAbort, ruleLenient, ruleMedia, ruleUnknown, ruleUTF8, ruleHandleEnd, ruleDomain, ruleSnapshoting,
	ruleNoSession, ruleNoPartial, ruleModeZero, rulePrivate, ruleLoginKept, ruleExplicit, ruleDeleted, ruleRefused,
	ruleRedacted, ruleTarget, ruleNames, ruleDashes, ruleTruncate, ruleChown, ruleRemove, ruleStat, ruleReaddir, ruleAppend, ruleIDs, ruleEnvOrder, ruleMark, ruleTakenAway, ruleLocked,
	ruleSpared, ruleAsked,
	ruleStarts, ruleAgent, ruleRegion, ruleRegions, ruleDriveErrors, ruleForkMounts, ruleForkKeeps, ruleSorted, rulePolicyParts, ruleZero, ruleSteps, ruleFollowed, ruleKnownEnd,
	ruleDeletes, ruleKills, ruleRenewed, ruleProject, ruleEmpty, ruleLookUps, ruleTooLate, ruleSecond, ruleIdentity,
}

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
}

// Rules are the rules of a departures.json.
type Rules struct{ list []Rule }

// UnmarshalJSON reads the list.
func (r *Rules) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &r.list) }

func (r *Rules) check() error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, rule := range r.list {
		if !slices.Contains(knownRules, rule.Rule) {
			errs = append(errs, fmt.Errorf("departures.json: no such rule: %q", rule.Rule))
		}
		if rule.Reason == "" {
			errs = append(errs, fmt.Errorf("departures.json: rule %q has no reason", rule.Rule))
		}
	}
	return errors.Join(errs...)
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
