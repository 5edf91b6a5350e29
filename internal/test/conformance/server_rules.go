package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
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
	allowed map[string]bool              // the requests that rules have allowed since the script's last
}

// running are the running step and those inside it: the branches of parallel, and
// the steps of hooks.
func (s *Server) running() (out []any) {
	if s.step < len(s.scenario.Steps) {
		mapped([]any{plain(s.scenario.Steps[s.step])}, func(_ string, v any) (any, bool) {
			if step, ok := v.(object); ok && step["op"] != nil {
				if args, ok := step["args"].(object); ok && step["op"] == "runCommand" && args["args"] == nil {
					args["args"] = []any{}
				}
				out = append(out, step)
			}
			return v, true
		})
	}
	return out
}

// omit logs the requests of the running step that only the official SDK makes,
// and takes their exchanges from the script, so that they don't serve the next
// steps: those of a call that this SDK refused, and those that a rule is about.
func (s *Server) omit(result object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := len(s.log)
	if result["#made"], result["#own"] = made, made-s.added; s.step >= len(s.want.Results) {
		return
	}
	to, _ := seenOf(s.want.Results[s.step])
	wanted, anyOrder := s.want.Requests, s.scenario.anyOrder()
	failed, _ := result["error"].(object)
	message, _ := failed["message"].(string)
	unmade := result["#refused"] != nil || strings.HasPrefix(message, "nothing saved as ") ||
		result["op"] == "getCommand" && failed["code"] == "sandbox_stopped" && made < len(wanted) && isLook(wanted[made])
	for i, w := range wanted {
		e := decoded[Entry](marshal(w))
		missing := i < to && (i >= len(s.log) || s.log[i].Method+s.log[i].Path != e.Method+e.Path)
		if anyOrder { // and so is that of the recording
			missing = len(s.log) < to && s.open(&e, wanted[:i+1])
		}
		if missing && (unmade && i >= made || s.onlyOfficial(&e, wanted[:i])) {
			if ex := s.match(&e); result["#refused"] == nil {
				s.omitted[ex] = true
			}
			s.log = slices.Insert(s.log, min(i, len(s.log)), &e)
			s.added++
		}
	}
	if result["seen"] != nil {
		result["seen"] = len(s.log)
	}
}

// onlyOfficial reports whether a rule says that this SDK does not make a request.
func (s *Server) onlyOfficial(e *Entry, before []any) bool {
	switch {
	case strings.HasPrefix(e.Path, "/__") && len(s.scenario.given()) > 0: // it renews the token that the caller gave
		s.use("explicit-credentials-kept")
	case e.Method == "GET" && path.Base(path.Dir(e.Path)) == "cmd" && strings.Contains(fmt.Sprint(e.Query), "[wait true]") &&
		slices.ContainsFunc(before, func(r any) bool { return r.(object)["path"] == e.Path+"/logs" }):
		s.use("known-end-not-asked-for")
	case s.scenario.anyOrder() && isLook(plain(e)) && slices.ContainsFunc(s.log, func(l *Entry) bool { return question(l) == question(e) }):
		s.use("one-resume-for-all") // which calls find the sandbox stopped at the same time
	default:
		return false
	}
	return true
}

// unscripted returns the rule that allows a request without an exchange, or nil. A
// rule that responds must have a response, one about commands be about this one,
// and of one that runs a command again, in another environment, it must have been
// the last.
func (s *Server) unscripted(e *Entry) *Rule {
	steps := s.running()
	inStep := func(op string) bool {
		return slices.ContainsFunc(steps, func(step any) bool { return step.(object)["op"] == op })
	}
	withoutEnv := func(e *Entry) any {
		body, _ := e.jsonBody()
		sent := maps.Clone(body)
		delete(sent, "env")
		return []any{e.Method, e.Path, sent}
	}
	for i := range s.rules {
		r := &s.rules[i]
		if (len(r.Ops) == 0 || slices.ContainsFunc(r.Ops, inStep)) &&
			slices.ContainsFunc(r.Unscripted, func(pattern string) bool { return r.covers(pattern, e) }) &&
			(r.Env == nil || len(s.raw) > 1 && differs("", withoutEnv(s.raw[len(s.raw)-2]), withoutEnv(e)) == "") &&
			(len(r.Words) == 0 || s.rules.concerns(r.Rule, e, steps)) && (r.Answer == "" || s.ruled(e, r) != nil) {
			return r
		}
	}
	return nil
}

// ruled returns the response of a rule, or nil when it has none.
func (s *Server) ruled(e *Entry, rule *Rule) *Exchange {
	id, isLog := path.Base(e.Path), strings.HasSuffix(e.Path, "/logs")
	if isLog {
		id = path.Base(path.Dir(e.Path))
	}
	respond := func(body any) *Exchange { return &Exchange{JSON: marshal(body)} }
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
		if isLog && read && (s.unread[id] || s.hasEnd(id)) {
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

// show records a response with a sandbox, session, drive or command under the path
// of a look at it.
func (s *Server) show(e *Entry, status int, body []byte) {
	if e.Method == http.MethodGet && (status == http.StatusNotFound || status == http.StatusGone) {
		delete(s.known, e.Path)
	}
	resp := object{"routes": []any{}}
	if status >= 300 || json.Unmarshal(body, &resp) != nil {
		return
	}
	session, _, _ := strings.Cut(strings.TrimPrefix(e.Path, sessionsPath), "/")
	for kind, key := range map[string][2]string{
		"session": {"id", sessionsPath}, "command": {"id", sessionsPath + session + "/cmd/"},
		"sandbox": {"name", "/api/v2/sandboxes/"}, "drive": {"name", "/api/v2/sandboxes/drives/"},
	} {
		one, _ := resp[kind].(object)
		if id, ok := one[key[0]].(string); ok && (kind != "sandbox" || resp["session"] != nil) {
			s.known[key[1]+encodeURIComponent(id)] = resp
		}
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
		return s.step < len(s.want.Results) &&
			matches(object{"error": object{"kind": "APIError", "status": "~^2..$"}}, s.want.Results[s.step])
	case ex.Status < 400 || ex.Status >= 500 || ex.Status == http.StatusTooManyRequests:
		return false
	}
	said, _ := decodeJSON(ex.JSON)
	return ex.Status == http.StatusRequestTimeout || ex.Status == http.StatusTooEarly || !matches(object{"error": object{"code": "~^[a-z_]+$"}}, said)
}

// awaited reports whether the official SDK makes this request, too, before its
// requests are counted the next time.
func (s *Server) awaited(e *Entry) bool {
	wanted := s.want.Requests
	for _, result := range s.want.Results[min(s.step, len(s.want.Results)):] {
		if n, ok := seenOf(result); ok {
			wanted = wanted[:min(len(wanted), n)]
			break
		}
	}
	return s.open(e, wanted)
}

// open reports whether a request was made less often than is wanted.
func (s *Server) open(e *Entry, wanted []any) bool {
	open, asked := 0, question(e)
	for _, w := range wanted {
		if question(w) == asked {
			open++
		}
	}
	for _, l := range s.log {
		if question(l) == asked {
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

// likely returns the readings of a request, those first that the official SDK
// requests next.
func (s *Server) likely(e *Entry) []reading {
	list := s.rules.readings(e, s.running())
	rank := func(r reading) int {
		next := len(s.log)
		if !s.scenario.anyOrder() && next < len(s.want.Requests) &&
			differs("", tolerant(s.want.Requests[next]), tolerant(plain(r.entry))) == "" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b reading) int { return rank(a) - rank(b) })
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
	return ran
}
