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

// memory is what the responses to additional requests are made from.
type memory struct {
	outputs map[string][]json.RawMessage // of commands that were waited for
	logs    map[string][]json.RawMessage // of commands whose log was read
	known   map[string]object            // what a look would show, by its path
	doubted map[string]*slot             // responses that only the official SDK takes for the API's, by the request
	allowed map[string]bool              // the additional requests since the script's last
	lookups map[string]*Exchange         // responses about the groups of users, by the request
}

const (
	sandboxesPath = "/api/v2/sandboxes/"
	sessionsPath  = sandboxesPath + "sessions/"
)

var (
	repeatable   = regexp.MustCompile(`^((GET|PATCH|DELETE) |POST .*/(drives/[^/]+|stop|network-policy|interactive|kill|fs/read|fs/write)$)`)
	apiCode      = regexp.MustCompile(`^[a-z_]+$`)
	lookAt       = regexp.MustCompile(`^GET ` + sandboxesPath + `[^/]+$`)
	lookAtDrive  = regexp.MustCompile(`^GET ` + sandboxesPath + `drives/[^/]+$`)
	commandOrLog = regexp.MustCompile(`^GET ` + sessionsPath + `[^/]+/cmd/([^/]+)(/logs)?$`)
)

// additional returns the rule that allows a request that the official SDK does not
// make, or "", and the response, or nil for a 418. Such a request does not count,
// and must not change the result of the call.
func (s *Server) additional(e *Entry, steps []object) (rule string, response *Exchange) {
	asked, query, known := e.Method+" "+e.Path, fmt.Sprint(e.Query), s.known[e.Path]
	waits := strings.Contains(query, "[wait true]")
	if last := s.doubted[question(e)]; last != nil && last.left > 0 && repeatable.MatchString(asked) && !waits {
		return "doubtful-answers-asked-again", &last.Exchange
	}
	respond := func(body any) *Exchange { return &Exchange{JSON: marshal(body)} }
	if lookAt.MatchString(asked) && strings.Contains(query, "[resume false]") {
		switch {
		case known != nil && in(steps, "getOrCreate"):
			return "mark-looked-at", respond(known)
		case known != nil && in(steps, "delete", "update"):
			return "identity-checked-first", respond(known)
		case in(steps, "getOrCreate"):
			return "looked-at-before-replaced", respond(object{
				"sandbox": object{"name": path.Base(e.Path), "status": "stopped"}, "routes": []any{},
				"session": object{"id": "sess_lost", "status": "stopped"},
			})
		}
	}
	if of := commandOrLog.FindStringSubmatch(asked); of != nil {
		lines, read := s.logs[of[1]]
		switch {
		case waits && read && of[2] == "":
			return "logs-end-confirmed", respond(object{"command": s.ended(e, of[1])})
		case read && of[2] != "" && s.hasEnd(of[1]):
			return "logs-end-confirmed", &Exchange{NDJSON: lines}
		case of[2] != "" && in(steps, "runCommand", "logs", "stdout", "stderr", "output"):
			return "stream-repaired", nil
		}
	}
	if words := e.words(); in(steps, "downloadFile") && len(words) > 3 && words[0] == "stat" && slices.Contains(words, fractions) {
		return "download-length-asked", nil
	}
	if lookAtDrive.MatchString(asked) && known != nil && in(steps, "delete") {
		return "delete-settled", respond(known)
	}
	return "", nil
}

// ended returns a command whose log was read to its end.
func (s *Server) ended(e *Entry, id string) object {
	cmd := object{"id": id, "name": "x", "args": []any{}, "cwd": "/", "sessionId": "", "startedAt": 1, "exitCode": 0}
	resp := []object{s.known[e.Path]}
	for _, sl := range s.script { // a later exchange may show the end
		if sl.left > 0 && sl.matches(e) {
			resp = append(resp, decoded[object](sl.JSON))
			break
		}
	}
	for _, more := range resp {
		command, _ := more["command"].(object)
		maps.DeleteFunc(command, func(_ string, v any) bool { return v == nil })
		maps.Copy(cmd, command)
	}
	return cmd
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

// remember records what additional requests are answered with: the output of
// commands and the last state of what was shown.
func (s *Server) remember(ex *Exchange, e *Entry) {
	delete(s.doubted, question(e))
	if s.doubtful(ex) {
		s.doubted[question(e)] = &slot{*ex, 2}
	}
	if present(ex.JSON) {
		s.show(e, ex.Status, ex.content())
		return
	}
	id, lines, outputs := "", []json.RawMessage{}, s.outputs
	if strings.HasSuffix(e.Path, "/logs") {
		id, outputs = path.Base(path.Dir(e.Path)), s.logs
	}
	for line := range bytes.Lines(ex.content()) {
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
		"command": {"id", sessionsPath + session + "/cmd/"}, "sandbox": {"name", sandboxesPath}, "drive": {"name", sandboxesPath + "drives/"},
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
		if s.step >= len(s.want.Results) {
			return false
		}
		status, _ := errorOf(s.want.Results[s.step])["status"].(float64)
		return status >= 200 && status < 300
	case ex.Status < 400 || ex.Status >= 500 || ex.Status == http.StatusTooManyRequests:
		return false
	}
	var refusal struct{ Error struct{ Code string } }
	_ = json.Unmarshal(ex.JSON, &refusal)
	return ex.Status == http.StatusRequestTimeout || ex.Status == http.StatusTooEarly || !apiCode.MatchString(refusal.Error.Code)
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

// omit logs the requests of the running step that only the official SDK makes, and
// takes their exchanges from the script, so that they don't serve the next steps:
// those of a call that this SDK refused, and those that renew a token of the
// caller.
func (s *Server) omit(result object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := len(s.log)
	if result["#made"], result["#own"] = made, made-s.added; s.step >= len(s.want.Results) {
		return
	}
	to, _ := seenOf(s.want.Results[s.step])
	unmade := result["#refused"] != nil || strings.HasPrefix(messageOf(result), nothingSaved)
	for i, w := range s.want.Requests[:min(to, len(s.want.Requests))] {
		e := decoded[Entry](marshal(w))
		renews := strings.HasPrefix(e.Path, "/__") && len(s.scenario.given()) > 0
		if i < len(s.log) && s.log[i].Method+s.log[i].Path == e.Method+e.Path || !renews && (!unmade || i < made) {
			continue
		}
		if ex := s.match(&e); result["#refused"] == nil {
			s.omitted[ex] = true
		}
		if renews {
			s.use("explicit-credentials-kept")
		}
		s.log = slices.Insert(s.log, min(i, len(s.log)), &e)
		s.added++
	}
	if result["seen"] != nil {
		result["seen"] = len(s.log)
	}
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
		asked := e.saying(command...)
		if other := withoutRoot(asked, nil); other != nil {
			asked = other[0]
		}
		body, _ := asked.jsonBody()
		body["sudo"] = kind != "whoami" && kind != "lookup"
		ex := s.lookups[question(asked)] // the official SDK remembers the group of a user
		if ex == nil || s.awaited(asked) {
			s.log = append(s.log, asked)
			ex = s.match(asked)
			asked.Unscripted = ex == nil
		}
		if ex == nil || ex.NDJSON == nil {
			return ex, true
		}
		if kind == "lookup" {
			s.lookups[question(asked)] = ex
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
