package platform_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// The steps of a liveWalk. Its sandbox runs until the step snapshot ends the
// session; later steps have sandboxes of their own.

func (w *liveWalk) created() {
	info := w.sb.Info()
	w.row("status after create", observed, "running", info.Status)
	w.row("region", published, "iad1", info.Region)
	w.row("memory of one CPU", observed, "2048", info.MemoryMB)
	w.row("a sandbox of no such name", observed, "404 not_found", w.ask("GET", w.named(w.prefix+"none", ""), nil))
	got := w.ask("GET", w.named(w.sb.Name(), ""), nil)
	w.row("get says resumed", observed, "false", got.at("resumed"))
	w.row("get has totals", observed, "0", got.at("sandbox", "totalDurationMs"))
	w.row("update has totals", assumed, "0", w.ask("PATCH", w.named(w.sb.Name(), ""), body{"tags": liveTags}).at("sandbox", "totalDurationMs"))
	w.row("features", assumed, `{"drives":true}`, w.ask("GET", "/v2/sandboxes/features?projectId="+url.QueryEscape(w.creds.ProjectID), nil).at("features"))
	w.row("POST that does not say what it carries", observed+"; the code assumed", "415 unsupported_media_type",
		w.ask("POST", w.session("/fs/mkdir"), []byte(`{"path":"untyped"}`), "Content-Type", "text/plain"))
	w.row("unknown property", observed, "400 bad_request", w.ask("POST", w.session("/fs/mkdir"), body{"path": "x", "odd": 1}))
	route, err := w.sb.URL(3000)
	require.NoError(w.t, err)
	if w.network {
		req, err := http.NewRequestWithContext(w.ctx, "GET", route, nil)
		require.NoError(w.t, err)
		r := w.do(req)
		w.row("a port where nobody listens", observed, "502", r.status)
		w.row("its x-vercel-error", assumed, "SANDBOX_NOT_LISTENING", r.header.Get("X-Vercel-Error"))
	}
	w.row("extend the timeout", observed, "<nil>", w.sb.ExtendTimeout(w.ctx, time.Minute))
}

func (w *liveWalk) commands() {
	w.row("both streams and an exit code", observed, "out err, exit code 3", w.sh("echo out; sleep 0.2; echo err >&2; exit 3", nil))
	w.row("directory and environment", observed, "tmp bar, exit code 0", w.sh(`basename "$(pwd)"; echo $FOO`, &sandbox.CommandOptions{Cwd: "/tmp", Env: sandbox.Env{"FOO": "bar"}}))
	if w.users {
		w.row("user, home, directory", observed, "ubuntu /vercel /vercel, exit code 0", w.sh("id -un; echo $HOME; pwd", nil))
		w.row("root", observed, "0, exit code 0", w.sh("id -u", &sandbox.CommandOptions{Sudo: true}))
		w.row("root by the user's own sudo", published, "0, exit code 0", w.sh("sudo -n -- id -u", nil))
	}
	w.row("no such program", observed, "400 executable_not_found",
		w.ask("POST", w.session("/cmd"), body{"command": "definitely-not-a-binary", "args": []string{}, "env": body{}, "sudo": false, "wait": true, "logs": true}))

	watched, leave := context.WithCancel(w.ctx)
	_, err := w.sb.StartCommand(watched, "sh", []string{"-c", "until [ -e left ]; do sleep 0.1; done; exit 5"}, &sandbox.CommandOptions{ID: "live-left", Stdout: io.Discard})
	require.NoError(w.t, err)
	leave()
	w.sh("touch left", nil)
	w.row("a command goes on when its waited stream is left", assumed, "5", w.waited(w.session("/cmd/live-left")))

	trap := w.start(`trap 'exit 42' TERM; touch trap-set; while :; do sleep 0.1; done`, nil)
	w.sh("until [ -e trap-set ]; do sleep 0.1; done", nil)
	w.row("signal 15 returns at once", observed, "200, exit code none", w.ask("POST", trap+"/kill", body{"signal": 15}).String()+", exit code "+w.exitCode(trap))
	w.row("the trap's exit code", observed, "42", w.waited(trap))
	sleeper := w.start("exec sleep 600", nil)
	w.row("signal 9", observed, "200", w.ask("POST", sleeper+"/kill", body{"signal": 9}))
	w.row("its exit code", observed, "137", w.waited(sleeper))
	w.row("the newest is listed first", observed, "true", w.session("/cmd/"+w.first(w.ask("GET", w.session("/cmd"), nil))) == sleeper)
}

// first returns the ID of the first command of a list.
func (w *liveWalk) first(r liveReply) string {
	list, _ := r.body["commands"].([]any)
	require.NotEmpty(w.t, list)
	command, _ := list[0].(map[string]any)
	return fmt.Sprint(command["id"])
}

// ends checks commands that have ended.
func (w *liveWalk) ends() {
	over := w.start("echo done; exit 7", nil)
	logs := w.ask("GET", over+"/logs", nil)
	w.row("form of a log record", observed, `{"data":"done\n","stream":"stdout"}`, strings.TrimSpace(logs.text))
	w.row("exit code before anybody has waited", observed, "none", w.exitCode(over))
	w.row("… by waiting", observed, "7", w.waited(over))
	w.row("… from then on", observed, "7", w.exitCode(over))
	w.row("kill of one that is over", observed, "404 command_not_found_or_exited", w.ask("POST", over+"/kill", body{"signal": 15}))
	w.row("kill of an unknown one", observed, "404 command_not_found_or_exited", w.ask("POST", w.session("/cmd/cmd_none/kill"), body{"signal": 15}))
	w.row("input of one that is over", observed, "404 command_not_found_or_exited", w.ask("POST", over+"/stdin", body{"data": ""}))
	w.ask("POST", w.session("/cmd")+"?cmdId=live-waited", body{"command": "true", "args": []string{}, "env": body{}, "sudo": false, "wait": true, "logs": true})
	w.row("exit code after the end of a waited stream", assumed, "0", w.exitCode(w.session("/cmd/live-waited")))

	parent := w.start("sleep 300 & echo $!; wait", body{"timeout": 1000})
	w.row("exit code of a timeout", published, "137", w.waited(parent))
	var child struct {
		Data string `json:"data"`
	}
	line, _, _ := strings.Cut(w.ask("GET", parent+"/logs", nil).text, "\n")
	require.NoError(w.t, json.Unmarshal([]byte(line), &child))
	w.row("a timeout ends children too", assumed, "gone, exit code 0", w.sh(fmt.Sprintf(`for i in $(seq 50); do kill -0 %s 2>/dev/null || { echo gone; exit; }; sleep 0.1; done; echo there`, strings.TrimSpace(child.Data)), nil))
}

func (w *liveWalk) ids() {
	with := func(id string) liveReply {
		return w.ask("POST", w.session("/cmd")+"?cmdId="+id, body{"command": "true", "args": []string{}, "env": body{}, "sudo": false})
	}
	longest := strings.Repeat("i", 128)
	w.row("the ID that was chosen", observed, "live-chosen", with("live-chosen").at("command", "id"))
	w.row("one that is taken", assumed, "409 conflict", with("live-chosen"))
	w.waited(w.session("/cmd/live-chosen"))
	w.row("… by a command that is over", assumed, "409 conflict", with("live-chosen"))
	w.row("one of 128 characters", assumed, "true", with(longest).at("command", "id") == longest)
	w.row("one of 129", assumed, "400 bad_request", with(longest+"i"))
	w.row("one with a dot", assumed, "400 bad_request", with("a.b"))
}

func (w *liveWalk) stdin() {
	reader := w.start("cat", body{"attachStdin": true})
	write := func(params body) liveReply { return w.ask("POST", reader+"/stdin", params) }
	w.row("bytes written", published, "3", write(body{"data": "YWJj", "offset": 0}).at("bytesWritten"))
	w.row("the same again", published, "3", write(body{"data": "YWJj", "offset": 0}).at("bytesWritten"))
	gap := write(body{"data": "YWJj", "offset": 9})
	w.row("an offset beyond", assumed, "409 conflict", gap)
	w.row("bytesWritten of the refusal", assumed, "3", gap.at("error", "bytesWritten"))
	w.row("more than 1 MiB", assumed, "413 payload_too_large", write(body{"data": strings.Repeat("YWJj", 300_000), "offset": 3}))
	w.row("the end", published, "200", write(body{"offset": 3, "close": true}))
	w.row("the end of a command that got all", published, "0", w.waited(reader))

	// One that keeps running after its input has ended.
	reader = w.start("cat; sleep 300", body{"attachStdin": true})
	w.row("data with the end", published, "200", write(body{"data": "YWJj", "offset": 0, "close": true}))
	w.row("… sent again", assumed, "200", write(body{"data": "YWJj", "offset": 0, "close": true}))
	w.row("… and data behind it", published, "400 command_stdin_unavailable", write(body{"data": "YWJj", "offset": 3}))
	w.ask("POST", reader+"/kill", body{"signal": 9})
	deaf := w.start("exec sleep 300", nil)
	w.row("input of a command without", published, "400 command_stdin_unavailable", w.ask("POST", deaf+"/stdin", body{"data": "YWJj"}))
	w.ask("POST", deaf+"/kill", body{"signal": 9})
}

// archive returns a compressed tar archive of one file.
func (w *liveWalk) archive(name, content string) []byte {
	w.t.Helper()
	var data bytes.Buffer
	zip := gzip.NewWriter(&data)
	pack := tar.NewWriter(zip)
	require.NoError(w.t, pack.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}))
	_, err := io.WriteString(pack, content)
	require.NoError(w.t, err)
	require.NoError(w.t, errors.Join(pack.Close(), zip.Close()))
	return data.Bytes()
}

func (w *liveWalk) files() {
	write := func(cwd string, data []byte) liveReply {
		return w.ask("POST", w.session("/fs/write"), data, "Content-Type", "application/gzip", "X-Cwd", cwd)
	}
	read := func(path string) liveReply { return w.ask("POST", w.session("/fs/read"), body{"path": path}) }
	cwd := w.sb.CurrentSession().Info().Cwd
	w.row("an upload makes directories", observed, "200", write(cwd, w.archive("probe/run.sh", "#!/bin/sh\necho ran\n")))
	w.row("… and keeps modes", observed, "ran 755, exit code 0", w.sh("probe/run.sh; stat -c %a probe/run.sh", nil))
	got := read("probe/run.sh")
	w.row("a file", observed, `"#!/bin/sh\necho ran\n"`, fmt.Sprintf("%q", got.text))
	w.row("its name", observed, `attachment; filename="run.sh"`, got.header.Get("Content-Disposition"))
	w.row("its type", observed, "application/octet-stream", got.header.Get("Content-Type"))
	w.row("its length is not told", observed, "", got.header.Get("Content-Length"))
	require.NoError(w.t, w.sb.WriteFiles(w.ctx, []sandbox.File{{Path: `probe/a"é`, Content: []byte("x")}}, nil))
	w.row("a name that a quoted string can't hold", assumed, `attachment; filename="a\"?"; filename*=UTF-8''a%22%C3%A9`, read(`probe/a"é`).header.Get("Content-Disposition"))
	w.row("a file that is not there", observed, "404 not_found", read("probe/none"))
	w.row("mkdir", observed, "200", w.ask("POST", w.session("/fs/mkdir"), body{"path": "made"}))
	w.row("… again", observed, "400 file_error", w.ask("POST", w.session("/fs/mkdir"), body{"path": "made"}))
	w.row("… without a parent", observed, "400 file_error", w.ask("POST", w.session("/fs/mkdir"), body{"path": "no/such/parent"}))
	w.row("an upload into no directory", observed+"; the code assumed", "400 file_error", write("/no/such/directory", w.archive("file", "x")))
}

func (w *liveWalk) policy() {
	set := func(policy body) liveReply { return w.ask("POST", w.session("/network-policy"), policy) }
	for _, address := range []string{"2001:db8::/32", "10.0.0.1"} {
		r := set(body{"mode": "custom", "allowedCIDRs": []string{address}})
		known := assumed
		if strings.Contains(address, ":") {
			known = observed
		}
		w.row("the range "+address, known, "400 bad_request, Invalid CIDR: true", fmt.Sprintf("%s, Invalid CIDR: %t", r, strings.Contains(r.at("error", "message"), "Invalid CIDR")))
	}
	// Whether rules of the form allow are taken, and what is said of a faulty one.
	rule := func(match body) body {
		return body{"allow": body{"a.example": []body{{"match": match, "transform": []body{{"headers": body{"x-a": "b"}}}}}}}
	}
	w.row("a rule with a match", published, "200", set(rule(body{"path": body{"exact": "/x"}, "method": []string{"GET"}})))
	w.row("a rule with a match of an unknown kind", assumed, "400 bad_request", set(rule(body{"path": body{"odd": "/x"}})))
	r := set(body{"allow": body{"a.example": []body{{"response": body{"statusCode": 403}}}}})
	w.row("a response rule", published, "200", r)
	w.row("… read back", assumed, `[{"domain":"a.example","response":{"statusCode":403}}]`, r.at("session", "networkPolicy", "responseRules"))
	w.row("the policy is the sandbox's", observed, r.at("session", "networkPolicy"), w.ask("GET", w.named(w.sb.Name(), ""), nil).at("sandbox", "networkPolicy"))
	w.row("allow all again", published, "200", set(body{"mode": "allow-all"}))
}

func (w *liveWalk) settings() {
	// {"A":"…"} has 8 bytes around the value.
	update := func(size int) liveReply {
		return w.ask("PATCH", w.named(w.sb.Name(), ""), body{"env": body{"A": strings.Repeat("x", size-8)}})
	}
	w.row("update with 4096 bytes of env as JSON", assumed, "200", update(4096))
	w.row("update with 4097", assumed, "400 bad_request", update(4097))
	w.row("env is cleared", published, "200", w.ask("PATCH", w.named(w.sb.Name(), ""), body{"env": body{}}))
	w.row("a port below 1024", observed, "400 bad_request", w.ask("PATCH", w.named(w.sb.Name(), ""), body{"ports": []int{80}}))
}

func (w *liveWalk) snapshot() {
	require.NoError(w.t, w.sb.WriteFiles(w.ctx, []sandbox.File{{Path: "kept", Content: []byte("kept")}}, nil))
	route, err := w.sb.URL(3000)
	require.NoError(w.t, err)
	taken := w.ask("POST", w.session("/snapshot"), body{"expiration": (24 * time.Hour).Milliseconds()})
	w.row("snapshot", observed, "201 created snapshotting", fmt.Sprint(taken, " ", taken.at("snapshot", "status"), " ", taken.at("session", "status")))
	_, err = w.sb.Stop(w.ctx, nil) // waits for the end
	w.row("stop of the session that it ended", observed, "<nil>", err)
	w.row("a command of a session that has ended", observed, "410 sandbox_stopped",
		w.ask("POST", w.session("/cmd"), body{"command": "true", "args": []string{}, "env": body{}, "sudo": false}))
	if w.network {
		req, err := http.NewRequestWithContext(w.ctx, "GET", route, nil)
		require.NoError(w.t, err)
		r := w.do(req)
		w.row("a port of a sandbox that is stopped", assumed, "410 SANDBOX_STOPPED", fmt.Sprint(r.status, " ", r.header.Get("X-Vercel-Error")))
	}
	id := taken.at("snapshot", "id")
	from := func(snapshot string, more body) liveReply {
		params := body{
			"projectId": w.creds.ProjectID, "name": w.prefix + "refused", "tags": liveTags, "timeout": 60_000, "resources": body{"vcpus": 1},
			"source": body{"type": "snapshot", "snapshotId": snapshot},
		}
		maps.Copy(params, more)
		return w.ask("POST", "/v3/sandboxes", params)
	}
	w.row("its files in another region", assumed, "422 snapshot_region_mismatch", from(id, body{"region": "sfo1"}))
	w.row("its files with an image", assumed, "400 bad_request", from(id, body{"image": "vercel/sandbox/universal"}))

	second, err := w.client.Create(w.ctx, &sandbox.CreateOptions{
		Name: w.prefix + "second", VCPUs: 1, Timeout: time.Minute, Tags: liveTags, Source: sandbox.SnapshotSource{SnapshotID: id}, SnapshotExpiration: 24 * time.Hour,
	})
	require.NoError(w.t, err)
	w.row("region of a sandbox from a snapshot", assumed, w.sb.Info().Region, second.Info().Region)
	data, err := second.FS().ReadFile(w.ctx, "kept")
	require.NoError(w.t, err)
	w.row("its file", observed, "kept", string(data))
	require.NoError(w.t, second.FS().WriteFile(w.ctx, "kept", []byte("more"), 0o644))
	_, err = second.Stop(w.ctx, nil)
	require.NoError(w.t, err)
	fork := w.ask("POST", w.named(second.Name(), "/fork"), body{"name": w.prefix + "fork", "tags": liveTags})
	w.row("fork", published, "200", fork)
	w.row("totals of its response", assumed, "", fork.at("sandbox", "totalDurationMs"))
	forked, err := w.client.Get(w.ctx, w.prefix+"fork", nil)
	require.NoError(w.t, err)
	data, err = forked.FS().ReadFile(w.ctx, "kept")
	require.NoError(w.t, err)
	w.row("what the source's stop has saved", observed, "more", string(data))
	// A resume is delayed until the previous session has ended, and has its files.
	require.NoError(w.t, second.FS().WriteFile(w.ctx, "kept", []byte("last"), 0o644))
	_, err = second.Stop(w.ctx, &sandbox.StopOptions{NoWait: true})
	require.NoError(w.t, err)
	back := w.ask("GET", w.named(second.Name(), "")+"&resume=true", nil)
	w.row("resume while the session before stops", published, "200 running true", fmt.Sprint(back, " ", back.at("session", "status"), " ", back.at("resumed")))
	data, err = second.FS().ReadFile(w.ctx, "kept")
	require.NoError(w.t, err)
	w.row("… its file", published, "last", string(data))

	gone := w.ask("DELETE", "/v2/sandboxes/snapshots/"+id, nil)
	w.row("delete of a snapshot", observed, "200 deleted", fmt.Sprint(gone, " ", gone.at("snapshot", "status")))
	w.row("another delete of it", observed, "400", w.ask("DELETE", "/v2/sandboxes/snapshots/"+id, nil).status)
	w.row("what is left of it", observed, "deleted 0", fmt.Sprint(w.ask("GET", "/v2/sandboxes/snapshots/"+id, nil).at("snapshot", "status"), " ",
		w.ask("GET", "/v2/sandboxes/snapshots/"+id, nil).at("snapshot", "sizeBytes")))
	w.row("create from it", published, "410 snapshot_not_found", from(id, nil))
	w.row("create from an unknown one", published, "404", from("snap_none", nil).status)

	// The fork's own files, saved and deleted.
	_, err = forked.Stop(w.ctx, nil)
	require.NoError(w.t, err)
	own := forked.Info().CurrentSnapshotID
	w.row("delete of the snapshot that a sandbox stands on", observed, "200", w.ask("DELETE", "/v2/sandboxes/snapshots/"+own, nil))
	w.row("resume without it", observed, "410 snapshot_not_found", w.ask("GET", w.named(forked.Name(), "")+"&resume=true", nil))
	_, err = w.client.Get(w.ctx, forked.Name(), nil)
	w.row("… by the client", observed, "true", errors.Is(err, sandbox.ErrSnapshotNotFound))
}

func (w *liveWalk) lostFiles() {
	sb, err := w.client.Create(w.ctx, &sandbox.CreateOptions{Name: w.prefix + "lost", VCPUs: 1, Timeout: time.Minute, Tags: liveTags, Ephemeral: true})
	require.NoError(w.t, err)
	_, err = sb.Stop(w.ctx, nil)
	require.NoError(w.t, err)
	resume := func() liveReply { return w.ask("GET", w.named(sb.Name(), "")+"&resume=true", nil) }
	w.row("get without resume", observed, "200 stopped", func() string {
		r := w.ask("GET", w.named(sb.Name(), ""), nil)
		return fmt.Sprint(r, " ", r.at("sandbox", "status"))
	}())
	w.row("resume of a sandbox that is not persistent", observed, "400 snapshot_not_found", resume())
	require.NoError(w.t, sb.Update(w.ctx, &sandbox.UpdateOptions{Persistent: new(true)}))
	w.row("resume of one that never had a snapshot", assumed, "400 bad_request", resume())
	w.row("delete", observed, "<nil>", sb.Delete(w.ctx, nil))
	w.row("get after it", observed, "404 not_found", w.ask("GET", w.named(sb.Name(), ""), nil))
}

func (w *liveWalk) drives() {
	drive, err := w.client.GetOrCreateDrive(w.ctx, w.prefix+"drive", nil)
	if errors.Is(err, sandbox.ErrUnauthorized) {
		w.t.Skip("needs a project with drives: ", err)
	}
	require.NoError(w.t, err)
	path := func(rest string) string { return w.named("drives/"+drive.Name(), rest) }
	w.row("a drive by its name", published, "true", w.ask("GET", path(""), nil).at("drive", "id") == drive.Info().ID)
	w.row("… by its ID", published, "true", w.ask("GET", w.named("drives/"+drive.Info().ID, ""), nil).at("drive", "name") == drive.Name())
	w.row("another region", published, "409 conflict",
		w.ask("POST", "/v2/sandboxes/drives/"+drive.Name(), body{"projectId": w.creds.ProjectID, "region": "sfo1"}))

	mounts := map[string]sandbox.Mount{"/data": drive.Mount(sandbox.MountReadWrite)}
	sb, err := w.client.Create(w.ctx, &sandbox.CreateOptions{
		Name: w.prefix + "drive", VCPUs: 1, Timeout: time.Minute, Tags: liveTags, Mounts: mounts, SnapshotExpiration: 24 * time.Hour,
	})
	require.NoError(w.t, err)
	w.row("delete of a drive that is attached", assumed, "409 conflict", w.ask("DELETE", path(""), nil))
	w.row("a second mount to write", assumed, "409 conflict", w.ask("POST", "/v3/sandboxes", body{
		"projectId": w.creds.ProjectID, "name": w.prefix + "refused", "tags": liveTags, "timeout": 60_000, "resources": body{"vcpus": 1},
		"mounts": body{"/data": body{"drive": drive.Name(), "mode": "read-write"}},
	}))
	root := &sandbox.CommandOptions{Sudo: w.users}
	done, err := sb.RunCommand(w.ctx, "sh", []string{"-c", "echo written > /data/file"}, root)
	require.NoError(w.t, err)
	w.row("writing to a drive", "documented", "0", done.ExitCode)
	_, err = sb.Stop(w.ctx, nil)
	require.NoError(w.t, err)
	w.row("fork of a drive", assumed, "201", w.ask("POST", path("/fork"), body{"name": w.prefix + "copy"}))
	forked, err := w.client.Fork(w.ctx, sb.Name(), &sandbox.ForkOptions{Name: w.prefix + "heir", Tags: liveTags})
	require.NoError(w.t, err)
	w.row("mounts of a fork", observed, "0", fmt.Sprint(len(forked.Info().Mounts)))
	forked, err = w.client.Fork(w.ctx, sb.Name(), &sandbox.ForkOptions{Name: w.prefix + "reader", Tags: liveTags, Mounts: mounts})
	require.NoError(w.t, err)
	data, err := forked.FS().ReadFile(w.ctx, "/data/file")
	w.row("what was written", "documented", "written <nil>", fmt.Sprint(strings.TrimSpace(string(data)), " ", err))
}
