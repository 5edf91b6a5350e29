package conformance

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// ops are the operations of the step that runs.
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

// setAside keeps a request out of the log, and gives the answer of the rule.
func (s *Server) setAside(e *Entry, rule *Rule) *Exchange {
	e.Unscripted = true
	s.use(rule.Rule)
	return s.ruled(e, rule)
}

// ruled is what a rule answers, or nil when it has nothing to answer with.
func (s *Server) ruled(e *Entry, rule *Rule) *Exchange {
	last := func(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
	switch rule.Answer {
	case "replay":
		if lines, ok := s.outputs[last(strings.TrimSuffix(e.Path, "/logs"))]; ok {
			return &Exchange{NDJSON: lines}
		}
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

// remember keeps what rules answer with: the output of commands that ran, and
// sessions as they were described last.
func (s *Server) remember(ex *Exchange) {
	_, pieces, err := ex.answer()
	if err != nil {
		return
	}
	var body []byte
	for _, p := range pieces {
		body = append(body, p.data...)
	}
	if present(ex.JSON) {
		var answer struct {
			Session map[string]any `json:"session"`
			Routes  []any          `json:"routes"`
		}
		if json.Unmarshal(body, &answer) == nil && answer.Session != nil {
			if id, ok := answer.Session["id"].(string); ok {
				s.sessions[id] = map[string]any{"session": answer.Session, "routes": append([]any{}, answer.Routes...)}
			}
		}
		return
	}
	id, lines := "", []json.RawMessage{}
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
		s.outputs[id] = lines
	}
}

// awaited says whether the official SDK makes this request too, before the next
// moment at which its requests were counted.
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

// question is what a request asks, whatever became of it.
func question(request any) any {
	r, _ := request.(map[string]any)
	return map[string]any{"method": r["method"], "path": r["path"], "query": r["query"], "body": r["body"]}
}

// likely puts first what the official SDK asks next.
func (s *Server) likely(e *Entry, list []translated) []translated {
	if s.opts.Want == nil || len(s.log) >= len(s.opts.Want.Requests) {
		return list
	}
	next := tolerant(s.opts.Want.Requests[len(s.log)])
	if differs("", next, tolerant(plain(e))) == "" {
		return nil // the same words
	}
	i := slices.IndexFunc(list, func(t translated) bool { return differs("", next, tolerant(plain(t.entry))) == "" })
	if i > 0 {
		list[0], list[i] = list[i], list[0]
	}
	return list
}
