package conformance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
)

// ops are the operations of the running step.
func (s *Server) ops() []string {
	if s.step >= len(s.opts.Steps) {
		return nil
	}
	return s.opts.Steps[s.step].ops()
}

// ops are the operations of a step and of those inside it: the branches of
// parallel, and the steps of hooks.
func (s *Step) ops() []string {
	out := []string{s.Op}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			if op, ok := v["op"].(string); ok {
				out = append(out, op)
			}
			for _, x := range v {
				walk(x)
			}
		}
	}
	if args, ok := decodeJSON(s.Args); ok {
		walk(args)
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
	from := 0
	for i := range s.step {
		if n, ok := seenOf(s.opts.Want.Results[i]); ok {
			from = n
		}
	}
	to, ok := seenOf(s.opts.Want.Results[s.step])
	if !ok || to > len(s.opts.Want.Requests) {
		return
	}
	for _, r := range s.opts.Want.Requests[min(from, to):to] {
		raw, err := marshal(r)
		var e Entry
		if err == nil && json.Unmarshal(raw, &e) == nil {
			s.match(&e)
		}
	}
}

// setAside keeps a request out of the log and returns the response of the rule.
func (s *Server) setAside(e *Entry, rule *Rule) *Exchange {
	e.Unscripted = true
	s.use(rule.Rule)
	return s.ruled(e, rule)
}

// ruled returns the response of a rule, or nil when it has none.
func (s *Server) ruled(e *Entry, rule *Rule) *Exchange {
	last := func(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
	switch rule.Answer {
	case "replay":
		if lines, ok := s.outputs[last(strings.TrimSuffix(e.Path, "/logs"))]; ok {
			return &Exchange{NDJSON: lines}
		}
	case "ended":
		if id, ok := strings.CutSuffix(e.Path, "/logs"); ok {
			if lines, ok := s.logs[last(id)]; ok {
				return &Exchange{NDJSON: lines}
			}
			return nil
		}
		if s.logs[last(e.Path)] == nil {
			return nil // the request is not for the end of a log
		}
		cmd := map[string]any{"id": last(e.Path), "name": "x", "args": []any{}, "cwd": "/", "sessionId": "", "startedAt": 1}
		maps.Copy(cmd, s.commands[last(e.Path)])
		maps.Copy(cmd, s.scriptedEnd(e))
		if cmd["exitCode"] == nil {
			cmd["exitCode"] = 0
		}
		raw, _ := marshal(map[string]any{"command": cmd})
		return &Exchange{JSON: raw}
	case "no snapshot":
		raw, _ := marshal(map[string]any{
			"sandbox": map[string]any{"name": last(e.Path), "status": "stopped"}, "routes": []any{},
			"session": map[string]any{"id": "sess_lost", "status": "stopped"},
		})
		return &Exchange{JSON: raw}
	case "again":
		if s.lookedAtSince(e) {
			return s.resumes[e.Path]
		}
	case "known":
		if raw := s.known[strings.TrimPrefix(e.Path, "/api/v2/sandboxes/")]; raw != nil {
			return &Exchange{JSON: raw}
		}
	case "done":
		return &Exchange{JSON: json.RawMessage("{}")}
	case "stopped", "running":
		known, ok := s.sessions[last(e.Path)]
		if !ok || (known["session"].(map[string]any)["status"] == "pending") != (rule.Answer == "running") {
			return nil
		}
		now := plain(known).(map[string]any)
		now["session"].(map[string]any)["status"] = rule.Answer
		raw, _ := marshal(now)
		return &Exchange{JSON: raw}
	}
	return nil
}

// withoutOutput returns the start of a command with writers, for which this SDK
// requests the output at once, as the official SDK makes it, or nil for any
// other request.
func (s *Server) withoutOutput(e *Entry) *Entry {
	body, ok := e.jsonBody()
	if !ok || !s.opts.Rules.has("started-with-its-output") || body["wait"] != true || !strings.HasSuffix(e.Path, "/cmd") {
		return nil
	}
	for _, st := range s.opts.Steps {
		var a struct {
			Cmd                      string
			Detached, Stdout, Stderr bool
		}
		if st.Op != "runCommand" || json.Unmarshal(st.Args, &a) != nil || a.Cmd != body["command"] || !a.Detached || !a.Stdout && !a.Stderr {
			continue
		}
		alone := new(*e)
		sent := maps.Clone(body)
		delete(sent, "wait")
		delete(sent, "logs")
		alone.Body = map[string]any{"json": sent}
		return alone
	}
	return nil
}

// started returns the response to such a start: a stream that breaks after the
// command, since the script has the output in the log.
func (s *Server) started(alone *Entry) *Exchange {
	s.use("started-with-its-output")
	s.log = append(s.log, alone)
	ex := s.match(alone)
	if ex == nil {
		alone.Unscripted = true
		return nil
	}
	s.remember(ex, alone)
	if present(ex.JSON) && ex.Status < 300 {
		ex = new(*ex)
		ex.NDJSON, ex.JSON = []json.RawMessage{ex.JSON}, nil
	}
	return ex
}

// scriptedEnd returns the command with its end from a later exchange of the
// script, if there is one.
func (s *Server) scriptedEnd(e *Entry) map[string]any {
	for _, sl := range s.script {
		var resp struct{ Command map[string]any }
		if sl.left > 0 && sl.matches(e) && json.Unmarshal(sl.JSON, &resp) == nil && resp.Command != nil {
			return resp.Command
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
		case before.Unscripted && before.Method == "GET" && strings.HasPrefix(before.Path, "/api/v2/sandboxes/sessions/"):
			return true
		}
	}
	return false
}

// remember records what rules respond with: the output of commands that ran,
// the last state of sessions, and responses to resumes.
func (s *Server) remember(ex *Exchange, e *Entry) {
	if ex.Status == http.StatusRequestTimeout || ex.Status == http.StatusTooEarly {
		s.late[fmt.Sprint(question(plain(e)))] = ex
	}
	if slices.ContainsFunc(e.Query, func(p any) bool { return fmt.Sprint(p) == "[resume true]" }) {
		s.resumes[e.Path] = ex
	}
	_, pieces, err := ex.response()
	if err != nil {
		return
	}
	var body []byte
	for _, p := range pieces {
		body = append(body, p.data...)
	}
	if present(ex.JSON) {
		s.keep(e, ex)
		var resp struct {
			Session map[string]any `json:"session"`
			Routes  []any          `json:"routes"`
			Command map[string]any `json:"command"`
		}
		if json.Unmarshal(body, &resp) != nil {
			return
		}
		if id, ok := resp.Command["id"].(string); ok {
			s.commands[id] = resp.Command
		}
		if resp.Session != nil {
			if id, ok := resp.Session["id"].(string); ok {
				s.sessions[id] = map[string]any{"session": resp.Session, "routes": append([]any{}, resp.Routes...)}
			}
		}
		return
	}
	id, lines, outputs := "", []json.RawMessage{}, s.outputs
	if path, ok := strings.CutSuffix(e.Path, "/logs"); ok {
		id, outputs = path[strings.LastIndexByte(path, '/')+1:], s.logs
	}
	for line := range bytes.Lines(body) {
		var rec struct {
			Stream  string `json:"stream"`
			Command *struct {
				ID string `json:"id"`
			} `json:"command"`
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

// keep records a sandbox, drive or command as the response to a look at it.
func (s *Server) keep(e *Entry, ex *Exchange) {
	var resp struct {
		Sandbox, Session, Drive, Command map[string]any
		Routes                           []any
	}
	if ex.Status >= 300 || json.Unmarshal(ex.JSON, &resp) != nil {
		return
	}
	store := func(path, name any, value map[string]any) {
		if text, ok := name.(string); ok {
			s.known[fmt.Sprint(path, text)], _ = marshal(value)
		}
	}
	if resp.Sandbox != nil && resp.Session != nil {
		store("", resp.Sandbox["name"], map[string]any{"sandbox": resp.Sandbox, "session": resp.Session, "routes": append([]any{}, resp.Routes...)})
	}
	if resp.Drive != nil {
		store("drives/", resp.Drive["name"], map[string]any{"drive": resp.Drive})
	}
	if rest, ok := strings.CutPrefix(e.Path, "/api/v2/sandboxes/sessions/"); ok && resp.Command != nil {
		session, _, _ := strings.Cut(rest, "/")
		store("sessions/"+session+"/cmd/", resp.Command["id"], map[string]any{"command": resp.Command})
	}
}

// tooLate returns the response to a request that was refused because it came
// too late, and is made again.
func (s *Server) tooLate(e *Entry) *Exchange {
	if !s.opts.Rules.has("time-out-retried") {
		return nil
	}
	ex := s.late[fmt.Sprint(question(plain(e)))]
	if ex != nil {
		e.Unscripted = true
		s.use("time-out-retried")
	}
	return ex
}

// unmark removes from a request the mark by which a create recognizes its
// sandbox.
func (s *Server) unmark(e *Entry) {
	const mark = "go-sandbox-creation"
	body, _ := e.jsonBody()
	tags, _ := body["tags"].(map[string]any)
	if tags[mark] == nil || !s.opts.Rules.has("create-marked") {
		return
	}
	s.use("create-marked")
	if delete(tags, mark); len(tags) == 0 {
		delete(body, "tags")
	}
}

// lock responds to a command of the lock of hooks, which nobody else holds.
func (s *Server) lock(w http.ResponseWriter, r *http.Request, e *Entry) bool {
	body, _ := e.jsonBody()
	args, _ := body["args"].([]any)
	if len(args) < 7 || !s.opts.Rules.has("hooks-locked") || !strings.Contains(fmt.Sprint(args[1]), "/.go-sandbox") {
		return false
	}
	s.mu.Lock()
	s.use("hooks-locked")
	s.mu.Unlock()
	out := "put\n"
	if strings.Contains(fmt.Sprint(args[1]), "taken") {
		out = fmt.Sprintf("taken 1 %v\n", args[6])
	}
	command := map[string]any{"id": cmp.Or(r.URL.Query().Get("cmdId"), "cmd_lock"), "name": "sh", "args": []string{}, "cwd": "/", "sessionId": path.Base(path.Dir(r.URL.Path)), "startedAt": 1, "exitCode": nil}
	w.Header().Set("Content-Type", "application/x-ndjson")
	records := json.NewEncoder(w)
	_ = records.Encode(map[string]any{"command": command})
	_ = records.Encode(map[string]any{"stream": "stdout", "data": out})
	command["exitCode"] = 0
	_ = records.Encode(map[string]any{"command": command})
	return true
}

// awaited reports whether the official SDK makes this request, too, before its
// requests are counted the next time.
func (s *Server) awaited(e *Entry) bool {
	if s.opts.Want == nil {
		return true
	}
	limit := len(s.opts.Want.Requests)
	for i := s.step; i < len(s.opts.Want.Results); i++ {
		if n, ok := seenOf(s.opts.Want.Results[i]); ok {
			limit = min(limit, n)
			break
		}
	}
	asked := question(plain(e))
	equal := func(a any) bool { return differs("", question(a), asked) == "" }
	if !s.opts.AnyOrder {
		return len(s.log) < limit && slices.ContainsFunc(s.opts.Want.Requests[len(s.log):limit], equal)
	}
	open := 0
	for _, w := range s.opts.Want.Requests {
		if equal(w) {
			open++
		}
	}
	for _, l := range s.log {
		if equal(plain(l)) {
			open--
		}
	}
	return open > 0
}

// question returns what a request asks, without its outcome.
func question(request any) any {
	r, _ := request.(map[string]any)
	return map[string]any{"method": r["method"], "path": r["path"], "query": r["query"], "body": r["body"]}
}

// likely moves what the official SDK requests next to the front.
func (s *Server) likely(e *Entry, list []translated) []translated {
	if s.opts.Want == nil || len(s.log) >= len(s.opts.Want.Requests) {
		return list
	}
	next := tolerant(s.opts.Want.Requests[len(s.log)])
	if differs("", next, tolerant(plain(e))) == "" && !(s.opts.AnyOrder && s.looks()) {
		return nil // the same request
	}
	i := slices.IndexFunc(list, func(t translated) bool { return differs("", next, tolerant(plain(t.entry))) == "" })
	if i > 0 {
		list[0], list[i] = list[i], list[0]
	}
	return list
}
