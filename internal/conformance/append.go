package conformance

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"strings"
)

// appended is what a command of this SDK appends to a file.
type appended struct {
	path string
	data []byte
}

// appends parses the command with which this SDK appends to a file.
func appends(e *Entry) (appended, bool) {
	body, ok := e.jsonBody()
	list, _ := body["args"].([]any)
	if !ok || body["command"] != "sh" || len(list) != 7 || !strings.HasSuffix(e.Path, "/cmd") {
		return appended{}, false
	}
	script, _ := list[1].(string)
	name, _ := list[3].(string)
	text, _ := list[6].(string)
	if !strings.Contains(script, "base64 -d") || !strings.Contains(script, "oflag=append") || !path.IsAbs(name) {
		return appended{}, false
	}
	data, err := base64.StdEncoding.DecodeString(text)
	return appended{name, data}, err == nil
}

// append plays a command that appends to a file as the requests that the
// official SDK makes for it: it reads the whole file and writes it again. Both
// requests are logged, with the bodies that the official SDK would send.
func (s *Server) append(e *Entry, a appended) *Exchange {
	base := strings.TrimSuffix(e.Path, "/cmd")
	read := new(*e)
	read.Path = base + "/fs/read"
	read.Body = map[string]any{"json": map[string]any{"path": a.path}}
	write := new(*e)
	write.Path = base + "/fs/write"
	write.Headers = map[string]string{"authorization": e.Headers["authorization"], "content-type": "application/gzip", "x-cwd": "/"}

	if !slices.ContainsFunc(s.script, func(sl *slot) bool { return sl.left > 0 && sl.matches(read) }) {
		return nil
	}
	before := s.match(read)
	content := []byte{}
	if before.Status != http.StatusNotFound {
		_, pieces, err := before.response()
		if err != nil || before.Status >= 300 {
			return nil
		}
		for _, p := range pieces {
			content = append(content, p.data...)
		}
	}
	content = append(content, a.data...)
	write.Body = map[string]any{"tar": []any{map[string]any{
		"name": strings.TrimPrefix(path.Clean(a.path), "/"), "mode": "0644", "size": float64(len(content)),
		"type": "file", "sha256": sha256Hex(content),
	}}}
	s.log = append(s.log, read, write)
	s.use("append-adds-only")
	after := s.match(write)
	if after == nil || after.Status >= 300 {
		return nil
	}
	command := map[string]any{"id": "cmd_append", "name": "sh", "args": []any{}, "cwd": "/", "sessionId": path.Base(base), "startedAt": 0}
	started, _ := marshal(map[string]any{"command": command})
	command["exitCode"] = 0
	ended, _ := marshal(map[string]any{"command": command})
	return &Exchange{NDJSON: []json.RawMessage{started, ended}}
}
