package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// difference describes members of an object that a rule lets differ. Everything
// else is compared. Its patterns match what they are part of: "~text" is a
// regular expression, "!~text" one that must not match, "*" is anything but null,
// null is also absence, "…" ends the beginning of a text or of a list, "$name" is
// the member of this SDK's object, and anyOf lists alternatives.
type difference struct {
	Op   string // the operations of the step, or "request"; none means any
	Want any    // the object in the recording, and this SDK's
	Got  any
	In   string // where in both the members are
	Key  string // the members that may differ
	// Which members, and what they are in the recording, where they must be, and
	// with this SDK; $1 is what a regular expression of From has captured.
	From, To json.RawMessage
	Script   any    // the script, or an argument, must have an object like this
	Used     bool   // only if a request was set aside or translated by the rule
	After    string // an operation, on the same object, that came before
	Check    string // one of checks
}

// checks are what no pattern says, of a member in the recording and with this SDK.
var checks = map[string]func(x *reconciler, want, got any) bool{
	// A text is the same but for characters that the official SDK has lost.
	"mended": func(_ *reconciler, want, got any) bool { return mended(want, got) },
	// Another of the failures is reported, not the same in other words.
	"another failure": func(_ *reconciler, want, got any) bool {
		w, g := want.(object), got.(object)
		return w["kind"] != g["kind"] || w["status"] != g["status"] || differs("", w["json"], g["json"]) != ""
	},
	// A file is as the scenario laid it out.
	"as laid out": func(x *reconciler, _, got any) bool {
		var a localArgs
		var laid object
		now, ok := got.(object)
		return ok && json.Unmarshal(x.step.Args, &a) == nil && json.Unmarshal(x.played.scenario.Files[a.Path], &laid) == nil &&
			slices.Equal(sortedKeys(laid), sortedKeys(now))
	},
	// The environment in the arguments of env is sorted.
	"sorted": func(_ *reconciler, want, got any) bool {
		args, _ := want.([]any)
		list := slices.Clone(args)
		from := slices.Index(list, any("env")) + 1
		to := from
		for to < len(list) && strings.Contains(fmt.Sprint(list[to]), "=") {
			to++
		}
		slices.SortFunc(list[from:to], func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return from > 0 && differs("", list, got) == ""
	},
}

// allow visits the objects of the recording w, and of g next to it, and takes over
// from g what a rule lets differ.
func (x *reconciler) allow(op string, w, g any) {
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
		if own, ok := w["op"].(string); ok { // a step inside another
			op = own
		}
		for k := range w { // first, so that no rule about the whole hides what is inside
			x.allow(op, w[k], got[k])
		}
		for _, r := range x.rules {
			for _, d := range r.Differences {
				x.apply(r.Rule, &d, op, w, got)
			}
		}
	}
}

// concerns reports whether a difference may be one of two objects.
func (x *reconciler) concerns(rule string, d *difference, op string, w, g object) bool {
	return (d.Op == "" || whole(d.Op, op)) && (!d.Used || slices.Contains(x.played.Rules, rule)) && (d.After == "" || x.after(d.After)) &&
		(d.Want == nil || matches(expand(d.Want, g, "", nil), w)) && (d.Got == nil || matches(expand(d.Got, g, "", nil), g))
}

func (x *reconciler) apply(rule string, d *difference, op string, w, g object) {
	if !x.concerns(rule, d, op, w, g) {
		return
	}
	for in := range strings.SplitSeq(d.In, ".") {
		if in != "" {
			w, _ = w[in].(object)
			g, _ = g[in].(object)
		}
	}
	if w == nil || g == nil {
		return
	}
	keys := maps.Clone(w)
	maps.Copy(keys, g)
	for k := range keys {
		_, inWant := w[k]
		now, inGot := g[k]
		if strings.HasPrefix(k, "#") || !whole(d.Key, k) || inWant == inGot && differs("", w[k], now) == "" || !x.lets(d, k, w, g) {
			continue
		}
		x.used(rule)
		if w[k] = now; !inGot {
			delete(w, k)
		}
	}
}

// lets reports whether a difference lets a member differ as it does.
func (x *reconciler) lets(d *difference, k string, w, g object) bool {
	var captured []string
	was, inWant := w[k]
	if from, given := decodeJSON(d.From); given {
		if !inWant || !matches(from, was) {
			return false
		}
		if re, ok := from.(string); ok && strings.HasPrefix(re, "~") {
			captured = compiled(re[1:]).FindStringSubmatch(fmt.Sprint(was))
		}
	}
	to, given := decodeJSON(d.To)
	return (!given || matches(to, g[k])) && (d.Check == "" || checks[d.Check](x, was, g[k])) &&
		(d.Script == nil || x.scripted(expand(d.Script, g, k, captured)))
}

func whole(pattern, text string) bool { return compiled("^(?:" + pattern + ")$").MatchString(text) }

var expressions sync.Map

func compiled(expression string) *regexp.Regexp {
	re, ok := expressions.Load(expression)
	if !ok {
		re, _ = expressions.LoadOrStore(expression, regexp.MustCompile(expression))
	}
	return re.(*regexp.Regexp)
}

// after reports whether a step of an operation came before the present one, on
// the same object.
func (x *reconciler) after(op string) bool {
	return slices.ContainsFunc(x.before, func(b Step) bool {
		return b.Op == op && (x.step.On == nil || b.On != nil && *b.On == *x.step.On)
	})
}

// scripted reports whether the script, or an argument, has an object like the
// pattern.
func (x *reconciler) scripted(pattern any) bool {
	var find func(v any) bool
	find = func(v any) bool {
		switch v := v.(type) {
		case []any:
			return slices.ContainsFunc(v, find)
		case object:
			return matches(pattern, v) || slices.ContainsFunc(slices.Collect(maps.Values(v)), find)
		}
		return false
	}
	if x.script == nil {
		x.script = plain([]any{x.played.scenario.Server, x.played.scenario.Steps})
	}
	return find(x.script)
}

// expand replaces "$name" in a pattern by a member of this SDK's object, "$key"
// by the present one or its name, and "$1" by what was captured.
func expand(p any, g object, key string, captured []string) any {
	switch p := p.(type) {
	case []any:
		out := make([]any, len(p))
		for i := range p {
			out[i] = expand(p[i], g, key, captured)
		}
		return out
	case object:
		out := object{}
		for k, inner := range p {
			if k == "$key" {
				k = key
			}
			out[k] = expand(inner, g, key, captured)
		}
		return out
	case string:
		name, ok := strings.CutPrefix(p, "$")
		switch {
		case !ok:
			return p
		case name == "1" && len(captured) > 1:
			return exactly{captured[1]}
		case name == "key":
			name = key
		}
		var v any = g
		for part := range strings.SplitSeq(name, ".") {
			m, _ := v.(object)
			v = m[part]
		}
		return exactly{v}
	}
	return p
}

// exactly is a value that stands for itself in a pattern.
type exactly struct{ v any }

// matches reports whether a value matches a pattern; see [difference].
func matches(p, v any) bool {
	switch p := p.(type) {
	case exactly:
		return differs("", p.v, v) == ""
	case object:
		if list, ok := p["anyOf"].([]any); ok {
			return slices.ContainsFunc(list, func(p any) bool { return matches(p, v) })
		}
		m, ok := v.(object)
		for k, inner := range p {
			ok = ok && matches(inner, m[k])
		}
		return ok
	case []any:
		list, ok := v.([]any)
		if n := len(p) - 1; n >= 0 && p[n] == "…" {
			p, list = p[:n], list[:min(n, len(list))]
		}
		ok = ok && len(p) == len(list)
		for i := 0; ok && i < len(p); i++ {
			ok = matches(p[i], list[i])
		}
		return ok
	case string:
		text, isText := v.(string)
		if n, ok := v.(float64); ok {
			text, isText = fmt.Sprint(n), true
		}
		if re, ok := strings.CutPrefix(p, "~"); ok {
			return isText && compiled(re).MatchString(text)
		}
		if re, ok := strings.CutPrefix(p, "!~"); ok {
			return isText && !compiled(re).MatchString(text)
		}
		return p == "*" && v != nil || differs("", p, v) == ""
	default:
		return p == v
	}
}

var replacement = regexp.MustCompile("\uFFFD+")

// mended reports whether got is a text in which the official SDK lost
// characters; the rest must be equal.
func mended(want, got any) bool {
	w, ok1 := want.(string)
	g, ok2 := got.(string)
	if !ok1 || !ok2 || !strings.Contains(w, "\uFFFD") || strings.Contains(g, "\uFFFD") {
		return false
	}
	parts := replacement.Split(w, -1)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("(?s)^" + strings.Join(parts, "[^\x00-\x7F]{1,2}") + "$").MatchString(g)
}
