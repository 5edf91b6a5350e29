package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/scripted"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/internal/test/testkit/repository"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// testTools is a Toolset whose calls check their results.
type testTools struct {
	*agent.Toolset
	t   *testing.T
	srv *sandboxtest.Server
	sb  *sandbox.Sandbox
}

// TestWithoutInput: if the service does not support input for commands, the result tells the
// model what to do instead.
func TestWithoutInput(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.LightStart(t, nil)
	d := toolsFor(t, srv, sb, nil)
	d.srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, Status: 400, Code: "bad_request", Message: "Invalid request: should NOT have additional property `attachStdin`."})
	assert.Contains(t, d.refused("start_command", args{"command": "cat", "input": true}), "Start it without")
	assert.Contains(t, d.refused("python", args{"code": "1"}), "Write a program to a file")
}

func newTools(t *testing.T, opts *agent.Options) *testTools {
	t.Helper()
	srv, sb := testkit.SharedStart(t, nil)
	return toolsFor(t, srv, sb, opts)
}

// newIsolatedTools is for tests that kill commands. In folder mode a kill looks at all
// processes of the machine, again and again until none of the command's remains.
func newIsolatedTools(t *testing.T, opts *agent.Options) *testTools {
	t.Helper()
	srv, sb := testkit.Start(t, nil)
	return toolsFor(t, srv, sb, opts)
}

func toolsFor(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox, opts *agent.Options) *testTools {
	t.Helper()
	tools := agent.New(sb, opts)
	t.Cleanup(func() { assert.NoError(t, tools.Close()) })
	return &testTools{tools, t, srv, sb}
}

type args map[string]any

// try makes a call, which must not return an error for the program.
func (d *testTools) try(tool string, a args) agent.Result {
	d.t.Helper()
	text, err := json.Marshal(a)
	require.NoError(d.t, err)
	result, err := d.Call(d.t.Context(), tool, text)
	require.NoError(d.t, err, "%s %s: %s", tool, text, result.Text)
	return result
}

// ok makes a call that must succeed.
func (d *testTools) ok(tool string, a args) string {
	d.t.Helper()
	result := d.try(tool, a)
	require.False(d.t, result.Failed, "%s %v: %s", tool, a, result.Text)
	return result.Text
}

// refused makes a call that must fail because of the model's arguments.
func (d *testTools) refused(tool string, a args) string {
	d.t.Helper()
	result := d.try(tool, a)
	require.True(d.t, result.Failed, "%s %v: %s", tool, a, result.Text)
	return result.Text
}

func wrapped(text string) string { return "\n<sandbox-data>\n" + text + "</sandbox-data>" }

// TestScript runs the scripted model without an adapter. The adapters' tests compare their
// results with these.
func TestScript(t *testing.T) {
	needs.Long(t, "it starts five programs in Python, and each of its steps has a test of its own")
	t.Parallel()
	seen := scripted.Directly(t)
	require.Len(t, seen, 11)
	assert.Equal(t, "Wrote 261 bytes to page.py.", seen[0])
	assert.Contains(t, seen[1], "Exit code 1.")
	assert.Equal(t, "page.py, lines 7 to 8. There is more: continue with offset 9.\n<sandbox-data>\n     7\t    def text(self):\n     8\t        return \"hello \" + self.nam\n</sandbox-data>", seen[2])
	assert.Equal(t, "Replaced one place in page.py.", seen[3])
	assert.Equal(t, "Exit code 0."+wrapped("written\n"), seen[4])
	assert.Regexp(t, "^The sandbox was stopped since the last call and .*\nStarted. command_id: ID$", seen[5])
	assert.Equal(t, "Port PORT: URL A server answers there.", seen[6])
	assert.Equal(t, "Exit code 0."+wrapped("b'hello world'\n"), seen[7])
	assert.Equal(t, "Stopped, with its children.", seen[8])
	assert.Equal(t, "Done. No output.", seen[9])
	assert.Equal(t, "Done."+wrapped("42\n"), seen[10])
}

func TestBash(t *testing.T) {
	t.Parallel()
	var streamed testkit.LockedBuffer
	d := newTools(t, &agent.Options{OnOutput: func(call agent.Call, p []byte) {
		assert.Equal(t, "bash", call.Tool)
		_, _ = streamed.Write(p)
	}})
	assert.Equal(t, "Exit code 3."+wrapped("hi ☃\noops\n"), d.ok("bash", args{"command": "echo 'hi ☃'; echo oops >&2; exit 3"}))
	assert.Equal(t, "hi ☃\noops\n", streamed.String())
	assert.Equal(t, "Exit code 0. No output.", d.ok("bash", args{"command": "true"}))
	assert.Contains(t, d.ok("bash", args{"command": "kill -9 $$"}), "Exit code 137 (ended by SIGKILL).")
	assert.Contains(t, d.ok("bash", args{"command": "no-such-program"}), "Exit code 127 (command not found).")
	assert.Equal(t, "Exit code 0."+wrapped("tmp v\n"), d.ok("bash", args{"command": "echo ${PWD##*/} $K", "cwd": "/tmp", "env": args{"K": "v"}}))
	assert.Contains(t, d.refused("bash", args{"command": "true", "cwd": "/no/such"}), "There is no directory /no/such")
	result := d.try("bash", args{"command": "exit 4"})
	assert.Equal(t, map[string]any{"exit_code": 4, "timed_out": false, "omitted_bytes": int64(0)}, result.Data)
	assert.Contains(t, d.refused("bash", nil), `"command" is missing`)
	assert.Contains(t, d.refused("bash", args{"command": "true", "x": 1}), "This tool takes: command, cwd, env, timeout_seconds.")
	assert.Contains(t, d.refused("bash", args{"command": 1}), `"command" is of the wrong type: number where string belongs`)
	assert.Contains(t, d.refused("bash", args{"command": "true", "env": args{"PORT": 3000}}), `The value "PORT" of the argument "env" is of the wrong type: number where string belongs`)
	assert.Contains(t, d.refused("nonesuch", nil), "There is no tool")
	for args, want := range map[string]string{
		`{"command":`:              "unexpected end of JSON input, at byte 11.",
		`{"command":"ls"} {"x":1}`: "invalid character '{' after top-level value, at byte 18.",
		`["ls"]`:                   "The arguments are not a JSON object.",
	} {
		result, err := d.Call(t.Context(), "bash", json.RawMessage(args))
		require.NoError(t, err)
		assert.True(t, result.Failed)
		assert.Contains(t, result.Text, want)
	}
}

// TestPortURL: the result has the URL of a server, once the server responds.
func TestPortURL(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3")
	port := needs.Port(t)
	srv, sb := testkit.SharedStart(t, &sandbox.CreateOptions{Ports: []int{port}})
	d := toolsFor(t, srv, sb, nil)
	d.ok("start_command", args{"command": fmt.Sprintf(`exec python3 -S -c 'import socket
s = socket.create_server(("", %d))
while True:
    c = s.accept()[0]
    c.recv(1000)
    c.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
    c.close()'`, port)})
	result := d.try("port_url", args{"port": port, "wait_seconds": 60})
	assert.False(t, result.Failed)
	assert.Equal(t, fmt.Sprintf("Port %d: %s A server answers there.", port, result.Data["url"]), result.Text)
}

// TestTimeout: a command is killed with its children if it takes too long or its call is
// canceled.
func TestTimeout(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		needs.Missing(t, "the processes of sandboxes are looked up in /proc")
	}
	begun := make(chan struct{}, 2)
	d := newIsolatedTools(t, &agent.Options{OnOutput: func(agent.Call, []byte) { begun <- struct{}{} }})
	const variable = "AGENT_TIMEOUT_TEST="
	mark := variable + d.sb.Name()
	waitUntilKilled := func() {
		require.Eventually(t, func() bool { return len(testkit.ProcessesWith(t, mark)) == 0 }, testkit.Patience, 20*time.Millisecond)
	}
	long := "export " + mark + "; (sleep 1000; :) & echo begun; sleep 1000"
	result := d.try("bash", args{"command": long, "timeout_seconds": 1})
	assert.Contains(t, result.Text, "It was still running after 1s and was stopped, with its children.")
	assert.Equal(t, true, result.Data["timed_out"])
	waitUntilKilled()
	<-begun

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		assert.Eventually(t, func() bool { return len(testkit.ProcessesWith(t, mark)) >= 2 }, testkit.Patience, 50*time.Millisecond)
		cancel()
	}()
	text, err := json.Marshal(args{"command": long})
	require.NoError(t, err)
	result, err = d.Call(ctx, "bash", text)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, "agent: the call was canceled: context canceled", err.Error(), "one line")
	assert.Equal(t, "The call was canceled.", result.Text)
	waitUntilKilled()
}

// TestCanceledStart: a command is killed if its call is canceled before the response to its
// start arrives.
func TestCanceledStart(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		needs.Missing(t, "the processes of sandboxes are looked up in /proc")
	}
	srv := sandboxtest.New(t, nil) // see newIsolatedTools
	for _, tool := range []string{"bash", "start_command"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			network := testkit.Transport(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var mark string
			var held atomic.Bool
			client := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/cmd") || held.Swap(true) {
					return network.RoundTrip(r)
				}
				resp, err := network.RoundTrip(r)
				if err != nil {
					return nil, err
				}
				assert.NoError(t, resp.Body.Close())
				assert.Eventually(t, func() bool { return len(testkit.ProcessesWith(t, mark)) > 0 }, testkit.Patience, 50*time.Millisecond)
				cancel()
				<-r.Context().Done()
				return nil, r.Context().Err()
			})}})
			sb, err := client.Create(t.Context(), nil)
			require.NoError(t, err)
			mark = "AGENT_CANCELED_START=" + sb.Name()
			d := toolsFor(t, srv, sb, nil)
			text, err := json.Marshal(args{"command": "export " + mark + "; sleep 1000; :"})
			require.NoError(t, err)
			_, err = d.Call(ctx, tool, text)
			require.ErrorIs(t, err, context.Canceled)
			if errors.Is(err, sandbox.ErrChildren) {
				return // on a very busy machine the kill may time out, which the error reports
			}
			assert.Eventually(t, func() bool { return len(testkit.ProcessesWith(t, mark)) == 0 }, testkit.Patience, 20*time.Millisecond)
		})
	}
}

func TestBackground(t *testing.T) {
	t.Parallel()
	d := newIsolatedTools(t, &agent.Options{Limits: agent.Limits{Background: 2}})
	result := d.try("start_command", args{"command": "while read x; do echo got $x; done; echo end >&2; exit 5", "input": true})
	id := result.Data["command_id"]
	cursor := ""
	until := func(want string) (text string) {
		require.Eventually(t, func() bool {
			r := d.try("read_output", args{"command_id": id, "cursor": cursor, "wait_seconds": 0.05})
			text, cursor = text+r.Text, r.Data["cursor"].(string)
			return strings.Contains(text, want)
		}, testkit.Patience, time.Millisecond)
		return text
	}
	assert.Equal(t, "2 bytes written.", d.ok("write_input", args{"command_id": id, "text": "a\n"}))
	assert.Contains(t, until("got a\n"), "It is still running.")
	assert.Equal(t, "6.0", cursor)
	d.ok("write_input", args{"command_id": id, "text": "b\n", "close": true})
	assert.NotContains(t, until("It has ended. Exit code 5."), "got a")
	assert.Equal(t, "12.4", cursor)
	assert.Contains(t, d.refused("write_input", args{"command_id": id, "text": "c"}), "takes no more input")
	assert.Contains(t, d.refused("read_output", args{"command_id": "cmd_none"}), "There is no command")
	assert.Contains(t, d.refused("read_output", args{"command_id": id, "cursor": "x"}), "cursor")

	// Another toolset, for example in another process, finds the command.
	other := toolsFor(t, d.srv, d.sb, nil)
	assert.Contains(t, other.ok("read_output", args{"command_id": id, "cursor": "6.0"}), "got b")

	// Two may run. A command that ends makes room for another.
	first := d.try("start_command", args{"command": "sleep 1000"}).Data["command_id"]
	second := d.try("start_command", args{"command": "exec cat", "input": true}).Data["command_id"]
	assert.Contains(t, d.refused("start_command", args{"command": "true"}), "2 commands are already running in the background")
	assert.Equal(t, "Stopped, with its children.", d.ok("stop_command", args{"command_id": first}))
	d.ok("write_input", args{"command_id": second, "close": true})
	_, err := d.sb.GetCommand(t.Context(), second.(string))
	require.NoError(t, err)
	assert.Contains(t, d.ok("read_output", args{"command_id": second, "wait_seconds": 60}), "It has ended.")
	third := d.try("start_command", args{"command": "sleep 1000"}).Data["command_id"]

	// Commands end when the sandbox stops.
	testkit.StopElsewhere(t, d.srv, d.sb)
	d.ok("bash", args{"command": "true"})
	assert.Contains(t, d.refused("read_output", args{"command_id": third}), "Commands end when the sandbox stops")
	assert.Contains(t, d.refused("stop_command", args{"command_id": third}), "start it again")
}

// TestConcurrentStarts: concurrent calls don't exceed the limit of commands.
func TestConcurrentStarts(t *testing.T) {
	t.Parallel()
	d := newTools(t, &agent.Options{Limits: agent.Limits{Background: 2}})
	var started, refused atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			result, err := d.Call(t.Context(), "start_command", json.RawMessage(`{"command": "sleep 1000"}`))
			assert.NoError(t, err)
			if !result.Failed {
				started.Add(1)
			} else if assert.Contains(t, result.Text, "already running in the background") {
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	assert.Equal(t, []int32{2, 6}, []int32{started.Load(), refused.Load()})
}

func TestFiles(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	d := newTools(t, &agent.Options{Limits: agent.Limits{Output: 2 << 10, FileBytes: 1 << 20}})
	assert.Equal(t, "Wrote 12 bytes to a/-n.txt.", d.ok("write_file", args{"path": "a/-n.txt", "content": "one\ntwo\none\n", "executable": true}))
	assert.Contains(t, d.ok("read_file", args{"path": "a/-n.txt"}), "This is the end of the file."+wrapped("     1\tone\n     2\ttwo\n     3\tone\n"))
	assert.Contains(t, d.ok("read_file", args{"path": "a/-n.txt", "offset": 2, "limit": 1}), "lines 2 to 2. There is more: continue with offset 3."+wrapped("     2\ttwo\n"))
	assert.Contains(t, d.refused("edit_file", args{"path": "a/-n.txt", "old_string": "one", "new_string": "1"}), "2 times, first in the lines 1, 3")
	assert.Contains(t, d.refused("edit_file", args{"path": "/dev/null", "old_string": "x"}), "not a regular file")
	assert.Equal(t, "Replaced 2 places in a/-n.txt.", d.ok("edit_file", args{"path": "a/-n.txt", "old_string": "one", "new_string": "1", "replace_all": true}))
	assert.Equal(t, "Exit code 0."+wrapped("1\ntwo\n1\n755\n"), d.ok("bash", args{"command": "cat ./a/-n.txt; stat -c %a ./a/-n.txt"}), "an edited file keeps its mode")
	assert.Equal(t, "a has 1 entries."+wrapped("-n.txt (8 bytes)\n"), d.ok("read_file", args{"path": "a"}))
	assert.Contains(t, d.refused("read_file", args{"path": "none"}), "file does not exist")
	assert.Contains(t, d.refused("write_file", args{"path": "a", "content": ""}), "is a directory")
	assert.Contains(t, d.refused("write_file", args{"path": "b", "content": strings.Repeat("x", 1<<20+1)}), "at most 1048576")

	// Long and binary files.
	d.ok("bash", args{"command": `seq 100000 >many; printf 'a\0b' >bin; mkdir full; cd full; printf 'name%04d\n' $(seq 500) | xargs touch`})
	page := d.ok("read_file", args{"path": "many"})
	assert.LessOrEqual(t, len(page), 2<<10)
	assert.Contains(t, page, "continue with offset")
	assert.Contains(t, d.refused("read_file", args{"path": "bin"}), "not a text file")

	// A directory with more entries than fit into a result.
	listed := d.ok("list_files", args{"path": "full"})
	assert.Contains(t, listed, "full has 500 entries. Continue with offset 53.")
	assert.Contains(t, d.ok("list_files", args{"path": "full", "offset": 499}), wrapped("name0500 (0 bytes)\n"))
}

// TestSearch: searches find the same with and without the sandbox's grep.
func TestSearch(t *testing.T) {
	t.Parallel()
	var seen [2][]string
	srv := testkit.SharedServer(t)
	client := testkit.Client(t, srv, sandbox.ClientOptions{})
	for i, spoil := range []string{"", "mkdir bin; printf '#!/bin/sh\\nexit 2\\n' >bin/grep; chmod +x bin/grep"} {
		sb, err := client.Create(t.Context(), testkit.Lasting(&sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/vercel/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}))
		require.NoError(t, err)
		d := toolsFor(t, srv, sb, nil)
		d.ok("bash", args{"command": `mkdir -p src/deep .git; cd src
printf 'func A() {}\n\nfunc b() {}' >x.go; printf 'func C() {}\r\n' >deep/y.go; echo 'func -e' >'-e'; echo 'func N' >$'new\nline'
printf 'func\0' >bin; echo 'func G' >../.git/z.go; ln -s x.go link; mkdir 'a:1:b'; echo 'func D:2:' >'a:1:b/f'`})
		if spoil != "" {
			path := d.ok("bash", args{"command": "cd " + sb.Cwd() + "; " + spoil + "; echo $PATH; command -v grep"})
			if !strings.Contains(path, sb.Cwd()+"/bin/grep") {
				needs.Missing(t, "the sandbox's PATH is not that of the environment: %s", path)
			}
		}
		searches := []args{
			{"pattern": "func", "path": "src"}, {"pattern": "^FUNC [A-Z]", "ignore_case": true, "glob": "*.go", "limit": 1}, {"pattern": "FUNC", "ignore_case": true, "glob": "*.go"},
			{"pattern": `\{\}\r$`, "path": "src"}, {"pattern": "func", "path": "src/x.go"}, {"pattern": "-e", "path": "src"}, {"pattern": "nowhere", "path": "src"},
		}
		if !needs.Slow() {
			searches = searches[:2]
		}
		if spoil != "" && !needs.Slow() {
			searches = searches[:1] // one is enough, because each reads all files
		}
		for _, a := range searches {
			seen[i] = append(seen[i], d.ok("grep", a))
		}
		if spoil != "" {
			continue // the rest does not depend on the program
		}
		assert.Equal(t, "2 files."+wrapped("src/deep/y.go\nsrc/x.go\n"), d.ok("glob", args{"pattern": "*.go"}))
		assert.Contains(t, d.refused("grep", args{"pattern": "(", "path": "src"}), "not an RE2 regular expression")
		for _, pattern := range []string{strings.Repeat("(?:.{0,1000})", 20), strings.Repeat("x", 2000), "(?:(?:a{30}){30}b?){1}" + strings.Repeat("[^x]{999}", 9)} {
			assert.Contains(t, d.refused("grep", args{"pattern": pattern, "path": "src"}), "too large")
		}
		assert.Contains(t, d.refused("grep", args{"pattern": "x", "path": "none"}), "file does not exist")
		assert.Contains(t, d.refused("glob", args{"pattern": "[", "path": "src"}), "not valid")
	}
	assert.Equal(t, seen[0][:len(seen[1])], seen[1])
	assert.Equal(t, "6 matches."+wrapped("-e:1: func -e\na:1:b/f:1: func D:2:\ndeep/y.go:1: func C() {}\\x0d\nnew\\nline:1: func N\nx.go:1: func A() {}\nx.go:3: func b() {}\n"), seen[0][0])
	assert.Equal(t, "The first 1 matches are shown, there may be more: give a narrower pattern or path."+wrapped("src/deep/y.go:1: func C() {}\\x0d\n"), seen[0][1])
	if needs.Slow() {
		assert.Equal(t, "3 matches."+wrapped("src/deep/y.go:1: func C() {}\\x0d\nsrc/x.go:1: func A() {}\nsrc/x.go:3: func b() {}\n"), seen[0][2])
		assert.Equal(t, "1 matches."+wrapped("deep/y.go:1: func C() {}\\x0d\n"), seen[0][3])
		assert.Equal(t, "0 matches. Binary files, symbolic links and .git are not searched.", seen[0][6])
	}
}

func TestPython(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3")
	srv, sb := testkit.Start(t, &sandbox.CreateOptions{Env: sandbox.Env{
		"PYTHONPATH": "lib", "PYTHONIOENCODING": "utf-16", "LC_ALL": "C", "KEY": "value",
	}})
	d := toolsFor(t, srv, sb, nil)
	// Modules of the working directory and environment variables affect cells, but not the
	// interpreter's own code.
	for name, text := range map[string]string{
		"json.py": "raise SystemExit('not this one')", "lib/ast.py": "raise SystemExit('nor this')",
		"lib/ours.py": "x = 41", "mine.py": "y = 1",
	} {
		require.NoError(t, sb.FS().WriteFile(t.Context(), name, []byte(text), 0o644))
	}
	assert.Equal(t, "Done."+wrapped("ä 42 value\n"), d.ok("python", args{"code": "import os, ours, mine\nprint('ä', ours.x + mine.y, os.environ['KEY'])"}))
	assert.Equal(t, "Done. No output.", d.ok("python", args{"code": "x = 40\ndef f(n):\n    return n + x"}))
	assert.Equal(t, "Done."+wrapped("in\nerr\n'42'\n"), d.ok("python", args{"code": "import sys, os\nprint('in'); sys.stdout.flush(); os.write(2, b'err\\n')\nstr(f(2))"}))
	text := d.ok("python", args{"code": "open('made.txt', 'w').write('x')\n1 / 0"})
	assert.Contains(t, text, "It failed. Files made or changed:"+wrapped("made.txt\n"))
	assert.Contains(t, text, "line 2, in <module>")
	assert.Contains(t, text, "ZeroDivisionError")
	assert.NotContains(t, text, "traceback.py")
	assert.Contains(t, d.ok("python", args{"code": "def broken("}), "SyntaxError")
	assert.Contains(t, d.ok("python", args{"code": "raise SystemExit(3)"}), "It failed.")
	assert.Contains(t, d.ok("python", args{"code": "input()"}), "EOFError")

	gone := "Variables are gone; the next call starts a new interpreter."
	restarted := "The interpreter was restarted: variables of earlier calls are gone. "
	assert.Contains(t, d.refused("python", args{"code": "print('last', flush=True); os._exit(7)"}), "The interpreter ended. Exit code 7. "+gone+wrapped("last\n"))
	assert.Contains(t, d.ok("python", args{"code": "x"}), restarted+"It failed.")
	assert.Equal(t, "Done."+wrapped("1\n"), d.ok("python", args{"code": "x = 1\nx"}))
	result := d.try("python", args{"code": "import time\nprint(x, flush=True)\ntime.sleep(1000)", "timeout_seconds": 1})
	assert.Contains(t, result.Text, "It was still running after 1s and was stopped. "+gone+wrapped("1\n"))
	assert.Equal(t, true, result.Data["timed_out"])
	d.ok("python", args{"code": "x = 2"})
	testkit.StopElsewhere(t, d.srv, d.sb)
	d.ok("bash", args{"command": "true"})
	assert.Contains(t, d.ok("python", args{"code": "print(1)"}), restarted+"Done.")
	// Output that looks like the end of a cell is treated as output.
	assert.Contains(t, d.ok("python", args{"code": `print('\n\x1eABC{"ok":false}')`}), `\x1eABC{"ok":false}`)
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	d := newTools(t, nil)
	write := func(text string) {
		require.NoError(t, d.sb.FS().WriteFile(t.Context(), "f", []byte(text), 0o644))
	}
	write("one")
	id := d.try("create_snapshot", nil).Data["snapshot_id"]
	write("two")
	assert.Contains(t, d.ok("restore_snapshot", args{"snapshot_id": id}), "from the next call on")
	assert.Contains(t, d.ok("read_file", args{"path": "f"}), "one")
	other, err := d.srv.Client().Create(t.Context(), nil)
	require.NoError(t, err)
	foreign, err := other.Snapshot(t.Context(), nil)
	require.NoError(t, err)
	assert.Contains(t, d.refused("restore_snapshot", args{"snapshot_id": foreign.ID()}), "has no snapshot")
	d.ok("stop_sandbox", nil)
	assert.Equal(t, sandbox.StatusStopped, d.sb.Status())
	assert.Contains(t, d.ok("read_file", args{"path": "f"}), "one")
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "in.csv"), []byte("1,2\n"), 0o600))
	outside := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(outside, []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	d := newTools(t, &agent.Options{Artifacts: root, Limits: agent.Limits{FileBytes: 1000}})
	d.ok("load_artifact", args{"name": "in.csv"})
	assert.Contains(t, d.ok("read_file", args{"path": "in.csv"}), "1,2")
	d.ok("bash", args{"command": "echo made >out; head -c 1001 /dev/zero >big; mkdir d"})
	assert.Equal(t, "Saved 5 bytes as sub/o.txt.", d.ok("save_artifact", args{"path": "out", "name": "sub/o.txt"}))
	saved, err := os.ReadFile(filepath.Join(dir, "sub", "o.txt"))
	require.NoError(t, err)
	assert.Equal(t, "made\n", string(saved))
	for _, a := range []args{{"path": "out", "name": "../x"}, {"path": "out", "name": "/x"}, {"path": "out", "name": "."}, {"path": "big"}, {"path": "d"}, {"path": "none"}} {
		d.refused("save_artifact", a)
	}
	for _, name := range []string{"../secret", outside, "link", "none", "sub"} {
		assert.NotContains(t, d.refused("load_artifact", args{"name": name}), dir)
	}
	// The user's files, and files from which Git runs programs.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "o.part"), []byte("the user's"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".git"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".git", "config"), []byte("a token"), 0o600))
	d.ok("save_artifact", args{"path": "out", "name": "o"})
	for _, name := range []string{".git/config", "sub/.GIT/hooks/post-checkout", ".git"} {
		d.refused("save_artifact", args{"path": "out", "name": name})
		assert.NotContains(t, d.refused("load_artifact", args{"name": name}), "token")
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bare"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bare", "HEAD"), []byte("ref: refs/heads/main\n"), 0o600))
	assert.Contains(t, d.refused("save_artifact", args{"path": "out", "name": "bare/config"}), "Git or an editor might run bare/config, or a file next to it")
	for name, want := range map[string]string{"o.part": "the user's", "o": "made\n", ".git/config": "a token"} {
		kept, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(kept), name)
	}
	text, err := json.Marshal(args{"path": "out", "name": "link"})
	require.NoError(t, err)
	_, err = d.Call(t.Context(), "save_artifact", text) // replaces the link
	require.NoError(t, err)
	kept, err := os.ReadFile(outside)
	require.NoError(t, err)
	assert.Equal(t, "secret", string(kept))

	names := func(ts *agent.Toolset) (list []string) {
		for _, tool := range ts.Tools() {
			list = append(list, tool.Name)
		}
		return list
	}
	assert.False(t, slices.Contains(names(toolsFor(t, d.srv, d.sb, nil).Toolset), "save_artifact"), "without a folder there are no tools for artifacts")
}

// TestArtifactsOfRepositories tries to save each file of a Git repository that runs programs,
// and then runs git status.
func TestArtifactsOfRepositories(t *testing.T) {
	needs.Long(t, "TestArtifacts has one, and the rest is the guard's")
	d := newTools(t, nil)
	for _, r := range repository.Kinds(t) {
		from, folder := t.TempDir(), r.Folder(t)
		repository.WriteTree(t, from, r.Files)
		require.NoError(t, d.sb.FS().UploadDir(t.Context(), from, r.Name, nil))
		root, err := os.OpenRoot(folder)
		require.NoError(t, err)
		defer root.Close()
		saver := toolsFor(t, d.srv, d.sb, &agent.Options{Artifacts: root})
		refused := 0
		for name := range r.Files {
			if saver.try("save_artifact", args{"path": r.Name + "/" + name, "name": name}).Failed {
				refused++
			}
		}
		assert.False(t, r.Status(t, folder), r.Name)
		assert.NotZero(t, refused, r.Name)
	}
}

// TestPolicy: Before, ReadOnly, Tools and Paths restrict what a model can do.
func TestPolicy(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	broken := fmt.Errorf("the database of answers is gone: %w", context.DeadlineExceeded)
	var asked []string
	srv, sb := testkit.Start(t, nil) // not in folder mode, for absolute paths
	d := toolsFor(t, srv, sb, &agent.Options{Before: func(_ context.Context, call agent.Call) error {
		asked = append(asked, call.Tool)
		switch {
		case strings.Contains(string(call.Arguments), "rm "):
			return agent.Refuse("the user said \x1bno")
		case strings.Contains(string(call.Arguments), "broken"):
			return broken
		}
		return nil
	}})
	assert.Equal(t, `Refused: the user said \x1bno`, d.refused("bash", args{"command": "rm -r ."}))
	d.ok("bash", args{"command": "true"})
	result, err := d.Call(t.Context(), "bash", json.RawMessage(`{"command": "broken"}`))
	require.ErrorIs(t, err, broken)
	assert.NotContains(t, result.Text, "database")
	assert.Equal(t, []string{"bash", "bash", "bash"}, asked)

	list := func(d *testTools) (names []string) {
		for _, tool := range d.Tools() {
			names = append(names, tool.Name)
			assert.Equal(t, tool.ReadOnly, !tool.Destructive && tool.ReadOnly, tool.Name)
		}
		return names
	}
	reader := toolsFor(t, d.srv, d.sb, &agent.Options{ReadOnly: true})
	assert.Equal(t, []string{"read_output", "read_file", "list_files", "glob", "grep"}, list(reader))
	for _, name := range []string{"bash", "write_file", "edit_file", "python", "stop_sandbox"} {
		assert.Contains(t, reader.refused(name, nil), "There is no tool")
	}
	some := toolsFor(t, d.srv, d.sb, &agent.Options{Tools: []string{"bash", "glob"}})
	assert.Equal(t, []string{"bash", "glob"}, list(some))
	assert.Contains(t, some.refused("read_file", args{"path": "x"}), "There are: bash, glob.")

	d.ok("bash", args{"command": "mkdir in out; echo i >in/f; echo o >out/f; ln -s ../out in/link; ln -s ../out/later in/dangling"})
	held := toolsFor(t, d.srv, d.sb, &agent.Options{Paths: []string{d.sb.Cwd() + "/in"}})
	held.ok("write_file", args{"path": "in/new/deep", "content": "x"})
	held.ok("grep", args{"path": "in", "pattern": "i"})
	for tool, a := range map[string]args{
		"read_file": {"path": "in/link/f"}, "write_file": {"path": "in/link/new", "content": "x"}, "list_files": {"path": "in/../out"},
		"glob": {"pattern": "*"}, "grep": {"pattern": "o", "path": "/"}, "edit_file": {"path": d.sb.Cwd() + "/inside", "old_string": "x"},
	} {
		assert.Contains(t, held.refused(tool, a), "outside", tool)
	}
	for _, name := range []string{"in/dangling", "in/dangling/deep"} {
		assert.Contains(t, held.refused("write_file", args{"path": name, "content": "x"}), "outside", name)
	}
	assert.NotContains(t, d.ok("bash", args{"command": "ls out"}), "later")
}

// TestInvalidCommands: the result says why a command can't be started.
func TestInvalidCommands(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	d := newTools(t, nil)
	require.NoError(t, d.sb.FS().WriteFile(t.Context(), "file", nil, 0o644))
	for _, tool := range []string{"bash", "start_command"} {
		assert.Equal(t, "There is no directory none/x to run it in.", d.refused(tool, args{"command": "true", "cwd": "none/x"}))
		assert.Equal(t, "file is not a directory, so nothing can run in it.", d.refused(tool, args{"command": "true", "cwd": "file"}))
		assert.Contains(t, d.refused(tool, args{"command": "echo " + strings.Repeat("x", 128<<10)}), "at most 131071 can be run. Write long text by write_file")
		assert.Contains(t, d.refused(tool, args{"command": "true", "env": args{"LONG": strings.Repeat("x", 128<<10)}}), "The variable LONG has")
		assert.Equal(t, "The command is empty.", d.refused(tool, args{"command": " \n"}))
		twice, err := d.Call(t.Context(), tool, json.RawMessage(`{"command": "true", "command": "false"}`))
		require.NoError(t, err)
		assert.Equal(t, "The argument \"command\" is given twice.", twice.Text)
	}
	assert.Equal(t, "The code is empty.", d.refused("python", args{"code": " "}))
	assert.Contains(t, d.ok("bash", args{"command": "echo '" + strings.Repeat("x", 128<<10-20) + "' | wc -c"}), "131053")
}

// TestUnknownNames: the result for an unknown tool or argument lists the known ones, even if
// another vendor's tool has that name.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	d := toolsFor(t, nil, nil, nil) // the calls fail before they need a sandbox
	for _, tool := range []string{"Bash", "shell", "run_command", "readFile", "str_replace_based_edit_tool", "code_execution", ""} {
		text := d.refused(tool, args{"command": "true", "path": "f"})
		assert.Contains(t, text, "There is no tool", tool)
		for _, known := range d.Tools() {
			assert.Contains(t, text, known.Name, tool)
		}
	}
	for _, c := range []struct {
		tool, unknown, takes string
		a                    args
	}{
		{"bash", "cmd", "command, cwd, env, timeout_seconds", args{"cmd": "true"}},
		{"bash", "run_in_background", "command, cwd, env, timeout_seconds", args{"command": "true", "run_in_background": true}},
		{"bash", "restart", "command, cwd, env, timeout_seconds", args{"restart": true}},
		{"start_command", "workdir", "command, cwd, env, input", args{"command": "true", "workdir": "/"}},
		{"read_file", "file_path", "path, offset, limit", args{"file_path": "f"}},
		{"edit_file", "insert_line", "path, old_string, new_string, replace_all", args{"path": "f", "insert_line": 1}},
		{"grep", "-i", "pattern, path, glob, ignore_case, limit", args{"pattern": "x", "-i": true}},
		{"read_file", "Path", "path, offset, limit", args{"Path": "f"}},
	} {
		assert.Equal(t, `There is no argument "`+c.unknown+`". This tool takes: `+c.takes+".", d.refused(c.tool, c.a))
	}
	assert.Contains(t, d.refused("bash", args{"command": []string{"true"}}), `"command" is of the wrong type: array where string belongs`)
}
