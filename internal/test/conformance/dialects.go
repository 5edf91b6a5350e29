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

// wording says what the official SDK requests in place of a request of this SDK:
// From is a regular expression of its text, in which <s> is any string in JSON,
// and To are replacements, the most likely first. Step is a pattern that one of
// the running steps must match, with "$name" for a member of the request's body,
// and Script the program that sh must run. Without To, From only says which
// requests the rule is about.
type wording struct {
	Step   any
	From   string
	Script string
	To     []string
}

// of reports whether the wording is about a request, in one of these steps.
func (w *wording) of(text string, e *Entry, steps []any) bool {
	body, _ := e.jsonBody()
	words := e.words()
	return (w.Script == "" || len(words) > 2 && words[2] == w.Script) && w.regexp().MatchString(text) &&
		(w.Step == nil || slices.ContainsFunc(steps, func(s any) bool { return matches(expand(w.Step, body, "", nil), s) }))
}

func (w *wording) regexp() *regexp.Regexp {
	return compiled("(?m)" + strings.ReplaceAll(w.From, "<s>", `"(?:[^"\\]|\\.)*"`))
}

// concerns reports whether one of a rule's wordings is about a request.
func (r Rules) concerns(rule string, e *Entry, steps []any) bool {
	i := slices.IndexFunc(r, func(x Rule) bool { return x.Rule == rule })
	return i >= 0 && slices.ContainsFunc(r[i].Words, func(w wording) bool { return w.of(e.text(), e, steps) })
}

// reading is a request as the official SDK may have made it, and the rules that
// say so.
type reading struct {
	text  string
	rules []string
	entry *Entry
}

// readings returns what may stand in place of a request, and last itself.
func (r Rules) readings(e *Entry, steps []any) []reading {
	list := []reading{{text: e.text()}}
	for _, rule := range r {
		for _, w := range rule.Words {
			var now []reading
			for _, one := range list {
				if len(w.To) == 0 || !w.of(one.text, e, steps) {
					now = append(now, one)
					continue
				}
				for _, to := range w.To {
					other := reading{text: w.regexp().ReplaceAllString(one.text, to), rules: one.rules}
					if other.text != one.text {
						other.rules = append(slices.Clone(one.rules), rule.Rule)
					}
					now = append(now, other)
				}
			}
			list = now
		}
	}
	for i := range list {
		list[i].entry = e.saying(list[i].text)
	}
	return append(list, reading{entry: e})
}

// text returns a request as lines: its method, path and query; the words of the
// command that it starts; and its body without them. Both are JSON.
func (e *Entry) text() string {
	body, _ := e.jsonBody()
	rest, words, query := maps.Clone(body), e.words(), ""
	if words != nil {
		delete(rest, "command")
		delete(rest, "args")
	}
	for _, p := range e.Query {
		pair := p.([]any)
		query += "&" + encodeURIComponent(pair[0].(string)) + "=" + encodeURIComponent(pair[1].(string))
	}
	return fmt.Sprintf("%s %s?%s\n%s\n%s", e.Method, e.Path, query, marshal(words), marshal(rest))
}

// saying returns the request with another text.
func (e *Entry) saying(text string) *Entry {
	lines, other := strings.Split(text, "\n"), new(*e)
	target, query, _ := strings.Cut(lines[0], "?")
	_, other.Path, _ = strings.Cut(target, " ")
	other.Query = formPairs(query)
	if body := decoded[object]([]byte(lines[2])); body != nil {
		if words := decoded[[]any]([]byte(lines[1])); words != nil {
			body["command"], body["args"] = words[0], words[1:]
		}
		other.Body = object{"json": body}
	}
	return other
}

// response returns what a request of this SDK gets for the reading's.
func (r *reading) response(ex *Exchange) *Exchange {
	now := new(*ex)
	switch {
	case slices.Contains(r.rules, "directory-in-one-listing") && ex.NDJSON != nil:
		now.NDJSON = relist(r.entry.words()[0], ex.NDJSON)
	case slices.Contains(r.rules, "started-with-its-output") && present(ex.JSON) && ex.Status < 300:
		// A stream that breaks after the command: the script has the output in the log.
		now.NDJSON, now.JSON = []json.RawMessage{ex.JSON}, nil
	}
	return now
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
func relist(command string, lines []json.RawMessage) []json.RawMessage {
	out := slices.Clone(lines)
	said, _ := streamsOf(lines)
	var b strings.Builder
	for line := range strings.Lines(said["stdout"]) {
		kind, name := "f", strings.TrimSuffix(line, "\n")
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
			out[i] = marshal(object{"stream": "stdout", "data": text})
			text = ""
		}
	}
	return out
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
	ended := maps.Clone(command)
	ended["exitCode"] = exitCode
	ex := &Exchange{}
	for _, record := range append(append([]object{{"command": command}}, output...), object{"command": ended}) {
		ex.NDJSON = append(ex.NDJSON, marshal(record))
	}
	return ex
}

// append plays a command that appends to a file as the requests that the
// official SDK makes for it: it reads the whole file and writes it again. Both
// requests are logged, with the bodies that the official SDK would send.
func (s *Server) append(e *Entry) *Exchange {
	words := e.words()
	if !s.rules.concerns("append-adds-only", e, s.running()) {
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
	if before == nil || err != nil || before.Status >= 300 && before.Status != http.StatusNotFound {
		return nil
	}
	data := more
	if before.Status != http.StatusNotFound {
		data = append(before.content(), more...)
	}
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
