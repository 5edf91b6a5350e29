package conformance

import (
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
	last := func(suffix string) string {
		parts := strings.Split(strings.TrimSuffix(e.Path, suffix), "/")
		return parts[len(parts)-1]
	}
	switch rule.Answer {
	case "replay":
		if lines, ok := s.outputs[last("/logs")]; ok {
			return &Exchange{NDJSON: lines}
		}
	case "stopped":
		if answer, ok := s.sessions[last("")]; ok {
			return &Exchange{JSON: answer}
		}
	}
	return nil
}

// remember keeps what rules answer with: the output of commands that ran, and
// sessions as they were described last.
func (s *Server) remember(ex *Exchange) {
	if ex.NDJSON != nil {
		id, lines := "", []json.RawMessage{}
		for _, raw := range ex.NDJSON {
			var rec struct {
				Stream  string `json:"stream"`
				Command *struct {
					ID string `json:"id"`
				} `json:"command"`
			}
			switch {
			case json.Unmarshal(raw, &rec) != nil:
			case rec.Command != nil:
				id = rec.Command.ID
			case rec.Stream == "stdout" || rec.Stream == "stderr":
				lines = append(lines, raw)
			}
		}
		if id != "" {
			s.outputs[id] = lines
		}
	}
	var answer struct {
		Session map[string]any `json:"session"`
		Routes  []any          `json:"routes"`
	}
	if json.Unmarshal(ex.JSON, &answer) == nil && answer.Session != nil {
		if id, ok := answer.Session["id"].(string); ok {
			answer.Session["status"] = "stopped"
			s.sessions[id], _ = marshal(map[string]any{"session": answer.Session, "routes": append([]any{}, answer.Routes...)})
		}
	}
}

func (s *Server) use(rules ...string) {
	for _, r := range rules {
		if !slices.Contains(s.used, r) {
			s.used = append(s.used, r)
		}
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
func (s *Server) likely(list []translated) []translated {
	if s.opts.Want == nil || len(s.log) >= len(s.opts.Want.Requests) {
		return list
	}
	next := tolerant(s.opts.Want.Requests[len(s.log)])
	i := slices.IndexFunc(list, func(t translated) bool { return differs("", next, tolerant(plain(t.entry))) == "" })
	if i > 0 {
		list[0], list[i] = list[i], list[0]
	}
	return list
}
