package conformance

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCommandsOfRules tests commands of this SDK that stand for one of the official SDK, and
// similar commands that do not.
func TestCommandsOfRules(t *testing.T) {
	const list = `","-maxdepth","1","-mindepth","1","-ignore_readdir_race","-printf","%y %m %s %U %G %A@ %T@ %C@ %n %i %D %b %f\\0"]`
	for _, tt := range []struct{ step, ours, js string }{
		{`{"op":"fs.stat"}`, `["stat","-L","-c","` + fractions + `","/a"]`, `["stat","-L","-c","%s|%f|%u|%g|%X|%Y|%Z|%W|%h|%i|%d|%B|%b","/a"]`},
		{`{"op":"fs.stat"}`, `["stat","-c","%s|%f|%u|%g|%.9Y|%.9X|%.9Z|%.9W|%h|%i|%d|%B|%b","/a"]`, ""},
		{`{"op":"fs.readdir","args":{}}`, `["find","/d/` + list, `["ls","-1","/d"]`},
		{`{"op":"fs.readdir","args":{"withFileTypes":true}}`, `["find","/d/` + list, `["find","/d","-maxdepth","1","-mindepth","1","-printf","%f|%y\\n"]`},
		{`{"op":"fs.readdir","args":{}}`, `["find","/d` + list, ""},
		{`{"op":"fs.readdir","args":{}}`, `["find","/d/` + strings.Replace(list, "%A@ %T@", "%T@ %A@", 1), ""},
		{`{"op":"fs.readdir","args":{}}`, `["find","-L","/d/` + list, ""},
		{`{"op":"fs.stat"}`, `["find","/d/` + list, ""},
	} {
		var texts []string
		ours := decoded[[]string]([]byte(tt.ours))
		e := &Entry{Method: "POST", Path: sessionsPath + "sess_1/cmd", Body: object{"json": object{"command": ours[0], "args": plain(ours[1:])}}}
		for _, r := range readings(e, []object{decoded[object]([]byte(tt.step))}) {
			texts = append(texts, string(marshal(r.commandLine())))
		}
		if tt.js == "" {
			assert.Equal(t, []string{tt.ours, tt.ours}, texts, "%s %s", tt.step, tt.ours)
		} else {
			assert.Contains(t, texts, tt.js, "%s %s", tt.step, tt.ours)
		}
	}
}

// TestRequestsOfRules makes requests that rules allow, and similar requests that no rule allows.
func TestRequestsOfRules(t *testing.T) {
	departures := LoadDepartures(dataDir)
	const session = "/api/v2/sandboxes/sessions/sess_1"
	started := func(command string) string { return "POST " + session + "/cmd " + command }
	create := func(path, tags string) string { return "POST /api/" + path + ` {"tags":{` + tags + `}}` }
	mark := `"go-sandbox-creation":"once-` + strings.Repeat("A", 26) + `"`
	for _, tt := range []struct {
		name, step string
		script     string   // entries "METHOD /path": the response is {}, or 404 with the code before the entry
		requests   []string // the rule is for the last one
		rule       string   // the rule that the server uses, or ""
	}{
		{"a mark of a create with a hook", `{"op":"getOrCreate","args":{"onCreate":{}}}`, "POST /api/v3/sandboxes", []string{create("v3/sandboxes", mark)}, "create-marked"},
		{"a mark without a hook", `{"op":"getOrCreate"}`, "POST /api/v3/sandboxes", []string{create("v3/sandboxes", mark)}, ""},
		{"a mark of a fork", `{"op":"getOrCreate","args":{"onCreate":{}}}`, "POST /api/v2/sandboxes/a/fork", []string{create("v2/sandboxes/a/fork", mark)}, ""},
		{"another mark", `{"op":"getOrCreate","args":{"onCreate":{}}}`, "POST /api/v3/sandboxes", []string{create("v3/sandboxes", `"go-sandbox-creation":"x"`)}, ""},
		{"the size of what is downloaded", `{"op":"downloadFile"}`, "", []string{started(`["stat","-L","-c","%s|%f|%u|%g|%.9X|%.9Y|%.9Z|%.9W|%h|%i|%d|%B|%b","a"]`)}, "download-length-asked"},
		{"another command with a download", `{"op":"downloadFile"}`, "", []string{started(`["rm","a"]`)}, ""},
		{"a writer's command with its output", `{"op":"runCommand","args":{"cmd":"a","args":["b"],"detached":true,"stdout":true}}`, "POST " + session + "/cmd", []string{started(`["a","b"]`)}, "started-with-its-output"},
		{"with other arguments", `{"op":"runCommand","args":{"cmd":"a","args":["c"],"detached":true,"stdout":true}}`, "", []string{started(`["a","b"]`)}, ""},
		{"without a writer", `{"op":"runCommand","args":{"cmd":"a","args":["b"],"detached":true}}`, "", []string{started(`["a","b"]`)}, ""},
		{"the end of a command whose log was read", `{"op":"logs"}`, "LOG", []string{"GET " + session + "/cmd/c/logs", "GET " + session + "/cmd/c?wait=true"}, "logs-end-confirmed"},
		{"and that log again", `{"op":"logs"}`, "LOG", []string{"GET " + session + "/cmd/c/logs", "GET " + session + "/cmd/c?wait=true", "GET " + session + "/cmd/c/logs"}, "logs-end-confirmed"},
		{"the log again without asking for the end", `{"op":"logs"}`, "LOG", []string{"GET " + session + "/cmd/c/logs", "GET " + session + "/cmd/c/logs"}, ""},
		{"the end once more", `{"op":"logs"}`, "LOG", []string{"GET " + session + "/cmd/c/logs", "GET " + session + "/cmd/c?wait=true", "GET " + session + "/cmd/c?wait=true"}, ""},
		{"the log a third time", `{"op":"logs"}`, "LOG", []string{"GET " + session + "/cmd/c/logs", "GET " + session + "/cmd/c?wait=true", "GET " + session + "/cmd/c/logs", "GET " + session + "/cmd/c/logs"}, ""},
		{"the end of another command", `{"op":"logs"}`, "LOG", []string{"GET " + session + "/cmd/c/logs", "GET " + session + "/cmd/d?wait=true"}, ""},
		{"what a page answered", `{"op":"list"}`, "404 GET /api/v2/sandboxes", []string{"GET /api/v2/sandboxes", "GET /api/v2/sandboxes", "GET /api/v2/sandboxes"}, "doubtful-answers-asked-again"},
		{"a fourth time", `{"op":"list"}`, "404 GET /api/v2/sandboxes", []string{"GET /api/v2/sandboxes", "GET /api/v2/sandboxes", "GET /api/v2/sandboxes", "GET /api/v2/sandboxes"}, ""},
		{"what the API answered", `{"op":"list"}`, "not_found GET /api/v2/sandboxes", []string{"GET /api/v2/sandboxes", "GET /api/v2/sandboxes"}, ""},
		{"what a page answered to a create", `{"op":"create"}`, "404 POST /api/v3/sandboxes", []string{"POST /api/v3/sandboxes", "POST /api/v3/sandboxes"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			step, script := decoded[Step]([]byte(tt.step)), []Exchange{}
			for on := range strings.SplitSeq(tt.script, ",") {
				code, refused, isRefused := strings.Cut(on, " ")
				switch {
				case on == "":
				case isRefused && !strings.HasPrefix(refused, "/"):
					script = append(script, Exchange{On: refused, Status: 404, JSON: []byte(`{"error":{"code":"` + code + `"}}`)})
				case on == "LOG":
					script = append(script, Exchange{On: "GET " + session + "/cmd/c/logs", NDJSON: []json.RawMessage{[]byte(`{"stream":"stdout","data":"a"}`)}})
				default:
					script = append(script, Exchange{On: on, JSON: []byte("{}")})
				}
			}
			want := Recording{Results: []any{object{"seen": 0.0}}}
			if tt.script == "LOG" { // the official SDK also reads the log
				want.Requests = []any{object{"method": "GET", "path": session + "/cmd/c/logs", "query": []any{}, "body": nil}}
				want.Results = []any{object{"seen": 1.0}}
			}
			s := newServer(script, &Scenario{Steps: []Step{step}}, want)
			for _, request := range tt.requests {
				s.used = nil
				ask(t, s, request)
			}
			if tt.rule == "" { // the server may use only a rule that counts as a difference
				assert.Equal(t, s.used, departures.Rules.notSame(s.used))
			} else {
				assert.Equal(t, []string{tt.rule}, s.used)
			}
		})
	}
}

// ask makes a request, given as method, path and body. The body may be a list of the words of a
// waited command.
func ask(t *testing.T, s *Server, request string) {
	method, rest, _ := strings.Cut(request, " ")
	target, body, _ := strings.Cut(rest, " ")
	var words []string
	if json.Unmarshal([]byte(body), &words) == nil {
		body = string(marshal(object{"command": words[0], "args": words[1:], "wait": true, "logs": true}))
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://vercel.com"+target, strings.NewReader(body))
	require.NoError(t, err)
	r.RequestURI = target
	s.exchange(s.entry(r, []byte(body)))
}

// TestListingIsSorted: a listing of the official SDK may have any order. A listing of this SDK
// must be sorted by name.
func TestListingIsSorted(t *testing.T) {
	for order, same := range map[string]bool{`["a","b"]`: true, `["b","a"]`: false} {
		want, _ := decodeJSON([]byte(`{"value":["b","a"]}`))
		got, _ := decodeJSON([]byte(`{"value":` + order + `}`))
		step := &Step{Op: "fs.readdir"}
		x := &ruleApplier{step: step, played: &Played{scenario: &Scenario{}, Rules: []string{"directory-in-one-listing"}}}
		x.result(want.(object), got.(object))
		assert.Equal(t, same, differs("", want, got) == "", order)
	}
}

// TestRefusals: this SDK may refuse a call only if the API does, in the recording or by its
// limits.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct{ op, args, result, rule string }{
		{"create", `{"ports":[80]}`, `{"value":null}`, asByTheAPI},
		{"create", `{"ports":[3000]}`, `{"value":null}`, ""},
		{"create", `{"ports":[80]}`, `{"error":{"kind":"APIError","status":500}}`, ""},
		{"create", `{"ports":[3000]}`, `{"error":{"kind":"APIError","status":400}}`, asByTheAPI},
		{"create", `{"snapshotExpiration":5}`, `{"value":null}`, asByTheAPI},
		{"create", `{"snapshotExpiration":86400000}`, `{"value":null}`, ""},
		{"runCommand", `{"timeoutMs":9}`, `{"value":null}`, asByTheAPI},
		{"get", `{"name":"a b"}`, `{"value":null}`, ""},
		{"create", `{"name":"a b"}`, `{"value":null}`, asByTheAPI},
	} {
		got := refusal(decoded[object]([]byte(tt.result)), &Step{Op: tt.op, Args: json.RawMessage(tt.args)})
		assert.Equal(t, tt.rule, got, "%s %s %s", tt.op, tt.args, tt.result)
	}
}

// TestSentAgain: if the driver repeats a call, the SDK itself must not repeat it, too.
func TestSentAgain(t *testing.T) {
	start := object{"method": "POST", "path": "/cmd"}
	for sent, same := range map[int]bool{1: true, 2: true, 3: false} {
		g := object{"#sent": 2.0, "seen": float64(sent)}
		p := &Played{Rules: []string{"once-not-repeated"}, Results: []any{g}}
		for range sent {
			p.Requests = append(p.Requests, start)
		}
		w := object{}
		(&ruleApplier{played: p}).sentAgain(w, g, 0)
		assert.Equal(t, same, len(w) == 0, "%d requests for two calls", sent)
	}
}
