package conformance

import (
	"encoding/json"
	"maps"
	"path"
	"strconv"
	"strings"
)

// userStep is one of the programs that this SDK runs in one command.
type userStep struct {
	kind  string
	args  []string
	owner int // index in args of the argument to complete
}

// userList holds the steps of a command, and the names that complete them.
type userList struct {
	steps                []userStep
	user, group, primary string
}

// userSteps parses the command with which this SDK changes users and groups.
func userSteps(e *Entry) (userList, bool) {
	var l userList
	body, ok := e.jsonBody()
	list, _ := body["args"].([]any)
	if !ok || body["command"] != "sh" || len(list) < 7 || !strings.HasSuffix(e.Path, "/cmd") {
		return l, false
	}
	args := make([]string, len(list))
	for i, a := range list {
		args[i], _ = a.(string)
	}
	if !strings.Contains(args[1], "sudo -n --") || !strings.Contains(args[3], "whoami)") {
		return l, false
	}
	l.user, l.group, l.primary = args[4], args[5], args[6]
	for rest := args[7:]; len(rest) > 0; {
		if len(rest) < 3 {
			return l, false
		}
		n, err := strconv.Atoi(rest[1])
		owner, err2 := strconv.Atoi(rest[2])
		if err != nil || err2 != nil || n < 0 || len(rest) < 3+n {
			return l, false
		}
		l.steps = append(l.steps, userStep{rest[0], rest[3 : 3+n], owner - 1})
		rest = rest[3+n:]
	}
	return l, true
}

// steps plays such a command as the official SDK's commands, one for each step
// up to the first that fails. They are logged as if they had been requested,
// and their output is combined in the way of the command's shell script.
func (s *Server) steps(e *Entry, l userList) *Exchange {
	s.use("steps-in-one-command")
	body, _ := e.jsonBody()
	var lines []json.RawMessage
	exitCode := 0.0
	for _, st := range l.steps {
		asked := new(*e)
		sent := maps.Clone(body)
		command, sudo := l.command(st)
		sent["command"], sent["args"], sent["sudo"] = command[0], plain(command[1:]), sudo
		asked.Body = map[string]any{"json": sent}
		s.log = append(s.log, asked)
		ex := s.match(asked)
		switch {
		case ex == nil:
			asked.Unscripted = true
			return nil
		case ex.NDJSON == nil:
			return ex
		}
		var said map[string]string
		said, exitCode = streamsOf(ex.NDJSON)
		for _, stream := range []string{"stdout", "stderr"} {
			raw, _ := marshal(map[string]any{"stream": stream, "data": "\x1e\n" + said[stream]})
			lines = append(lines, raw)
		}
		if exitCode != 0 || !l.learn(st, said["stdout"]) {
			break
		}
	}
	cmd := map[string]any{"id": "cmd_steps", "name": "sh", "args": []any{}, "cwd": "/", "sessionId": path.Base(strings.TrimSuffix(e.Path, "/cmd")), "startedAt": 0}
	started, _ := marshal(map[string]any{"command": cmd})
	cmd["exitCode"] = exitCode
	ended, _ := marshal(map[string]any{"command": cmd})
	return &Exchange{NDJSON: append(append([]json.RawMessage{started}, lines...), ended)}
}

// command returns what the official SDK runs for a step.
func (l *userList) command(st userStep) (command []string, sudo bool) {
	switch st.kind {
	case "whoami":
		return []string{"sh", "-c", "id -un; id -gn"}, false
	case "lookup":
		return append([]string{"id", "-gn"}, st.args...), false
	}
	command = append([]string{}, st.args...)
	switch st.kind {
	case "mine":
		command[st.owner] = l.user + ":" + command[st.owner]
	case "group":
		command[st.owner] += ":" + l.group
	case "primary":
		command[st.owner] += ":" + l.primary
	}
	return command, true
}

// learn records the output of a step that asks for a name, and reports whether
// the steps can continue.
func (l *userList) learn(st userStep, out string) bool {
	first, rest, _ := strings.Cut(strings.TrimSpace(out), "\n")
	second, _, _ := strings.Cut(rest, "\n")
	switch st.kind {
	case "whoami":
		l.user, l.group = first, second
		return first != "" && second != ""
	case "lookup":
		l.primary = first
		return first != ""
	}
	return true
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
