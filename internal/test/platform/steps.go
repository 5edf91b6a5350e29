package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
)

// These are the steps of a walk. The walk's sandbox runs until the step snapshots ends its
// session. Later steps create sandboxes of their own.

func (w *walk) created() {
	info := w.sb.Info()
	w.row("status after create", observed, "running", info.Status)
	w.about = "19 regions"
	w.row("region", published, "iad1", info.Region)
	w.row("memory of one CPU", observed, "2048", info.MemoryMB)
	w.row("get of a missing sandbox", observed, "404 not_found", w.ask("GET", w.sandboxPath(w.prefix+"none", ""), nil))
	got := w.ask("GET", w.sandboxPath(w.sb.Name(), ""), nil)
	w.row("resumed in the response to get", observed, "false", got.at("resumed"))
	w.row("totals in the response to get", observed, "0", got.at("sandbox", "totalDurationMs"))
	w.about = "`PATCH` returns totals"
	w.row("totals in the response to an update", assumed, "0", w.ask("PATCH", w.sandboxPath(w.sb.Name(), ""), body{"tags": tags}).at("sandbox", "totalDurationMs"))
	w.about = "`GET …/features`"
	w.row("features", assumed, `{"drives":true}`, w.ask("GET", "/v2/sandboxes/features?projectId="+url.QueryEscape(w.Credentials.ProjectID), nil).at("features"))
	w.about = "415 for a"
	w.row("a POST with JSON and the content type text/plain", assumed, "415 unsupported_media_type",
		w.ask("POST", w.sessionPath("/fs/mkdir"), []byte(`{"path":"untyped"}`), "Content-Type", "text/plain"))
	w.about = "400 for unknown properties"
	w.row("unknown property", observed, "400 bad_request", w.ask("POST", w.sessionPath("/fs/mkdir"), body{"path": "x", "odd": 1}))
	w.about = "`x-ratelimit-*`"
	w.row("the limit of requests", observed, "1000", got.header.Get("X-Ratelimit-Limit"))
	w.row("the header with the remaining requests", observed, "present", presence(got.header.Get("X-Ratelimit-Remaining")))
	w.about = "a token's user, team and projects"
	w.row("the token's user", published, "200", w.ask("GET", "/v2/user", nil).status)
	w.row("the token's team", published, "200", w.ask("GET", "/v2/teams/"+url.PathEscape(w.Credentials.TeamID), nil).status)
	w.row("the token's project", published, "200", w.ask("GET", "/v2/projects/"+url.PathEscape(w.Credentials.ProjectID), nil).status)
	w.about = "another team than the token's"
	w.row("the sandbox with another team", assumed, "403 forbidden", w.ask("GET", w.sandboxPath(w.sb.Name(), "")+"&teamId=team_ofNobody", nil))
	w.about = "listings: `namePrefix`"
	list := "/v2/sandboxes?project=" + url.QueryEscape(w.Credentials.ProjectID)
	w.row("a listing with a name prefix and another order", observed, "400 bad_request", w.ask("GET", list+"&namePrefix=a", nil))
	w.row("a listing with a status, ordered by name", published, "400 bad_request", w.ask("GET", list+"&status=running&sortBy=name", nil))
	w.row("a listing with a status", published, "200", w.ask("GET", list+"&status=running", nil))
	w.about = "16b: extends"
	w.row("extend the timeout by less than a second", published, "400", w.ask("POST", w.sessionPath("/extend-timeout"), body{"duration": 500}).status)
	w.about = ""
	w.row("extend the timeout", observed, "<nil>", w.sb.ExtendTimeout(w.ctx, time.Minute))
}

// presence returns "present", or "missing" for an empty text.
func presence(text string) string {
	if text == "" {
		return "missing"
	}
	return "present"
}

// names asks what happens if two requests create a sandbox of the same name at the same time.
func (w *walk) names() {
	params := body{
		"projectId": w.Credentials.ProjectID, "name": w.prefix + "twice", "tags": tags, "timeout": 60_000, "resources": body{"vcpus": 1},
	}
	type made struct {
		reply
		err error
	}
	first, second := make(chan made, 1), make(chan made, 1)
	for _, ch := range []chan made{first, second} {
		go func() {
			r, err := w.tryAsk("POST", "/v4/sandboxes", params)
			ch <- made{r, err}
		}()
	}
	var one, other made
	select {
	case one = <-first:
		first = second
	case one = <-second:
	}
	w.must(one.err)
	// If the service has refused this request, it still carries out the other one.
	there := w.ask("GET", w.sandboxPath(w.prefix+"twice", ""), nil)
	other = <-first
	w.must(other.err)
	w.about = "a name that is being created"
	w.row("two creates with one name at the same time", observed, "200 and 400 bad_request", strings.Join(slices.Sorted(slices.Values([]string{one.String(), other.String()})), " and "))
	w.row("get after the first response to these creates", assumed, "200", there)
	kept := one
	if one.status >= 400 {
		kept = other
	}
	w.about = "`/v4` create"
	w.row("default retention of snapshots with version 4", published, `604800000 {"count":1,"deleteEvicted":true}`,
		kept.at("sandbox", "snapshotExpiration")+" "+kept.at("sandbox", "keepLastSnapshots"))
	w.about = "`/v3` and `/v4` create take a `runtime`"
	params["runtime"] = "node24"
	for _, version := range []string{"v3", "v4"} {
		r := w.ask("POST", "/"+version+"/sandboxes", params)
		w.row(version+" with a runtime and a taken name", assumed, "400 bad_request, name taken: true",
			fmt.Sprintf("%s, name taken: %t", r, strings.Contains(r.at("error", "message"), "already exists")))
	}
}

func (w *walk) commands() {
	w.row("both streams and an exit code", observed, "out err, exit code 3", w.sh("echo out; sleep 0.2; echo err >&2; exit 3", nil))
	w.row("directory and environment", observed, "tmp bar, exit code 0", w.sh(`basename "$(pwd)"; echo $FOO`, &sandbox.CommandOptions{Cwd: "/tmp", Env: sandbox.Env{"FOO": "bar"}}))
	if w.Users {
		w.row("user, home, directory", observed, "ubuntu /vercel /vercel, exit code 0", w.sh("id -un; echo $HOME; pwd", nil))
		w.row("root", observed, "0, exit code 0", w.sh("id -u", &sandbox.CommandOptions{Sudo: true}))
		w.about = "the sandbox's user may `sudo`"
		w.row("root by sudo in a command", published, "0, exit code 0", w.sh("sudo -n -- id -u", nil))
	}
	w.about = ""
	w.row("a missing program", observed, "400 executable_not_found",
		w.ask("POST", w.sessionPath("/cmd"), body{"command": "definitely-not-a-binary", "args": []string{}, "env": body{}, "sudo": false, "wait": true, "logs": true}))

	watched, leave := context.WithCancel(w.ctx)
	_, err := w.sb.StartCommand(watched, "sh", []string{"-c", "until [ -e left ]; do sleep 0.1; done; exit 5"}, &sandbox.StartOptions{ID: "live-left", Stdout: io.Discard})
	w.must(err)
	leave()
	w.sh("touch left", nil)
	w.about = "a command outlives its waited stream"
	w.row("a command continues after the client closes its stream", observed, "5", w.waited(w.sessionPath("/cmd/live-left")))

	w.about = ""
	trap := w.start(`trap 'exit 42' TERM; touch trap-set; while :; do sleep 0.1; done`, nil)
	w.sh("until [ -e trap-set ]; do sleep 0.1; done", nil)
	w.row("signal 15 returns at once", observed, "200, exit code none", w.ask("POST", trap+"/kill", body{"signal": 15}).String()+", exit code "+w.exitCode(trap))
	w.row("the trap's exit code", observed, "42", w.waited(trap))
	sleeper := w.start("exec sleep 600", nil)
	w.row("signal 9", observed, "200", w.ask("POST", sleeper+"/kill", body{"signal": 9}))
	w.row("the exit code after signal 9", observed, "137", w.waited(sleeper))
	w.row("the newest command is the first of the list", observed, "true", w.sessionPath("/cmd/"+w.first(w.ask("GET", w.sessionPath("/cmd"), nil))) == sleeper)
}

// processes asks about properties of a command's process.
func (w *walk) processes() {
	w.about = "commands run with umask 022"
	w.row("umask", assumed, "0022, exit code 0", w.sh("umask", nil))
	if w.Apart {
		w.row("mode of /tmp", assumed, "1777, exit code 0", w.sh("stat -c %a /tmp", nil))
	}
	w.about = "a command's process has the variables"
	env := &sandbox.CommandOptions{Env: sandbox.Env{"LIVE_WALK": "here"}}
	w.row("environment of a process", assumed, "LIVE_WALK=here, exit code 0", w.sh(`tr '\0' '\n' < /proc/$$/environ | grep ^LIVE_WALK=`, env))
	w.row("arguments of a process", assumed, "sh -c, exit code 0", w.sh(`tr '\0' '\n' < /proc/$$/cmdline | head -n 2`, env))
	w.row("the same parent process for all commands", assumed, w.sh("echo $PPID", nil), w.sh("echo $PPID", nil))
	if w.Users {
		w.about = "… a user may read the variables"
		sleeper := w.start("echo $$; exec sleep 300", body{"env": body{"LIVE_WALK": "there"}, "sudo": true})
		script := fmt.Sprintf(`sudo -n sh -c 'tr "\0" "\n" < /proc/%s/environ' | grep ^LIVE_WALK=`, w.firstLine(sleeper))
		w.row("environment of root's process, for root", assumed, "LIVE_WALK=there, exit code 0", w.sh(script, nil))
		w.ask("POST", sleeper+"/kill", body{"signal": 9})
	}
	w.about = "… all numbers of signal(7)"
	for _, signal := range []int{1, 10, 12} {
		trap := w.start(fmt.Sprintf(`trap 'exit 42' %d; touch set-%[1]d; while :; do sleep 0.1; done`, signal), nil)
		w.sh(fmt.Sprintf("until [ -e set-%d ]; do sleep 0.1; done", signal), nil)
		w.ask("POST", trap+"/kill", body{"signal": signal})
		w.row(fmt.Sprint("signal ", signal), assumed, "42", w.waited(trap))
	}
	w.about = "what a command left running"
	w.row("a background process after the end of its command", observed, "there, exit code 0",
		w.sh(fmt.Sprintf("kill -0 %s && echo there", pidOf(w.sh("sleep 300 >/dev/null 2>&1 & echo $!", nil))), nil))
}

// children asks when the output of a command ends if the command's children keep it open.
func (w *walk) children() {
	w.about = "a command ends with its process"
	begun := time.Now()
	came := w.sh("(sleep 30; echo late) & echo parent", nil)
	if time.Since(begun) > 20*time.Second {
		came += ", when its child ended"
	}
	w.row("the output of a command whose child keeps it open", assumed, "parent, exit code 0", came)
}

// pidOf returns the process ID that a script has printed.
func pidOf(output string) string {
	pid, _, _ := strings.Cut(output, ",")
	return pid
}

// server is a program that responds with a few headers of the request, closes each
// connection, or listens on the sandbox's loopback, depending on its arguments. It creates
// a file once it listens.
const server = `
import http.server, socket, sys
kind, port = sys.argv[1], int(sys.argv[2])
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        h = self.headers
        text = '%s %s %s\n%s\n%s' % (h.get('X-Forwarded-Host'), h.get('X-Forwarded-Proto'), 'for' if h.get('X-Forwarded-For') else 'none', h.get('X-Original-For'), self.path)
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    do_POST = do_GET
    def log_message(self, *args): pass
if kind == 'echo':
    s = http.server.HTTPServer(('0.0.0.0', port), Echo)
elif kind == 'own':
    s = http.server.HTTPServer(('127.0.0.1', port), Echo)
else:
    s = socket.create_server(('0.0.0.0', port))
open('listening-%d' % port, 'w').close()
if kind == 'close':
    while True:
        c, _ = s.accept()
        c.recv(65536)
        c.close()
s.serve_forever()
`

// The path and the headers of a request to a port of the sandbox.
const (
	oddPath     = "/a%2Fb;c/~%7e/%C3%A9/?q=+%20&&=%00"
	originalFor = "192.0.2.1"
)

// routes asks about the ports of the sandbox.
func (w *walk) routes() {
	if !w.Apart {
		w.skip("the sandbox has no ports of its own")
	}
	w.about = "a route returns 502"
	r := w.visit(3000, nil)
	w.row("a port where nobody listens", observed, "502", r.status)
	w.row("x-vercel-error of the response about such a port", assumed, "SANDBOX_NOT_LISTENING", r.header.Get("X-Vercel-Error"))
	if !strings.HasSuffix(w.sh("command -v python3", nil), "exit code 0") {
		w.skip("the sandbox has no Python for the server")
	}
	w.must(w.sb.WriteFiles(w.ctx, []sandbox.File{{Path: "server.py", Content: []byte(server)}}, nil))
	for port, kind := range map[int]string{3000: "echo", 3001: "close", 3002: "own"} {
		w.start(fmt.Sprintf("exec python3 server.py %s %d", kind, port), nil)
		w.sh(fmt.Sprintf("until [ -e listening-%d ]; do sleep 0.1; done", port), nil)
	}
	route, err := w.sb.URL(3000)
	w.must(err)
	at, err := url.Parse(route)
	w.must(err)
	forwarded, rest, _ := strings.Cut(w.visit(3000, nil).text, "\n")
	visitor, path, _ := strings.Cut(rest, "\n")
	w.about = "the edge sets `X-Forwarded-Host`"
	w.row("forwarded headers with the host, the scheme and the client", assumed, at.Host+" "+at.Scheme+" for", forwarded)
	w.about = "… and passes a response on"
	w.row("a response before the end of the request", assumed, "before", w.earlyResponse(3000))
	w.about = "… and leaves `X-Original-For`"
	w.row("a header of another proxy", assumed, originalFor, visitor)
	w.about = "… passes on each byte of a path"
	w.row("an odd address", assumed, oddPath, path)
	w.about = "a route whose server closes the connection"
	r = w.visit(3001, nil)
	w.row("a server that closes the connection", assumed, "502 ROUTER_EXTERNAL_TARGET_ERROR", fmt.Sprint(r.status, " ", r.header.Get("X-Vercel-Error")))
	if w.Policies {
		w.about = "a server on 127.0.0.1 alone"
		w.row("a server on 127.0.0.1", assumed, "502", w.visit(3002, nil).status)
	}
}

// first returns the ID of the first command in a list.
func (w *walk) first(r reply) string {
	list, _ := r.body["commands"].([]any)
	if len(list) == 0 {
		w.must(errors.New("the list has no command"))
	}
	command, _ := list[0].(map[string]any)
	return fmt.Sprint(command["id"])
}

// endedCommands asks about commands that have ended.
func (w *walk) endedCommands() {
	over := w.start("echo done; exit 7", nil)
	logs := w.ask("GET", over+"/logs", nil)
	w.row("form of a log record", observed, `{"data":"done\n","stream":"stdout"}`, strings.TrimSpace(logs.text))
	w.row("exit code of an ended command before the first wait", observed, "none", w.exitCode(over))
	w.row("exit code in the response to a wait", observed, "7", w.waited(over))
	w.row("exit code after the first wait", observed, "7", w.exitCode(over))
	w.row("kill of an ended command", observed, "404 command_not_found_or_exited", w.ask("POST", over+"/kill", body{"signal": 15}))
	w.row("kill of an unknown command", observed, "404 command_not_found_or_exited", w.ask("POST", w.sessionPath("/cmd/cmd_none/kill"), body{"signal": 15}))
	w.row("input of an ended command", observed, "404 command_not_found_or_exited", w.ask("POST", over+"/stdin", body{"data": ""}))
	w.ask("POST", w.sessionPath("/cmd")+"?cmdId=live-waited", body{"command": "true", "args": []string{}, "env": body{}, "sudo": false, "wait": true, "logs": true})
	w.about = "only `wait=true` or a waited stream's end"
	w.row("exit code after the end of a waited stream", assumed, "0", w.exitCode(w.sessionPath("/cmd/live-waited")))

	w.about = ""
	parent := w.start("sleep 300 & echo $!; wait", body{"timeout": 1000})
	child := w.firstLine(parent)
	w.row("exit code of a timeout", published, "137", w.waited(parent))
	w.about = "a timeout kills the process group"
	w.row("a timeout also ends children", assumed, "gone, exit code 0", w.sh(fmt.Sprintf(`for i in $(seq 50); do kill -0 %s 2>/dev/null || { echo gone; exit; }; sleep 0.1; done; echo there`, child), nil))
}

func (w *walk) ids() {
	with := func(id string) reply {
		return w.ask("POST", w.sessionPath("/cmd")+"?cmdId="+id, body{"command": "true", "args": []string{}, "env": body{}, "sudo": false})
	}
	longest := strings.Repeat("i", 64)
	w.row("the ID of a command with a chosen ID", observed, "live-chosen", with("live-chosen").at("command", "id"))
	w.about = "… a taken one is 409"
	w.row("a taken ID", assumed, "409 conflict", with("live-chosen"))
	w.waited(w.sessionPath("/cmd/live-chosen"))
	w.row("the ID of an ended command", assumed, "409 conflict", with("live-chosen"))
	w.about = "… an ID has"
	long := with(longest)
	w.row("an ID of 64 characters", assumed, "200, as chosen: true", fmt.Sprintf("%s, as chosen: %t", long, long.at("command", "id") == longest))
	w.row("an ID of 65 characters", assumed, "400 bad_request", with(longest+"i"))
	w.row("an ID with a dot", assumed, "400 bad_request", with("a.b"))
}

func (w *walk) stdin() {
	reader := w.start("cat", body{"attachStdin": true})
	write := func(params body) reply { return w.ask("POST", reader+"/stdin", params) }
	w.about = "`POST …/cmd/{id}/stdin`"
	w.row("bytesWritten of a write to the input", published, "3", write(body{"data": "YWJj", "offset": 0}).at("bytesWritten"))
	w.row("bytesWritten of the same write again", published, "3", write(body{"data": "YWJj", "offset": 0}).at("bytesWritten"))
	gap := write(body{"data": "YWJj", "offset": 9})
	w.about = "… `conflict` (409)"
	w.row("a write beyond the end of the input", assumed, "409 conflict", gap)
	w.row("bytesWritten of this refusal", assumed, "3", gap.at("error", "bytesWritten"))
	w.row("a write of more than 1 MiB", assumed, "413 payload_too_large", write(body{"data": strings.Repeat("YWJj", 300_000), "offset": 3}))
	w.about = "`POST …/cmd/{id}/stdin`"
	w.row("the end of the input", published, "200", write(body{"offset": 3, "close": true}))
	w.row("exit code of a command that has read its input", published, "0", w.waited(reader))

	// Start a command that continues after its input has ended.
	reader = w.start("cat; sleep 300", body{"attachStdin": true})
	w.row("data together with the end of the input", published, "200", write(body{"data": "YWJj", "offset": 0, "close": true}))
	w.about = "… `conflict` (409)"
	w.row("the same data and end again", assumed, "200", write(body{"data": "YWJj", "offset": 0, "close": true}))
	w.about = "`POST …/cmd/{id}/stdin`"
	w.row("data after the end of the input", published, "400 command_stdin_unavailable", write(body{"data": "YWJj", "offset": 3}))
	w.ask("POST", reader+"/kill", body{"signal": 9})
	deaf := w.start("exec sleep 300", nil)
	w.row("input of a command that was started without one", published, "400 command_stdin_unavailable", w.ask("POST", deaf+"/stdin", body{"data": "YWJj"}))
	w.ask("POST", deaf+"/kill", body{"signal": 9})
}

// archive returns a compressed tar archive with one file.
func (w *walk) archive(name, content string) []byte {
	var data bytes.Buffer
	zip := gzip.NewWriter(&data)
	pack := tar.NewWriter(zip)
	w.must(pack.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}))
	_, err := io.WriteString(pack, content)
	w.must(err)
	w.must(errors.Join(pack.Close(), zip.Close()))
	return data.Bytes()
}

func (w *walk) files() {
	write := func(cwd string, data []byte) reply {
		return w.ask("POST", w.sessionPath("/fs/write"), data, "Content-Type", "application/gzip", "X-Cwd", cwd)
	}
	read := func(path string) reply { return w.ask("POST", w.sessionPath("/fs/read"), body{"path": path}) }
	cwd := w.sb.CurrentSession().Info().Cwd
	w.row("an upload creates directories", observed, "200", write(cwd, w.archive("probe/run.sh", "#!/bin/sh\necho ran\n")))
	w.row("an upload keeps modes", observed, "ran 755, exit code 0", w.sh("probe/run.sh; stat -c %a probe/run.sh", nil))
	got := read("probe/run.sh")
	w.row("the content of a file", observed, `"#!/bin/sh\necho ran\n"`, fmt.Sprintf("%q", got.text))
	w.row("the name in the response with a file", observed, `attachment; filename="run.sh"`, got.header.Get("Content-Disposition"))
	w.row("the type in the response with a file", observed, "application/octet-stream", got.header.Get("Content-Type"))
	w.row("the length in the response with a file", observed, "", got.header.Get("Content-Length"))
	w.must(w.sb.WriteFiles(w.ctx, []sandbox.File{{Path: `probe/a"é`, Content: []byte("x")}}, nil))
	w.about = "file reads come in chunks"
	w.row("a name that a quoted string can't hold", assumed, `attachment; filename="a\"?"; filename*=UTF-8''a%22%C3%A9`, read(`probe/a"é`).header.Get("Content-Disposition"))
	w.about = ""
	w.row("a missing file", observed, "404 not_found", read("probe/none"))
	w.row("mkdir", observed, "200", w.ask("POST", w.sessionPath("/fs/mkdir"), body{"path": "made"}))
	w.row("mkdir of an existing directory", observed, "400 file_error", w.ask("POST", w.sessionPath("/fs/mkdir"), body{"path": "made"}))
	w.row("mkdir without a parent", observed, "400 file_error", w.ask("POST", w.sessionPath("/fs/mkdir"), body{"path": "no/such/parent"}))
	w.about = "an upload into a missing directory"
	w.row("an upload into a missing directory", assumed, "400 file_error", write("/no/such/directory", w.archive("file", "x")))
}

func (w *walk) policy() {
	set := func(policy body) reply { return w.ask("POST", w.sessionPath("/network-policy"), policy) }
	for _, address := range []string{"2001:db8::/32", "10.0.0.1"} {
		r := set(body{"mode": "custom", "allowedCIDRs": []string{address}})
		known := assumed
		w.about = "… addresses without a length"
		if strings.Contains(address, ":") {
			known, w.about = observed, "12: sends IPv6 ranges"
		}
		w.row("the range "+address, known, "400 bad_request, Invalid CIDR: true", fmt.Sprintf("%s, Invalid CIDR: %t", r, strings.Contains(r.at("error", "message"), "Invalid CIDR")))
	}
	w.about = "invalid names in policies"
	w.row("the domain a..b", assumed, "400", set(body{"allow": []string{"a..b"}}).status)
	// Ask whether the service accepts rules in the field "allow", and how it refuses an
	// invalid one.
	rule := func(match body) body {
		return body{"allow": body{"a.example": []body{{"match": match, "transform": []body{{"headers": body{"x-a": "b"}}}}}}}
	}
	w.about = ""
	w.row("a rule with a match", published, "200", set(rule(body{"path": body{"exact": "/x"}, "method": []string{"GET"}})))
	w.row("a rule with a match of an unknown kind", assumed, "400 bad_request", set(rule(body{"path": body{"odd": "/x"}})))
	r := set(body{"allow": body{"a.example": []body{{"response": body{"statusCode": 403}}}}})
	w.about = "response rules are checked"
	w.row("a response rule", published, "200", r)
	w.row("the response rule in the policy", assumed, `[{"domain":"a.example","response":{"statusCode":403}}]`, r.at("session", "networkPolicy", "responseRules"))
	w.about = ""
	w.row("the sandbox has the policy of its session", observed, r.at("session", "networkPolicy"), w.ask("GET", w.sandboxPath(w.sb.Name(), ""), nil).at("sandbox", "networkPolicy"))
	w.row("allow all again", published, "200", set(body{"mode": "allow-all"}))
}

func (w *walk) settings() {
	// The JSON of the environment, {"A":"…"}, has 8 bytes in addition to the value.
	update := func(size int) reply {
		return w.ask("PATCH", w.sandboxPath(w.sb.Name(), ""), body{"env": body{"A": strings.Repeat("x", size-8)}})
	}
	w.about = "`env` of create and fork"
	w.row("update with 4096 bytes of env as JSON", assumed, "200", update(4096))
	w.row("update with 4097 bytes of env as JSON", assumed, "400 bad_request", update(4097))
	w.about = "24: sends `env`"
	w.row("env is cleared", published, "200", w.ask("PATCH", w.sandboxPath(w.sb.Name(), ""), body{"env": body{}}))
	patch := func(params body) reply { return w.ask("PATCH", w.sandboxPath(w.sb.Name(), ""), params) }
	w.about = "`keepLastSnapshots` comes with"
	w.row("defaults of a retention policy", published, `{"count":3,"deleteEvicted":true}`,
		patch(body{"keepLastSnapshots": body{"count": 3}}).at("sandbox", "keepLastSnapshots"))
	w.about = "session timeout 1 s"
	w.row("a timeout of less than a second", published, "400", patch(body{"timeout": 999}).status)
	w.row("a timeout of more than a day", published, "400", patch(body{"timeout": 86_400_001}).status)
	for _, ms := range []int{99, 18_000_001} {
		w.row(fmt.Sprintf("a command's timeout of %d ms", ms), published, "400",
			w.ask("POST", w.sessionPath("/cmd"), body{"command": "true", "args": []string{}, "env": body{}, "sudo": false, "timeout": ms}).status)
	}
	w.about = "ports 1024"
	w.row("a port below 1024", observed, "400 bad_request", w.ask("PATCH", w.sandboxPath(w.sb.Name(), ""), body{"ports": []int{80}}))
}

func (w *walk) snapshots() {
	w.must(w.sb.WriteFiles(w.ctx, []sandbox.File{{Path: "kept", Content: []byte("kept")}}, nil))
	taken := w.ask("POST", w.sessionPath("/snapshot"), body{"expiration": (24 * time.Hour).Milliseconds()})
	w.row("snapshot", observed, "201 created snapshotting", fmt.Sprint(taken, " ", taken.at("snapshot", "status"), " ", taken.at("session", "status")))
	_, err := w.sb.Stop(w.ctx, nil) // waits until the session has ended
	w.row("stop of the session that a snapshot has ended", observed, "<nil>", err)
	w.row("a command in an ended session", observed, "410 sandbox_stopped",
		w.ask("POST", w.sessionPath("/cmd"), body{"command": "true", "args": []string{}, "env": body{}, "sudo": false}))
	if w.Apart {
		r := w.visit(3000, nil)
		w.about = "a route returns 502"
		w.row("a port of a stopped sandbox", assumed, "410 SANDBOX_STOPPED", fmt.Sprint(r.status, " ", r.header.Get("X-Vercel-Error")))
	}
	id := taken.at("snapshot", "id")
	w.about = "a sandbox starts in its snapshot's region"
	w.row("create from a snapshot in another region", assumed, "422 snapshot_region_mismatch", w.createFrom(id, body{"region": "sfo1"}))
	w.about = "a runtime with a snapshot source"
	w.row("create from a snapshot and an image", assumed, "400 bad_request", w.createFrom(id, body{"image": "vercel/sandbox/universal"}))
	forked := w.sandboxFromSnapshot(id)

	gone := w.ask("DELETE", "/v2/sandboxes/snapshots/"+id, nil)
	w.about = ""
	w.row("delete of a snapshot", observed, "200 deleted", fmt.Sprint(gone, " ", gone.at("snapshot", "status")))
	w.row("delete of a deleted snapshot", observed, "400", w.ask("DELETE", "/v2/sandboxes/snapshots/"+id, nil).status)
	left := w.ask("GET", "/v2/sandboxes/snapshots/"+id, nil)
	w.row("status and size of a deleted snapshot", observed, "deleted 0", left.at("snapshot", "status")+" "+left.at("snapshot", "sizeBytes"))
	w.about = "create from a deleted snapshot"
	w.row("create from a deleted snapshot", published, "410 snapshot_not_found", w.createFrom(id, nil))
	w.row("create from an unknown snapshot", published, "404", w.createFrom("snap_none", nil).status)

	// Save the fork's own files, and delete them.
	_, err = forked.Stop(w.ctx, nil)
	w.must(err)
	own := forked.Info().CurrentSnapshotID
	w.about = ""
	w.row("delete of the snapshot that contains a sandbox's files", observed, "200", w.ask("DELETE", "/v2/sandboxes/snapshots/"+own, nil))
	w.row("resume of a sandbox whose snapshot is deleted", observed, "410 snapshot_not_found", w.ask("GET", w.sandboxPath(forked.Name(), "")+"&resume=true", nil))
	_, err = w.client.Get(w.ctx, forked.Name(), nil)
	w.row("the client's error about the deleted snapshot", observed, "true", errors.Is(err, sandbox.ErrSnapshotNotFound))
}

// createFrom requests a sandbox from a snapshot, which the service should refuse.
func (w *walk) createFrom(snapshot string, more body) reply {
	params := body{
		"projectId": w.Credentials.ProjectID, "name": w.prefix + "refused", "tags": tags, "timeout": 60_000, "resources": body{"vcpus": 1},
		"source": body{"type": "snapshot", "snapshotId": snapshot},
	}
	maps.Copy(params, more)
	return w.ask("POST", "/v3/sandboxes", params)
}

// sandboxFromSnapshot asks about a sandbox from a snapshot and about the fork of this sandbox. It returns
// the fork.
func (w *walk) sandboxFromSnapshot(id string) *sandbox.Sandbox {
	second, err := w.client.Create(w.ctx, &sandbox.CreateOptions{
		Name: w.prefix + "second", VCPUs: 1, Timeout: time.Minute, Tags: tags, Source: sandbox.SnapshotSource{SnapshotID: id}, SnapshotExpiration: 24 * time.Hour,
	})
	w.must(err)
	w.about = "a sandbox starts in its snapshot's region"
	w.row("region of a sandbox from a snapshot", assumed, w.sb.Info().Region, second.Info().Region)
	data, err := second.FS().ReadFile(w.ctx, "kept")
	w.must(err)
	w.about = ""
	w.row("a file of a sandbox from a snapshot", observed, "kept", string(data))
	w.must(second.FS().WriteFile(w.ctx, "kept", []byte("more"), 0o644))
	_, err = second.Stop(w.ctx, nil)
	w.must(err)
	fork := w.ask("POST", w.sandboxPath(second.Name(), "/fork"), body{"name": w.prefix + "fork", "tags": tags})
	w.row("fork", published, "200", fork)
	w.about = "… a fork is not a creation"
	w.row("the limit of forks", assumed, "1000", fork.header.Get("X-Ratelimit-Limit"))
	w.about = "a fork's session has that snapshot"
	w.row("the source snapshot of a fork's session", assumed, second.Info().CurrentSnapshotID, fork.at("session", "sourceSnapshotId"))
	w.about = "`PATCH` returns totals"
	w.row("totals in the response to a fork", assumed, "", fork.at("sandbox", "totalDurationMs"))
	forked, err := w.client.Get(w.ctx, w.prefix+"fork", nil)
	w.must(err)
	data, err = forked.FS().ReadFile(w.ctx, "kept")
	w.must(err)
	w.about = ""
	w.row("a file of the fork that the source's stop has saved", observed, "more", string(data))
	// A resume waits until the previous session has ended, and then contains its files.
	w.must(second.FS().WriteFile(w.ctx, "kept", []byte("last"), 0o644))
	_, err = second.Stop(w.ctx, &sandbox.StopOptions{NoWait: true})
	w.must(err)
	back := w.ask("GET", w.sandboxPath(second.Name(), "")+"&resume=true", nil)
	w.about = "422: resumes a stopping session"
	w.row("resume while the previous session stops", published, "200 running true", fmt.Sprint(back, " ", back.at("session", "status"), " ", back.at("resumed")))
	w.about = "3: starts by `resume=true`"
	w.row("resumed in the response to this resume", published, "true", back.at("resumed"))
	data, err = second.FS().ReadFile(w.ctx, "kept")
	w.must(err)
	w.about = "422: resumes a stopping session"
	w.row("a file of the previous session after this resume", published, "last", string(data))
	return forked
}

func (w *walk) lostFiles() {
	sb, err := w.client.Create(w.ctx, &sandbox.CreateOptions{Name: w.prefix + "lost", VCPUs: 1, Timeout: time.Minute, Tags: tags, Ephemeral: true})
	w.must(err)
	_, err = sb.Stop(w.ctx, nil)
	w.must(err)
	resume := func() reply { return w.ask("GET", w.sandboxPath(sb.Name(), "")+"&resume=true", nil) }
	w.row("get without resume", observed, "200 stopped", func() string {
		r := w.ask("GET", w.sandboxPath(sb.Name(), ""), nil)
		return fmt.Sprint(r, " ", r.at("sandbox", "status"))
	}())
	w.row("resume of an ephemeral sandbox", observed, "400 snapshot_not_found", resume())
	w.must(sb.Update(w.ctx, &sandbox.UpdateOptions{Persistent: new(true)}))
	w.about = "… 400 `bad_request` if it never had"
	w.row("resume of a sandbox without a snapshot", assumed, "400 bad_request", resume())
	w.about = ""
	w.row("delete of a sandbox", observed, "<nil>", sb.Delete(w.ctx, nil))
	w.row("get of a deleted sandbox", observed, "404 not_found", w.ask("GET", w.sandboxPath(sb.Name(), ""), nil))
}

func (w *walk) drives() {
	drive, err := w.client.GetOrCreateDrive(w.ctx, w.prefix+"drive", nil)
	if errors.Is(err, sandbox.ErrUnauthorized) {
		w.skip("the project has no drives")
	}
	w.must(err)
	path := func(rest string) string { return w.sandboxPath("drives/"+drive.Name(), rest) }
	w.about = "… `GET` by name or ID"
	w.row("a drive by its name", published, "true", w.ask("GET", path(""), nil).at("drive", "id") == drive.Info().ID)
	w.row("a drive by its ID", published, "true", w.ask("GET", w.sandboxPath("drives/"+drive.Info().ID, ""), nil).at("drive", "name") == drive.Name())
	w.about = "drives: get or create"
	w.row("create of an existing drive with another region", published, "409 conflict",
		w.ask("POST", "/v2/sandboxes/drives/"+drive.Name(), body{"projectId": w.Credentials.ProjectID, "region": "sfo1"}))

	mounts := map[string]sandbox.Mount{"/data": drive.Mount(sandbox.MountReadWrite)}
	sb, err := w.client.Create(w.ctx, &sandbox.CreateOptions{
		Name: w.prefix + "drive", VCPUs: 1, Timeout: time.Minute, Tags: tags, Mounts: mounts, SnapshotExpiration: 24 * time.Hour,
	})
	w.must(err)
	w.about = "… deleting or mounting"
	w.row("delete of an attached drive", assumed, "409 conflict", w.ask("DELETE", path(""), nil))
	w.row("a second read-write mount", assumed, "409 conflict", w.ask("POST", "/v3/sandboxes", body{
		"projectId": w.Credentials.ProjectID, "name": w.prefix + "refused", "tags": tags, "timeout": 60_000, "resources": body{"vcpus": 1},
		"mounts": body{"/data": body{"drive": drive.Name(), "mode": "read-write"}},
	}))
	w.about = "… read-write in one session"
	w.row("overlapping mounts", documented, "400", w.ask("POST", "/v3/sandboxes", body{
		"projectId": w.Credentials.ProjectID, "name": w.prefix + "refused", "tags": tags, "timeout": 60_000, "resources": body{"vcpus": 1},
		"mounts": body{"/data": body{"drive": drive.Name(), "mode": "snapshot"}, "/data/in": body{"drive": drive.Name(), "mode": "snapshot"}},
	}).status)
	root := &sandbox.CommandOptions{Sudo: w.Users}
	done, err := sb.RunCommand(w.ctx, "sh", []string{"-c", "echo written > /data/file"}, root)
	w.must(err)
	w.about = "… writes reach the drive"
	w.row("writing to a drive", documented, "0", done.ExitCode)
	_, err = sb.Stop(w.ctx, nil)
	w.must(err)
	copied := w.ask("POST", path("/fork"), body{"name": w.prefix + "copy"})
	w.about = "… `GET` by name or ID"
	w.row("fork of a drive", published, "201", copied)
	w.about = "… a fork tells"
	w.row("parent and root of a fork", published, drive.Info().ID+" "+drive.Info().ID, copied.at("drive", "parentDriveId")+" "+copied.at("drive", "rootDriveId"))
	w.row("parent of a drive that is not a fork", assumed, "", w.ask("GET", path(""), nil).at("drive", "parentDriveId"))
	w.about = "… `maxSizeBytes`"
	w.row("size of a drive", published, fmt.Sprint(int64(1<<40)), copied.at("drive", "maxSizeBytes"))
	w.about = "… the same below `/v1/drives`"
	w.row("a drive with version 1 of the API", assumed, "200", w.ask("GET", strings.Replace(path(""), "/v2/sandboxes/drives/", "/v1/drives/", 1), nil))
	forked, err := w.client.Fork(w.ctx, sb.Name(), &sandbox.ForkOptions{AllowEmpty: true, Name: w.prefix + "heir", Tags: tags})
	w.must(err)
	w.about = "… a fork of a sandbox has only"
	w.row("mounts of a fork", observed, "0", fmt.Sprint(len(forked.Info().Mounts)))
	forked, err = w.client.Fork(w.ctx, sb.Name(), &sandbox.ForkOptions{AllowEmpty: true, Name: w.prefix + "reader", Tags: tags, Mounts: mounts})
	w.must(err)
	data, err := forked.FS().ReadFile(w.ctx, "/data/file")
	w.about = "… writes reach the drive"
	w.row("the data that a sandbox has written to a drive", documented, "written <nil>", fmt.Sprint(strings.TrimSpace(string(data)), " ", err))
}
