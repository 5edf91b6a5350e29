package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// wording says what the official SDK runs in place of a command of this SDK, as
// the list of its words in JSON: From is a regular expression, in which <s> is
// any string, and To are replacements, the most likely first. Step is a pattern
// that one of the running steps must match, and Script the program that sh must
// run. Without To, From only says which commands the rule is about.
type wording struct {
	Step   any
	From   string
	Script string
	To     []string
}

// of reports whether the wording is about a command, in one of these steps.
func (w *wording) of(command string, steps []any) bool {
	var words []string
	script := w.Script == "" || json.Unmarshal([]byte(command), &words) == nil && len(words) > 2 && words[2] == w.Script
	return script && w.regexp().MatchString(command) &&
		(w.Step == nil || slices.ContainsFunc(steps, func(s any) bool { return matches(w.Step, s) }))
}

func (w *wording) regexp() *regexp.Regexp {
	return compiled(strings.ReplaceAll(w.From, "<s>", `"(?:[^"\\]|\\.)*"`))
}

// concerns reports whether one of a rule's wordings is about a command.
func (r Rules) concerns(rule, command string, steps []any) bool {
	i := slices.IndexFunc(r, func(x Rule) bool { return x.Rule == rule })
	return i >= 0 && slices.ContainsFunc(r[i].Words, func(w wording) bool { return w.of(command, steps) })
}

// translated is a request as the official SDK would make it.
type translated struct {
	rules    []string
	entry    *Entry
	response func([]json.RawMessage) []json.RawMessage
}

// wordings returns the commands that may stand in place of one, with the rules
// that say so.
func (r Rules) wordings(command string, steps []any) (texts, rules []string) {
	texts = []string{command}
	for _, rule := range r {
		for _, w := range rule.Words {
			var now []string
			for i, text := range texts {
				if len(w.To) == 0 || !w.of(text, steps) {
					now = append(now, text)
					continue
				}
				for _, to := range w.To {
					now = append(now, w.regexp().ReplaceAllString(text, to))
				}
				if i == 0 && !slices.Contains(rules, rule.Rule) {
					rules = append(rules, rule.Rule)
				}
			}
			texts = now
		}
	}
	return texts, rules
}

// translate returns the requests that the official SDK may have made instead,
// the most likely first, or none if the request needs no translation.
func (r Rules) translate(e *Entry, steps []any) []translated {
	var list []translated
	rules, said := []string(nil), r.plainLook(e)
	if said != e {
		rules = append(rules, "get-starts")
	}
	if plainly := r.unsorted(said); plainly != said {
		rules, said = append(rules, "prefix-sorts-by-name"), plainly
	}
	if strings.Contains(e.Path, "%2F") {
		for _, base := range []translated{{rules: rules, entry: said}, {entry: e}} {
			escaped := new(*base.entry)
			escaped.Path = strings.ReplaceAll(e.Path, "%2F", "/")
			list = append(list, translated{rules: append(slices.Clone(base.rules), "ids-escaped"), entry: escaped})
		}
	}
	if rules != nil {
		list = append(list, translated{rules: rules, entry: said})
	}
	words := e.words()
	if list != nil || words == nil {
		return list
	}
	texts, rules := r.wordings(e.command(), steps)
	for _, text := range texts {
		if rules != nil && json.Unmarshal([]byte(text), &words) == nil {
			t := translated{rules: rules, entry: e.starting(words[0], words[1:])}
			if slices.Contains(rules, "directory-in-one-listing") {
				t.response = relist(words[0])
			}
			list = append(list, t)
		}
	}
	return list
}

// plainLook returns a GET of a sandbox that would resume it as one that would
// not, and other requests unchanged.
func (r Rules) plainLook(e *Entry) *Entry {
	if e.Method != "GET" {
		return e
	}
	return e.without("[resume true]")
}

// unsorted returns a listing by name prefix without the sort order that this
// SDK adds.
func (r Rules) unsorted(e *Entry) *Entry {
	if e.Method != "GET" || !strings.Contains(fmt.Sprint(e.Query), "[namePrefix ") {
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

// words returns the command that a request starts and its arguments, or nil.
func (e *Entry) words() []string {
	body, _ := e.jsonBody()
	command, _ := body["command"].(string)
	args, ok := body["args"].([]any)
	if !ok || e.Method != "POST" || !strings.HasSuffix(e.Path, "/cmd") {
		return nil
	}
	words := []string{command}
	for _, a := range args {
		word, ok := a.(string)
		if !ok {
			return nil
		}
		words = append(words, word)
	}
	return words
}

// command returns the words of a command in JSON, or "" for another request.
func (e *Entry) command() string {
	words := e.words()
	if words == nil {
		return ""
	}
	return string(must(marshal(words)))
}

// starting returns the start of a command with another in its place.
func (e *Entry) starting(command string, args []string) *Entry {
	other := new(*e)
	body, _ := e.jsonBody()
	sent := maps.Clone(body)
	sent["command"], sent["args"] = command, plain(append([]string{}, args...))
	other.Body = object{"json": sent}
	return other
}

// relist converts the scripted listing of ls or find, one entry per line, to the
// form that this SDK requests. Fields that the official SDK does not request are
// zero.
func relist(command string) func([]json.RawMessage) []json.RawMessage {
	return func(lines []json.RawMessage) []json.RawMessage {
		out := slices.Clone(lines)
		said, _ := streamsOf(lines)
		var b strings.Builder
		for line := range strings.Lines(said["stdout"]) {
			kind, name := "f", strings.TrimSuffix(line, "\n")
			if name == "" {
				continue
			}
			if i := strings.LastIndexByte(name, '|'); command == "find" && i >= 0 && len(name) == i+2 {
				kind, name = name[i+1:], name[:i]
			} else if command == "find" {
				kind, name = "?", strings.TrimRight(name, "|")
			}
			b.WriteString(kind + " 644 0 0 0 0 0 0 1 0 0 0 " + name + "\x00")
		}
		text := b.String()
		for i, raw := range slices.Backward(lines) {
			var rec object
			if json.Unmarshal(raw, &rec) == nil && rec["stream"] == "stdout" {
				out[i], _ = marshal(object{"stream": "stdout", "data": text})
				text = ""
			}
		}
		return out
	}
}

// streamsOf returns the output of a command and its exit code.
func streamsOf(lines []json.RawMessage) (said map[string]string, exitCode float64) {
	said = map[string]string{}
	for _, raw := range lines {
		var rec struct {
			Stream, Data string
			Command      struct{ ExitCode *float64 }
		}
		if json.Unmarshal(raw, &rec) != nil {
			continue
		}
		said[rec.Stream] += rec.Data
		if rec.Command.ExitCode != nil {
			exitCode = *rec.Command.ExitCode
		}
	}
	return said, exitCode
}

// ran is the response to a command that has run.
func ran(e *Entry, exitCode float64, output ...object) *Exchange {
	command := object{"id": "cmd_ruled", "name": "sh", "args": []any{}, "cwd": "/", "sessionId": path.Base(path.Dir(e.Path)), "startedAt": 1}
	for _, p := range e.Query {
		if pair := p.([]any); pair[0] == "cmdId" {
			command["id"] = pair[1]
		}
	}
	ended := maps.Clone(command)
	ended["exitCode"] = exitCode
	ex := &Exchange{}
	for _, record := range append(append([]object{{"command": command}}, output...), object{"command": ended}) {
		ex.NDJSON = append(ex.NDJSON, must(marshal(record)))
	}
	return ex
}

// append plays a command that appends to a file as the requests that the
// official SDK makes for it: it reads the whole file and writes it again. Both
// requests are logged, with the bodies that the official SDK would send.
func (s *Server) append(e *Entry) *Exchange {
	words := e.words()
	if !s.opts.Rules.concerns("append-adds-only", e.command(), s.running()) {
		return nil
	}
	file := path.Clean(words[4])
	more, err := base64.StdEncoding.DecodeString(words[7])
	if words[5] != path.Dir(file) || words[6] != strconv.Itoa(len(more)) {
		return nil
	}
	base := strings.TrimSuffix(e.Path, "/cmd")
	read, write := new(*e), new(*e)
	read.Path, read.Body = base+"/fs/read", object{"json": object{"path": words[4]}}
	write.Path = base + "/fs/write"
	write.Headers = map[string]string{"authorization": e.Headers["authorization"], "content-type": "application/gzip", "x-cwd": "/"}
	before := s.match(read)
	if before == nil || err != nil {
		return nil
	}
	data := []byte{}
	if before.Status != http.StatusNotFound {
		if data = before.content(); before.Status >= 300 {
			return nil
		}
	}
	data = append(data, more...)
	write.Body = object{"tar": []any{object{
		"name": strings.TrimPrefix(file, "/"), "mode": "0644", "size": float64(len(data)), "type": "file", "sha256": sha256Hex(data),
	}}}
	s.log = append(s.log, read, write)
	s.use("append-adds-only")
	if after := s.match(write); after == nil || after.Status >= 300 {
		return nil
	}
	return ran(e, 0)
}

// steps plays the command that runs several programs to change users and groups
// as the official SDK's commands, one for each up to the first that fails, or
// returns false. They are logged as if they had been requested, and their output
// is combined in the way of the command's script. Its arguments are the names of
// the user, of its group and of the primary group as far as known, and for each
// program its kind, the number of its words, which of them to complete with a
// name, and these.
func (s *Server) steps(e *Entry) (*Exchange, bool) {
	words := e.words()
	if len(words) < 8 || words[0] != "sh" || !strings.Contains(words[2], "sudo -n --") || !strings.Contains(words[4], "whoami)") {
		return nil, false
	}
	s.use("steps-in-one-command")
	var output []object
	user, group, primary, exitCode := words[5], words[6], words[7], 0.0
	for rest := words[8:]; len(rest) > 0 && exitCode == 0; {
		kind, end := rest[0], 3+must(strconv.Atoi(rest[1]))
		command, at := slices.Clone(rest[3:end]), must(strconv.Atoi(rest[2]))-1
		switch kind {
		case "whoami":
			command = []string{"sh", "-c", "id -un; id -gn"}
		case "lookup":
			command = append([]string{"id", "-gn"}, command...)
		case "mine":
			command[at] = user + ":" + command[at]
		case "group":
			command[at] += ":" + group
		case "primary":
			command[at] += ":" + primary
		}
		rest = rest[end:]
		asked := e.starting(command[0], command[1:])
		body, _ := asked.jsonBody()
		body["sudo"] = kind != "whoami" && kind != "lookup"
		s.log = append(s.log, asked)
		ex := s.match(asked)
		asked.Unscripted = ex == nil
		if ex == nil || ex.NDJSON == nil {
			return ex, true
		}
		var said map[string]string
		said, exitCode = streamsOf(ex.NDJSON)
		for _, stream := range []string{"stdout", "stderr"} {
			output = append(output, object{"stream": stream, "data": "\x1e\n" + said[stream]})
		}
		names := append(strings.Split(strings.TrimSpace(said["stdout"]), "\n"), "")
		switch kind {
		case "whoami":
			user, group = names[0], names[1]
			if user == "" || group == "" {
				return ran(e, exitCode, output...), true
			}
		case "lookup":
			if primary = names[0]; primary == "" {
				return ran(e, exitCode, output...), true
			}
		}
	}
	return ran(e, exitCode, output...), true
}
