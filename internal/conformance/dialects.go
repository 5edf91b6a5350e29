package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// dialect translates a command of this SDK into what the official SDK runs for
// the same purpose. It returns the arguments that the official SDK would send,
// the most likely first, and a function that converts the scripted response;
// nil leaves the response unchanged.
type dialect struct {
	rule    string
	command string
	words   func(args []string) []wording
}

type wording struct {
	command  string
	args     []string
	response func(lines []json.RawMessage) []json.RawMessage
}

func same(command string, args []string) []wording { return []wording{{command: command, args: args}} }

const (
	jsStatFormat = "%s|%f|%u|%g|%X|%Y|%Z|%W|%h|%i|%d|%B|%b"
	goStatFormat = "%s|%f|%u|%g|%.9X|%.9Y|%.9Z|%.9W|%h|%i|%d|%B|%b"
)

var dialects = []dialect{
	{"target-is-no-directory", "mv", without("mv", "-T")},
	{"target-is-no-directory", "cp", without("cp", "-T")},
	{"target-is-no-directory", "ln", without("ln", "-T")},
	{"link-names-checked", "readlink", without("readlink", "-v")},
	{"link-names-checked", "realpath", without("realpath", "-e")},
	{"stat-with-fractions", "stat", func(args []string) []wording {
		i := slices.Index(args, goStatFormat)
		if i < 0 {
			return nil
		}
		args = slices.Clone(args)
		args[i] = jsStatFormat
		return same("stat", args)
	}},
	{"truncate-makes-no-file", "sh", func(args []string) []wording {
		if len(args) != 5 || !strings.Contains(args[1], "conv=nocreat") {
			return nil
		}
		return same("truncate", []string{"-s", args[4], args[3]})
	}},
	{"chown-leaves-alone", "chown", func(args []string) []wording {
		// -1 keeps the owner or the group, which the program expresses by an empty
		// name.
		if len(args) == 0 || !strings.HasPrefix(args[0], ":") && !strings.HasSuffix(args[0], ":") {
			return nil
		}
		owner, group, _ := strings.Cut(args[0], ":")
		args = slices.Clone(args)
		args[0] = cmp.Or(owner, "-1") + ":" + cmp.Or(group, "-1")
		return same("chown", args)
	}},
	{"directory-in-one-listing", "find", listing1},
	{"removed-as-by-package-os", "rm", func(args []string) []wording {
		switch {
		case len(args) > 1 && args[0] == "-d":
			rest := args[1:]
			return append(append(same("rm", rest), same("rmdir", rest)...), same("rm", append([]string{"-f"}, rest...))...)
		case len(args) > 2 && args[0] == "-r" && args[1] == "-f":
			return append(same("rm", args), same("rm", append([]string{"-r"}, args[2:]...))...)
		}
		return nil
	}},
}

// without drops an option that the official SDK does not use.
func without(command, option string) func([]string) []wording {
	return func(args []string) []wording {
		i := slices.Index(args, option)
		if i < 0 {
			return nil
		}
		return same(command, slices.Delete(slices.Clone(args), i, i+1))
	}
}

// listing1 is the listing of a directory, for which the official SDK runs ls or
// find, depending on whether types are wanted.
func listing1(args []string) []wording {
	if len(args) < 6 || !strings.HasSuffix(args[len(args)-1], `\0`) {
		return nil
	}
	dirs := []string{args[0], strings.TrimSuffix(args[0], "/")}
	dirs = append(dirs, strings.TrimPrefix(dirs[1], "./"))
	var out []wording
	for _, d := range slices.Backward(dirs) {
		out = append(out,
			wording{"ls", []string{"-1", d}, relist(func(line string) (kind, name string) { return "f", line })},
			wording{"find", []string{d, "-maxdepth", "1", "-mindepth", "1", "-printf", `%f|%y\n`}, relist(func(line string) (string, string) {
				i := strings.LastIndexByte(line, '|')
				if i < 0 || len(line) != i+2 {
					return "?", strings.TrimRight(line, "|")
				}
				return line[i+1:], line[:i]
			})})
	}
	return out
}

// relist converts the scripted listing, one entry per line, to the form that
// this SDK requests. Fields that the official SDK does not request are zero.
func relist(entry func(line string) (kind, name string)) func([]json.RawMessage) []json.RawMessage {
	return func(lines []json.RawMessage) []json.RawMessage {
		out := slices.Clone(lines)
		var rest strings.Builder
		last := -1
		for i, raw := range lines {
			var rec map[string]any
			if json.Unmarshal(raw, &rec) != nil || rec["stream"] != "stdout" {
				continue
			}
			data, _ := rec["data"].(string)
			rest.WriteString(data)
			rec["data"] = ""
			out[i], _ = marshal(rec)
			last = i
		}
		if last < 0 {
			return out
		}
		var b strings.Builder
		for line := range strings.Lines(rest.String()) {
			if line = strings.TrimSuffix(line, "\n"); line == "" {
				continue
			}
			kind, name := entry(line)
			b.WriteString(kind + " 644 0 0 0 0 0 0 1 0 0 0 " + name + "\x00")
		}
		out[last], _ = marshal(map[string]any{"stream": "stdout", "data": b.String()})
		return out
	}
}

// translated is a request as the official SDK would make it.
type translated struct {
	rules    []string
	entry    *Entry
	response func([]json.RawMessage) []json.RawMessage
}

// plainLook returns a GET of a sandbox that would resume it as one that would
// not, and other requests unchanged.
func (r *Rules) plainLook(e *Entry) *Entry {
	if !r.has("get-starts") || e.Method != "GET" {
		return e
	}
	return e.without("[resume true]")
}

// unsorted returns a listing by name prefix without the sort order that this
// SDK adds.
func (r *Rules) unsorted(e *Entry) *Entry {
	if !r.has("prefix-sorts-by-name") || e.Method != "GET" || !slices.ContainsFunc(e.Query, func(p any) bool { return strings.HasPrefix(fmt.Sprint(p), "[namePrefix ") }) {
		return e
	}
	return e.without("[sortBy name]")
}

// without returns the request without a pair of the query.
func (e *Entry) without(pair string) *Entry {
	i := slices.IndexFunc(e.Query, func(p any) bool { return fmt.Sprint(p) == pair })
	if i < 0 {
		return e
	}
	rest := new(*e)
	rest.Query = slices.Delete(slices.Clone(e.Query), i, i+1)
	return rest
}

// translate returns the requests that the official SDK may have made instead,
// the most likely first, or none if the request needs no translation.
func (r *Rules) translate(e *Entry) []translated {
	var rules []string
	said := e
	if plainly := r.plainLook(e); plainly != e {
		rules, said = append(rules, "get-starts"), plainly
	}
	if plainly := r.unsorted(said); plainly != said {
		rules, said = append(rules, "prefix-sorts-by-name"), plainly
	}
	var list []translated
	if r.has("ids-escaped") && strings.Contains(e.Path, "%2F") {
		for _, base := range []translated{{rules: rules, entry: said}, {entry: e}} {
			escaped := new(*base.entry)
			escaped.Path = strings.ReplaceAll(e.Path, "%2F", "/")
			list = append(list, translated{rules: append(slices.Clone(base.rules), "ids-escaped"), entry: escaped})
		}
	}
	if rules != nil {
		list = append(list, translated{rules: rules, entry: said})
	}
	if list != nil {
		return list
	}
	body, ok := e.jsonBody()
	if r == nil || !ok || e.Method != "POST" || !strings.HasSuffix(e.Path, "/cmd") {
		return nil
	}
	command, _ := body["command"].(string)
	given, ok := body["args"].([]any)
	if !ok {
		return nil
	}
	args := make([]string, len(given))
	for i, a := range given {
		if args[i], ok = a.(string); !ok {
			return nil
		}
	}
	words := same(command, args)
	for _, d := range dialects {
		if d.command != command || !r.has(d.rule) {
			continue
		}
		if w := d.words(args); w != nil {
			words, rules = w, append(rules, d.rule)
		}
	}
	if r.has("dash-before-paths") {
		for i := range words {
			if k := slices.Index(words[i].args, "--"); k >= 0 && command != "sudo" {
				words[i].args = slices.Delete(slices.Clone(words[i].args), k, k+1)
				if i == 0 {
					rules = append(rules, "dash-before-paths")
				}
			}
		}
	}
	if rules == nil {
		return nil
	}
	var out []translated
	for _, w := range words {
		copied := *e
		js := maps.Clone(body)
		js["command"] = w.command
		js["args"] = plain(w.args)
		copied.Body = map[string]any{"json": js}
		out = append(out, translated{rules, &copied, w.response})
	}
	return out
}
