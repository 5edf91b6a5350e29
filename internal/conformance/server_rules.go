package conformance

import (
	"bytes"
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

// memory is what rules respond with.
type memory struct {
	outputs map[string][]json.RawMessage // of commands that were waited for
	logs    map[string][]json.RawMessage // of commands whose log was read
	known   map[string]object            // what a look would show, by its path
	resumes map[string]*Exchange         // of sandboxes, by their paths
	doubted map[string]*slot             // responses that only the official SDK takes for the API's, by the request
	unread  map[string]bool              // the commands whose log broke, or was none
	ending  map[string]bool              // the commands that were asked for their end since
	leases  map[string]int               // the numbers of locks, by their keys and owners
	allowed map[string]bool              // the requests that rules have allowed since the script's last
	told    map[string]bool              // commands whose end a rule has told
}

// running are the running step and those inside it: the branches of parallel, and
// the steps of hooks.
func (s *Server) running() (out []any) {
	if s.step < len(s.opts.Steps) {
		mapped([]any{plain(s.opts.Steps[s.step])}, func(_ string, v any) (any, bool) {
			if step, ok := v.(object); ok && step["op"] != nil {
				out = append(out, step)
			}
			return v, true
		})
	}
	return out
}

// ops are the operations of the running steps.
func (s *Server) ops() (out []string) {
	for _, step := range s.running() {
		out = append(out, fmt.Sprint(step.(object)["op"]))
	}
	return out
}

// skip removes from the script the exchanges of a step that the official SDK
// makes and this SDK refused, so that they don't serve the next steps.
func (s *Server) skip() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.Want == nil || s.step >= len(s.opts.Want.Results) {
		return
	}
	from := seenBefore(s.opts.Want.Results, s.step)
	to, ok := seenOf(s.opts.Want.Results[s.step])
	if !ok || to > len(s.opts.Want.Requests) {
		return
	}
	for _, r := range s.opts.Want.Requests[min(from, to):to] {
		e := decoded[Entry](must(marshal(r)))
		s.match(&e)
	}
}

// may reports whether a rule allows this request: if it responds, it must have a
// response, if it is about a command, be about this one, and if it runs a command
// again, in another environment, that one must have been the last.
func (s *Server) may(e *Entry, rule *Rule) bool {
	if rule.Env != nil {
		withoutEnv := func(e *Entry) any {
			body, _ := e.jsonBody()
			sent := maps.Clone(body)
			delete(sent, "env")
			return []any{e.Method, e.Path, sent}
		}
		if n := len(s.raw) - 2; n < 0 || differs("", withoutEnv(s.raw[n]), withoutEnv(e)) != "" {
			return false
		}
	}
	if len(rule.Words) > 0 && !s.opts.Rules.concerns(rule.Rule, e.command(), s.running()) {
		return false
	}
	return rule.Answer == "" || s.ruled(e, rule) != nil
}

// ruled returns the response of a rule, or nil when it has none.
func (s *Server) ruled(e *Entry, rule *Rule) *Exchange {
	id, isLog := path.Base(e.Path), strings.HasSuffix(e.Path, "/logs")
	if isLog {
		id = path.Base(path.Dir(e.Path))
	}
	respond := func(body any) *Exchange { return &Exchange{JSON: must(marshal(body))} }
	known := s.known[e.Path]
	switch rule.Answer {
	case "replay":
		if lines, ok := s.outputs[id]; ok {
			return &Exchange{NDJSON: lines}
		}
	case "ended":
		lines, read := s.logs[id]
		if !read && s.allowed[question(e)+"written-output-not-kept"] { // it was read there
			lines, read = s.outputs[id], true
		}
		if isLog && read && (s.unread[id] || s.ending[id] || s.hasEnd(id)) {
			return &Exchange{NDJSON: lines}
		}
		if !isLog && read && lines != nil { // the request is for the end of the log
			cmd := object{"id": id, "name": "x", "args": []any{}, "cwd": "/", "sessionId": "", "startedAt": 1, "exitCode": 0}
			for _, more := range []object{known, s.scriptedEnd(e)} {
				command, _ := more["command"].(object)
				for k, v := range command {
					if v != nil {
						cmd[k] = v
					}
				}
			}
			return respond(object{"command": cmd})
		}
	case "no snapshot":
		return respond(object{
			"sandbox": object{"name": id, "status": "stopped"}, "routes": []any{},
			"session": object{"id": "sess_lost", "status": "stopped"},
		})
	case "again":
		if s.lookedAtSince(e) {
			return s.resumes[e.Path]
		}
	case "known":
		if known != nil {
			return respond(known)
		}
	case "the same":
		if last := s.doubted[question(e)]; last != nil && last.left > 0 {
			return &last.Exchange
		}
	case "done":
		return respond(known)
	case "stopped", "running":
		now, _ := plain(known).(object)
		if session, ok := now["session"].(object); ok && (session["status"] == "pending") == (rule.Answer == "running") {
			session["status"] = rule.Answer
			return respond(now)
		}
	}
	return nil
}

// scriptedEnd returns the command with its end from a later exchange of the
// script, if there is one.
func (s *Server) scriptedEnd(e *Entry) (resp object) {
	for _, sl := range s.script {
		if sl.left > 0 && sl.matches(e) && json.Unmarshal(sl.JSON, &resp) == nil && resp["command"] != nil {
			return resp
		}
	}
	return nil
}

// lookedAtSince reports whether a rule's request for a session has arrived
// since the last request like this one.
func (s *Server) lookedAtSince(e *Entry) bool {
	for _, before := range slices.Backward(s.raw[:len(s.raw)-1]) {
		switch {
		case before.Method == e.Method && before.Path == e.Path:
			return false
		case before.Unscripted && before.Method == "GET" && strings.HasPrefix(before.Path, sessionsPath):
			return true
		}
	}
	return false
}

// withoutOutput returns the start of a command with writers, for which this SDK
// requests the output at once, as the official SDK makes it, or nil for any
// other request.
func (s *Server) withoutOutput(e *Entry) *Entry {
	body, _ := e.jsonBody()
	words := e.words()
	if words == nil || body["wait"] != true || body["logs"] != true {
		return nil
	}
	args := append([]any{}, plain(words[1:]).([]any)...)
	if !slices.ContainsFunc(s.running(), func(step any) bool {
		a, _ := step.(object)["args"].(object)
		given, _ := a["args"].([]any)
		return step.(object)["op"] == "runCommand" && a["cmd"] == words[0] && a["detached"] == true &&
			(a["stdout"] == true || a["stderr"] == true) && differs("", append([]any{}, given...), args) == ""
	}) {
		return nil
	}
	alone := e.starting(words[0], words[1:])
	sent, _ := alone.jsonBody()
	delete(sent, "wait")
	delete(sent, "logs")
	return alone
}

// started returns the response to such a start: a stream that breaks after the
// command, since the script has the output in the log.
func (s *Server) started(alone *Entry) *Exchange {
	s.use("started-with-its-output")
	s.log = append(s.log, alone)
	ex := s.match(alone)
	alone.Unscripted = ex == nil
	if ex == nil {
		return nil
	}
	s.remember(ex, alone)
	if present(ex.JSON) && ex.Status < 300 {
		ex = new(*ex)
		ex.NDJSON, ex.JSON = []json.RawMessage{ex.JSON}, nil
	}
	return ex
}

const sessionsPath = "/api/v2/sandboxes/sessions/"

// remember records what rules respond with: the output of commands that ran,
// the last state of what was shown, and responses to resumes.
func (s *Server) remember(ex *Exchange, e *Entry) {
	delete(s.doubted, question(e))
	if s.doubtful(ex) {
		s.doubted[question(e)] = &slot{*ex, 2}
	}
	if strings.Contains(fmt.Sprint(e.Query), "[resume true]") {
		s.resumes[e.Path] = ex
	}
	body := ex.content()
	if command, ok := strings.CutSuffix(e.Path, "/logs"); ok {
		s.unread[path.Base(command)] = ex.CutAfterBytes != nil || ex.Drop || ex.NDJSON == nil && ex.Chunks == nil
		s.ending[path.Base(command)] = false
	}
	if present(ex.JSON) {
		s.show(e, ex.Status, body)
		return
	}
	id, lines, outputs := "", []json.RawMessage{}, s.outputs
	if strings.HasSuffix(e.Path, "/logs") {
		id, outputs = path.Base(path.Dir(e.Path)), s.logs
	}
	for line := range bytes.Lines(body) {
		var rec struct {
			Stream  string
			Command *struct{ ID string }
		}
		switch line = bytes.TrimSpace(line); {
		case json.Unmarshal(line, &rec) != nil:
		case rec.Command != nil:
			id = rec.Command.ID
		case rec.Stream == "stdout" || rec.Stream == "stderr":
			lines = append(lines, line)
		}
	}
	if id != "" {
		outputs[id] = lines
	}
}

// show records the sandbox, session, drive or command of a response under the
// path of a look at it.
func (s *Server) show(e *Entry, status int, body []byte) {
	var resp struct {
		Sandbox, Session, Drive, Command object
		Routes                           []any
	}
	if e.Method == http.MethodGet && (status == http.StatusNotFound || status == http.StatusGone) {
		delete(s.known, e.Path)
	}
	if status >= 300 || json.Unmarshal(body, &resp) != nil {
		return
	}
	store := func(path string, name any, value object) {
		if text, ok := name.(string); ok {
			s.known[path+encodeURIComponent(text)] = value
		}
	}
	routes := append([]any{}, resp.Routes...)
	if resp.Session != nil {
		store(sessionsPath, resp.Session["id"], object{"session": resp.Session, "routes": routes})
		if resp.Sandbox != nil {
			store("/api/v2/sandboxes/", resp.Sandbox["name"], object{"sandbox": resp.Sandbox, "session": resp.Session, "routes": routes})
		}
	}
	if resp.Drive != nil {
		store("/api/v2/sandboxes/drives/", resp.Drive["name"], object{"drive": resp.Drive})
	}
	if rest, ok := strings.CutPrefix(e.Path, sessionsPath); ok && resp.Command != nil {
		session, _, _ := strings.Cut(rest, "/")
		store(sessionsPath+session+"/cmd/", resp.Command["id"], object{"command": resp.Command})
	}
}

// doubtful reports whether a response is not known to be the API's: it came too
// late, is a refusal without a code, or a success of which the official SDK makes
// an error.
func (s *Server) doubtful(ex *Exchange) bool {
	switch {
	case ex.CutAfterBytes != nil || ex.Drop:
		return false
	case ex.Status < 300:
		return s.opts.Want != nil && s.step < len(s.opts.Want.Results) &&
			matches(object{"error": object{"kind": "APIError", "status": "~^2..$"}}, s.opts.Want.Results[s.step])
	case ex.Status < 400 || ex.Status >= 500 || ex.Status == http.StatusTooManyRequests:
		return false
	}
	said, _ := decodeJSON(ex.JSON)
	return ex.Status == http.StatusRequestTimeout || ex.Status == http.StatusTooEarly || !matches(object{"error": object{"code": "~^[a-z_]+$"}}, said)
}

// unmark removes from a create with an onCreate hook the mark by which it
// recognizes its sandbox.
func (s *Server) unmark(e *Entry) {
	body, _ := e.jsonBody()
	tags, _ := body["tags"].(object)
	hooked := slices.ContainsFunc(s.running(), func(step any) bool {
		return matches(object{"op": "getOrCreate", "args": object{"onCreate": "*"}}, step)
	})
	if !hooked || e.Method != "POST" || !createPath.MatchString(e.Path) ||
		!matches(object{"go-sandbox-creation": "~^once-[A-Z2-7]{26}$"}, tags) {
		return
	}
	s.use("create-marked")
	if delete(tags, "go-sandbox-creation"); len(tags) == 0 {
		delete(body, "tags")
	}
}

var createPath = regexp.MustCompile(`^/api/v[2-4]/sandboxes$`)

// lock responds to a command of the hooks\' lock, which is free.
func (s *Server) lock(e *Entry) *Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opts.Rules.concerns("hooks-locked", e.command(), nil) || !s.hooked() {
		return nil
	}
	words := e.words()
	said := "lost\n"
	switch n, taken := s.leases[words[4]+words[5]]; {
	case !strings.Contains(words[2], "\nowner="): // it is given back
		if taken && words[6] == strconv.Itoa(n) {
			said = "put\n"
			s.leases[words[4]+words[5]] = n + 1
		}
	default:
		s.leases[words[7]+words[4]] = 1
		said = "taken 1 " + words[7] + "\n"
	}
	s.use("hooks-locked")
	return ran(e, 0, object{"stream": "stdout", "data": said})
}

// hooked reports whether a step up to the running one has a hook.
func (s *Server) hooked() bool {
	return slices.ContainsFunc(s.opts.Steps[:min(s.step+1, len(s.opts.Steps))], func(step Step) bool {
		return bytes.Contains(step.Args, []byte(`"onCreate"`)) || bytes.Contains(step.Args, []byte(`"onResume"`))
	})
}

// awaited reports whether the official SDK makes this request, too, before its
// requests are counted the next time.
func (s *Server) awaited(e *Entry) bool {
	if s.opts.Want == nil {
		return true
	}
	wanted := s.opts.Want.Requests
	for _, result := range s.opts.Want.Results[min(s.step, len(s.opts.Want.Results)):] {
		if n, ok := seenOf(result); ok {
			wanted = wanted[:min(len(wanted), n)]
			break
		}
	}
	open := 0
	for _, w := range wanted {
		if question(w) == question(e) {
			open++
		}
	}
	for _, l := range s.log {
		if question(l) == question(e) {
			open--
		}
	}
	return open > 0
}

// question says what a request asks, without its outcome.
func question(request any) string {
	r := plain(request).(object)
	return fmt.Sprint(r["method"], r["path"], r["query"], r["body"])
}

// likely moves what the official SDK requests next to the front.
func (s *Server) likely(e *Entry, list []translated) []translated {
	looks := slices.Contains(s.ops(), "get") || slices.Contains(s.ops(), "getOrCreate")
	if !looks { // what asks for a start is a resume
		list = slices.DeleteFunc(list, func(t translated) bool { return slices.Contains(t.rules, "get-starts") })
	}
	if s.opts.Want == nil || len(s.log) >= len(s.opts.Want.Requests) {
		return list
	}
	next := tolerant(s.opts.Want.Requests[len(s.log)])
	if differs("", next, tolerant(plain(e))) == "" && !(s.opts.AnyOrder && looks) {
		return nil // the same request
	}
	i := slices.IndexFunc(list, func(t translated) bool { return differs("", next, tolerant(plain(t.entry))) == "" })
	if i > 0 {
		list[0], list[i] = list[i], list[0]
	}
	return list
}

// hasEnd reports whether a response has shown the end of a command.
func (s *Server) hasEnd(id string) bool {
	for at, known := range s.known {
		command, _ := known["command"].(object)
		if strings.HasSuffix(at, "/cmd/"+id) && command["exitCode"] != nil {
			return true
		}
	}
	_, ran := s.outputs[id] // its stream ended with its end
	return ran || s.told[id]
}
