package conformance

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// reading is a request of the official SDK that a request of this SDK may stand for, with the
// rules that allow this.
type reading struct {
	*Entry
	rules []string
}

// equivalents are the rules about requests that are equivalent to requests of the official
// SDK. Each function returns the requests of the official SDK that a request of this SDK may
// stand for, the most likely first. It returns none if the rule does not apply.
var equivalents = []struct {
	rule string
	of   func(e *Entry, steps []object) []*Entry
}{
	{"create-marked", withoutCreationMark}, {"process-marked", withoutProcessMark}, {"own-programs-in-root", withoutRoot},
	{"started-with-its-output", startOnly}, {"stat-with-fractions", wholeSeconds},
	{"directory-in-one-listing", namesOnly}, {"get-starts", withoutResume},
}

// readings returns the readings of a request. The last one is the request itself.
func readings(e *Entry, steps []object) []reading {
	list := []reading{{Entry: e}}
	for _, rule := range equivalents {
		var now []reading
		for _, one := range list {
			others := rule.of(one.Entry, steps)
			for _, other := range others {
				r := reading{other, one.rules}
				if other != one.Entry {
					r.rules = append(slices.Clone(r.rules), rule.rule)
				}
				now = append(now, r)
			}
			if len(others) == 0 {
				now = append(now, one)
			}
		}
		list = now
	}
	return append(list, reading{Entry: e})
}

// orderedReadings returns the readings of a request. If the official SDK makes one of them next, it comes
// first.
func (s *Server) orderedReadings(e *Entry) []reading {
	list := readings(e, s.running())
	rank := func(r reading) int {
		next := len(s.log)
		if !s.scenario.anyOrder() && next < len(s.want.Requests) &&
			differs("", tolerant(s.want.Requests[next]), tolerant(plain(r.Entry))) == "" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b reading) int { return rank(a) - rank(b) })
	return list
}

// running returns the running step and the steps inside it, which are the branches of parallel
// and the steps of hooks.
func (s *Server) running() (out []object) {
	if s.step < len(s.scenario.Steps) {
		mapped([]any{plain(s.scenario.Steps[s.step])}, func(_ string, v any) (any, bool) {
			if step, ok := v.(object); ok && step["op"] != nil {
				out = append(out, step)
			}
			return v, true
		})
	}
	return out
}

// in reports whether one of the steps has one of the operations.
func in(steps []object, ops ...string) bool {
	return slices.ContainsFunc(steps, func(s object) bool { return slices.Contains(ops, s["op"].(string)) })
}

// with returns the request with a change of its JSON body.
func (e *Entry) with(change func(body object)) *Entry {
	other := new(*e)
	body, _ := e.jsonBody()
	body = plain(body).(object)
	change(body)
	other.Body = object{"json": body}
	return other
}

// commandLine returns the program and arguments of the command that a request starts, or nil.
func (e *Entry) commandLine() []string {
	body, _ := e.jsonBody()
	if e.Method != http.MethodPost || !strings.HasSuffix(e.Path, "/cmd") {
		return nil
	}
	var args []string
	command, ok := body["command"].(string)
	if !ok || json.Unmarshal(marshal(body["args"]), &args) != nil {
		return nil
	}
	return append([]string{command}, args...)
}

// withCommand returns the request with another program and arguments.
func (e *Entry) withCommand(words ...string) *Entry {
	return e.with(func(body object) { body["command"], body["args"] = words[0], plain(words[1:]) })
}

func withoutCreationMark(e *Entry, steps []object) []*Entry {
	body, _ := e.jsonBody()
	tags, _ := body["tags"].(object)
	hooked := slices.ContainsFunc(steps, func(s object) bool {
		args, _ := s["args"].(object)
		return s["op"] == "getOrCreate" && args["onCreate"] != nil
	})
	if !hooked || e.Method != http.MethodPost || !strings.HasSuffix(e.Path, "/sandboxes") || tags["go-sandbox-creation"] != "once-" {
		return nil
	}
	return []*Entry{e.with(func(body object) {
		if tags := body["tags"].(object); len(tags) == 1 {
			delete(body, "tags")
		} else {
			delete(tags, "go-sandbox-creation")
		}
	})}
}

// processMark is the variable by which a script finds the processes of a command.
const processMark = "GO_SANDBOX_COMMAND"

func withoutProcessMark(e *Entry, _ []object) []*Entry {
	words, other := e.commandLine(), e
	body, _ := e.jsonBody()
	env, _ := body["env"].(object)
	if words != nil && env[processMark] != nil {
		other = e.with(func(body object) { delete(body["env"].(object), processMark) })
	}
	i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, processMark+"=") })
	switch {
	case i >= 2 && words[0] == "sudo" && words[i-1] == "env":
		return []*Entry{other.withCommand(slices.Delete(slices.Clone(words), i, i+1)...), other.withCommand(slices.Delete(slices.Clone(words), i-1, i+1)...)}
	case other != e:
		return []*Entry{other}
	}
	return nil
}

func withoutRoot(e *Entry, _ []object) []*Entry {
	if body, _ := e.jsonBody(); e.commandLine() == nil || body["cwd"] != "/" {
		return nil
	}
	return []*Entry{e.with(func(body object) { delete(body, "cwd") }), e}
}

// startOnly is for commands with writers. With this SDK, the response to the start contains
// their output.
func startOnly(e *Entry, steps []object) []*Entry {
	words := e.commandLine()
	body, _ := e.jsonBody()
	if words == nil || body["wait"] != true || body["logs"] != true || !slices.ContainsFunc(steps, func(s object) bool {
		a := decoded[runArgs](marshal(s["args"]))
		return s["op"] == "runCommand" && a.Detached && (a.Stdout || a.Stderr) && slices.Equal(words, append([]string{a.Cmd}, a.Args...))
	}) {
		return nil
	}
	return []*Entry{e.with(func(body object) {
		delete(body, "wait")
		delete(body, "logs")
	})}
}

const (
	// fractions is a format for stat that includes the fractions of the times.
	fractions = "%s|%f|%u|%g|%.9X|%.9Y|%.9Z|%.9W|%h|%i|%d|%B|%b"
	// entries is a format for find that includes all attributes of a directory's entries.
	entries = `%y %m %s %U %G %A@ %T@ %C@ %n %i %D %b %f\0`
)

func wholeSeconds(e *Entry, _ []object) []*Entry {
	words := e.commandLine()
	i := slices.Index(words, fractions)
	if i < 0 || words[0] != "stat" {
		return nil
	}
	words[i] = strings.ReplaceAll(fractions, ".9", "")
	return []*Entry{e.withCommand(words...)}
}

// namesOnly applies to the find that this SDK runs to list a directory. The official SDK runs ls
// instead, or find with only names and types.
func namesOnly(e *Entry, steps []object) (out []*Entry) {
	words := e.commandLine()
	if len(words) < 2 || words[0] != "find" || !strings.HasSuffix(words[1], "/") ||
		!slices.Equal(words[2:], []string{"-maxdepth", "1", "-mindepth", "1", "-ignore_readdir_race", "-printf", entries}) {
		return nil
	}
	for _, s := range steps {
		for _, dir := range []string{strings.TrimSuffix(words[1], "/"), words[1]} {
			args, _ := s["args"].(object)
			switch {
			case s["op"] != "fs.readdir":
			case args["withFileTypes"] == true:
				out = append(out, e.withCommand("find", dir, "-maxdepth", "1", "-mindepth", "1", "-printf", `%f|%y\n`))
			default:
				out = append(out, e.withCommand("ls", "-1", dir))
			}
		}
	}
	return out
}

func withoutResume(e *Entry, steps []object) []*Entry {
	resume := func(p any) bool { return differs("", []any{"resume", "true"}, p) == "" }
	if e.Method != http.MethodGet || !in(steps, "get", "getOrCreate") || !slices.ContainsFunc(e.Query, resume) {
		return nil
	}
	other := new(*e)
	other.Query = slices.DeleteFunc(slices.Clone(e.Query), resume)
	return []*Entry{other, e}
}

// response converts the response to the reading into a response to the request of this SDK.
func (r *reading) response(ex *Exchange) *Exchange {
	now := new(*ex)
	switch {
	case slices.Contains(r.rules, "directory-in-one-listing") && ex.NDJSON != nil:
		now.NDJSON = relist(r.commandLine()[0], ex.NDJSON)
	case slices.Contains(r.rules, "started-with-its-output") && present(ex.JSON) && ex.Status < 300:
		// Send a stream that breaks after the command's record. This SDK then reads the
		// output from the log.
		now.NDJSON, now.JSON = []json.RawMessage{ex.JSON}, nil
	}
	return now
}

// relist converts the listing in the script, with one entry of ls or find per line, to the form
// that this SDK requests. The fields that the official SDK does not request are zero.
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
