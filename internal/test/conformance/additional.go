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

// memory contains the data from which the server makes responses to additional requests.
type memory struct {
	outputs map[string][]json.RawMessage // the output of waited commands, by their IDs
	logs    map[string][]json.RawMessage // the logs that a client has read, by the commands' IDs
	known   map[string]object            // the last states of objects, by the paths of their lookups
	doubted map[string]*slot             // responses that this SDK may not accept as the API's, by requests
	allowed map[string]bool              // additional requests since the last one in the script
	lookups map[string]*Exchange         // responses about the groups of users, by requests
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

// additional returns the rule that allows a request that only this SDK makes, and the
// response to it. The rule is "" if there is none. A nil response means status 418. The
// request does not count, and the response must not change the result of the call.
func (s *Server) additional(e *Entry, steps []object) (rule string, response *Exchange) {
	asked, query, known := e.Method+" "+e.Path, fmt.Sprint(e.Query), s.known[e.Path]
	waits := strings.Contains(query, "[wait true]")
	if last := s.doubted[requestKey(e)]; last != nil && last.left > 0 && repeatable.MatchString(asked) && !waits {
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
	if words := e.commandLine(); in(steps, "downloadFile") && len(words) > 3 && words[0] == "stat" && slices.Contains(words, fractions) {
		return "download-length-asked", nil
	}
	if lookAtDrive.MatchString(asked) && known != nil && in(steps, "delete") {
		return "delete-settled", respond(known)
	}
	return "", nil
}

// ended returns the ended command whose log a client has read to the end.
func (s *Server) ended(e *Entry, id string) object {
	cmd := object{"id": id, "name": "x", "args": []any{}, "cwd": "/", "sessionId": "", "startedAt": 1, "exitCode": 0}
	resp := []object{s.known[e.Path]}
	for _, sl := range s.script { // a later exchange may contain the command with its end
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
	_, ran := s.outputs[id] // the stream of its output contained the end
	return ran
}

// remember records an exchange in memory: the output of commands, and the last state of
// objects.
func (s *Server) remember(ex *Exchange, e *Entry) {
	delete(s.doubted, requestKey(e))
	if s.doubtful(ex) {
		s.doubted[requestKey(e)] = &slot{*ex, 2}
	}
	if present(ex.JSON) {
		s.recordObject(e, ex.Status, ex.responseBody())
		return
	}
	id, lines, outputs := "", []json.RawMessage{}, s.outputs
	if strings.HasSuffix(e.Path, "/logs") {
		id, outputs = path.Base(path.Dir(e.Path)), s.logs
	}
	for line := range bytes.Lines(ex.responseBody()) {
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

// recordObject records a response with a sandbox, drive or command under the path of its lookup.
func (s *Server) recordObject(e *Entry, status int, body []byte) {
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

// doubtful reports whether a response may be from another server than the API: a timeout, a
// refusal without a code, or a success that the official SDK rejects.
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

// officialMakes reports whether the official SDK makes this request, too, and this SDK has
// not made it yet. It looks at the requests up to the next result with a count of requests.
func (s *Server) officialMakes(e *Entry) bool {
	wanted := s.want.Requests
	for _, result := range s.want.Results[min(s.step, len(s.want.Results)):] {
		if n, ok := requestCount(result); ok {
			wanted = wanted[:min(len(wanted), n)]
			break
		}
	}
	open, asked := 0, requestKey(e)
	for _, w := range wanted {
		if requestKey(w) == asked {
			open++
		}
	}
	for _, l := range s.log {
		if requestKey(l) == asked {
			open--
		}
	}
	return open > 0
}

// requestKey returns a text that is the same for equal requests, whatever their outcomes are.
func requestKey(request any) string {
	r := plain(request).(object)
	return fmt.Sprint(r["method"], r["path"], r["query"], r["body"])
}

// logOmitted adds requests to the log that only the official SDK makes in the running step:
// those of a call that this SDK has refused, and those that renew the caller's token. It
// removes their exchanges from the script, so that later steps don't get them.
func (s *Server) logOmitted(result object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := len(s.log)
	if result["#made"], result["#own"] = made, made-s.added; s.step >= len(s.want.Results) {
		return
	}
	to, _ := requestCount(s.want.Results[s.step])
	unmade := result["#refused"] != nil || strings.HasPrefix(messageOf(result), nothingSaved)
	for i, w := range s.want.Requests[:min(to, len(s.want.Requests))] {
		e := decoded[Entry](marshal(w))
		renews := strings.HasPrefix(e.Path, "/__") && len(s.scenario.callerTokens()) > 0
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

// splitUserScript handles a command that changes users and groups with a script of several programs.
// It returns false for other commands. In place of the command, it logs the requests of the
// official SDK, one for each program up to the first that fails, and it combines their
// outputs like the script. The script's first arguments are the names of the user, its group
// and its primary group, which may be empty. Then it has for each program: its kind, the
// number of its words, the number of the word to complete with a name, and the words.
func (s *Server) splitUserScript(e *Entry) (*Exchange, bool) {
	words := e.commandLine()
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
		asked := e.withCommand(command...)
		if other := withoutRoot(asked, nil); other != nil {
			asked = other[0]
		}
		body, _ := asked.jsonBody()
		body["sudo"] = kind != "whoami" && kind != "lookup"
		ex := s.lookups[requestKey(asked)] // the official SDK looks up a user's group only once
		if ex == nil || s.officialMakes(asked) {
			s.log = append(s.log, asked)
			ex = s.match(asked)
			asked.Unscripted = ex == nil
		}
		if ex == nil || ex.NDJSON == nil {
			return ex, true
		}
		if kind == "lookup" {
			s.lookups[requestKey(asked)] = ex
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
				return endedCommand(e, exitCode, output...), true
			}
		case "lookup":
			if primary = names[0]; primary == "" {
				return endedCommand(e, exitCode, output...), true
			}
		}
	}
	return endedCommand(e, exitCode, output...), true
}

// streamsOf returns the output of a command, by streams, and its exit code.
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

// endedCommand returns the response to a command that has ended.
func endedCommand(e *Entry, exitCode float64, output ...object) *Exchange {
	command := object{"id": "cmd_ruled", "name": "sh", "args": []any{}, "cwd": "/", "sessionId": path.Base(path.Dir(e.Path)), "startedAt": 1}
	ended := maps.Clone(command)
	ended["exitCode"] = exitCode
	ex := &Exchange{}
	for _, record := range append(append([]object{{"command": command}}, output...), object{"command": ended}) {
		ex.NDJSON = append(ex.NDJSON, marshal(record))
	}
	return ex
}
