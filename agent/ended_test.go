package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// ends are the ways in which a session ends, and what is lost in each case.
var ends = []struct {
	name string
	end  func(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox)
	lost []string
}{
	{"stop", func(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox) {
		other, err := srv.Client().Get(t.Context(), sb.Name(), &sandbox.GetOptions{NoResume: true})
		require.NoError(t, err)
		_, err = other.Stop(t.Context(), nil)
		require.NoError(t, err)
	}, []string{"commands", "variables"}},
	{"timeout", func(_ *testing.T, srv *sandboxtest.Server, _ *sandbox.Sandbox) { srv.Advance(3 * time.Hour) }, []string{"commands", "variables"}},
	{"crash", func(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox) {
		require.True(t, srv.Crash(sb.Name()))
	}, []string{"files", "commands", "variables"}},
}

// nextRequestHook is a transport that calls fn before the next request, once.
type nextRequestHook struct {
	next http.RoundTripper
	fn   atomic.Pointer[func()]
}

func (h *nextRequestHook) RoundTrip(r *http.Request) (*http.Response, error) {
	if fn := h.fn.Swap(nil); fn != nil {
		(*fn)()
	}
	return h.next.RoundTrip(r)
}

// savedSandbox returns the sandbox of the conversation "chat", whose files are in a snapshot,
// and Conversations whose requests go through the hook.
func savedSandbox(t *testing.T, srv *sandboxtest.Server) (*sandbox.Sandbox, *sandbox.Client, *agent.Conversations, *nextRequestHook) {
	t.Helper()
	h := &nextRequestHook{next: testkit.Transport(t)}
	client := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: h}})
	conversations := agent.NewConversations(client, nil)
	t.Cleanup(func() { assert.NoError(t, conversations.Close(context.WithoutCancel(t.Context()))) })
	sb, err := client.Create(t.Context(), &sandbox.CreateOptions{Name: conversations.Name("chat"), Timeout: time.Hour, Ports: []int{3000}})
	require.NoError(t, err)
	require.NoError(t, sb.FS().WriteFile(t.Context(), "f", []byte("text\n"), 0o644))
	_, err = sb.Stop(t.Context(), nil) // after a crash the sandbox has these files
	require.NoError(t, err)
	require.NoError(t, sb.Resume(t.Context()))
	return sb, client, conversations, h
}

// toolsByDay are the tools that are tested without SANDBOX_SLOW=1. They differ in how they notice
// the end of a session. Each other tool behaves like one of these, and a timeout like a stop.
var toolsByDay = map[string][]string{
	"stop, a sandbox":      {"bash", "read_output", "write_file", "stop_sandbox"},
	"crash, conversations": {"stop_sandbox"},
	"crash, by name":       {"bash"},
}

// TestSessionEndsDuringTools ends the session before a call, or at its first request. The call
// returns no error for the program. The loss is reported once, by the first call that notices
// it. A call that did not fail has completed.
func TestSessionEndsDuringTools(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	needs.Programs(t, "python3")
	for _, how := range ends {
		for _, sessions := range []string{"a sandbox", "conversations", "by name"} {
			name := how.name + ", " + sessions
			tools := toolsByDay[name]
			if tools == nil && !needs.Slow() {
				continue
			}
			if needs.Slow() {
				tools = nil
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				testSessionEnds(t, sessions, tools, how.end, how.lost)
			})
		}
	}
}

// testSessionEnds tests the tools with these names, or all tools if tools is nil.
func testSessionEnds(t *testing.T, sessions string, tools []string, endSession func(*testing.T, *sandboxtest.Server, *sandbox.Sandbox), lost []string) {
	crash := slices.Contains(lost, "files")
	srv := testkit.LightServer(t)
	sb, client, conversations, h := savedSandbox(t, srv)
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, root.Close()) })
	require.NoError(t, root.WriteFile("local", []byte("x"), 0o600))
	opts := &agent.Options{Artifacts: root, Limits: agent.Limits{CallsPerMinute: -1}}
	var d *testTools
	switch sessions {
	case "a sandbox":
		d = toolsFor(t, srv, sb, opts)
	case "conversations":
		d = conversationTools(t, srv, conversations, "chat", opts)
	default:
		d = conversationTools(t, srv, agent.ByName(client), sb.Name(), opts)
	}
	other := toolsFor(t, srv, sb, opts)
	var snapshot any
	if tools == nil {
		snapshot = d.try("create_snapshot", nil).Data["snapshot_id"]
	}
	d.ok("bash", args{"command": "true"})
	calls := map[string]args{
		"bash": {"command": "touch mark"}, "start_command": {"command": "sleep 1000"}, "python": {"code": "open('mark', 'w').close()"},
		"read_output": {"wait_seconds": 0.1}, "write_input": {"text": "x"}, "stop_command": {},
		"read_file": {"path": "f"}, "write_file": {"path": "mark", "content": ""}, "edit_file": {"path": "f", "old_string": "text", "new_string": "text!"},
		"list_files": {}, "glob": {"pattern": "*"}, "grep": {"pattern": "text"}, "save_artifact": {"path": "f"}, "load_artifact": {"name": "local", "path": "mark"},
		"port_url": {"port": 3000, "wait_seconds": 0.1}, "create_snapshot": {}, "restore_snapshot": {"snapshot_id": snapshot}, "stop_sandbox": {},
	}
	ofStart := []string{"read_output", "write_input", "stop_command"}
	stops := []string{"create_snapshot", "restore_snapshot", "stop_sandbox"}
	marks := []string{"bash", "python", "write_file", "load_artifact"}
	for _, tool := range d.Tools() {
		a, ok := calls[tool.Name]
		require.True(t, ok, "no call of %s", tool.Name)
		if tools != nil && !slices.Contains(tools, tool.Name) {
			continue
		}
		for _, during := range []bool{true, false} {
			if !during && tools != nil && tool.Name != "bash" {
				continue
			}
			name := fmt.Sprintf("%s, during it: %v", tool.Name, during)
			d.ok("bash", args{"command": "rm -f mark; echo text >f"})
			if tool.Name == "python" {
				d.ok("python", args{"code": "x = 1"})
			}
			othersToo := tools == nil || tool.Name == "bash"
			if othersToo {
				other.try("bash", args{"command": "true"})
			}
			if slices.Contains(ofStart, tool.Name) {
				a["command_id"] = d.try("start_command", args{"command": "exec cat", "input": true}).Data["command_id"]
			}
			end := func() { endSession(t, srv, sb) }
			if during {
				h.fn.Store(&end)
			} else {
				end()
			}
			result := d.try(tool.Name, a) // checks that there is no error
			next := d.try("bash", args{"command": "ls mark || true"})
			h.fn.Store(nil)
			require.False(t, next.Failed, "%s: the next call: %s", name, next.Text)
			first, second := result.Data["lost"], next.Data["lost"]
			switch {
			case slices.Contains(stops, tool.Name):
				assert.True(t, first != nil || second != nil, "%s: %s", name, result.Text)
				assert.False(t, tool.Name == "stop_sandbox" && first != nil && second != nil, "%s: reported twice: %s", name, next.Text)
				continue
			case first == nil: // the tool did not need the session, or was done before
				assert.False(t, result.Failed, "%s: %s", name, result.Text)
				assert.Equal(t, lost, second, "%s: the next call: %s; before: %s", name, next.Text, result.Text)
			default:
				assert.Equal(t, lost, first, "%s: %s", name, result.Text)
				assert.Nil(t, second, "%s: reported twice: %s", name, next.Text)
			}
			if slices.Contains(marks, tool.Name) && !result.Failed && !(crash && first == nil) {
				assert.Contains(t, next.Text, "mark\n", "%s has not failed, and has not run: %s", name, result.Text)
			}
			// Another user of the sandbox gets a report of the same losses.
			if othersToo {
				assert.Equal(t, lost, other.try("bash", args{"command": "true"}).Data["lost"], name)
			}
		}
	}
}

// TestSessionEndsDuringPrograms ends the session while a program runs, with one and with two
// users of the sandbox. The result contains the output so far.
func TestSessionEndsDuringPrograms(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	needs.Programs(t, "python3")
	for _, how := range ends {
		for _, users := range []int{1, 2} {
			only := map[string][]string{"stop": {"bash"}, "timeout": {"read_output", "port_url"}, "crash": {"python"}}[how.name]
			if !needs.Slow() && (users == 2) != (how.name == "stop") { // without SANDBOX_SLOW=1, test two users for a stop, otherwise one
				continue
			}
			t.Run(fmt.Sprintf("%s, users: %d", how.name, users), func(t *testing.T) {
				t.Parallel()
				srv := testkit.LightServer(t)
				sb, _, _, _ := savedSandbox(t, srv)
				for tool, a := range map[string]args{
					"bash":        {"command": "echo begun; echo >begun; sleep 1000"},
					"python":      {"code": "import time\nprint('begun', flush=True)\nwith open('begun', 'w') as f: f.write('\\n')\ntime.sleep(1000)"},
					"read_output": {"wait_seconds": 60},
					"port_url":    {"port": 3000, "wait_seconds": 60},
				} {
					if !needs.Slow() && !slices.Contains(only, tool) {
						continue
					}
					var desks []*testTools
					for range users {
						d := toolsFor(t, srv, sb, nil)
						d.ok("bash", args{"command": "[ -e begun ] || mkfifo begun"})
						desks = append(desks, d)
					}
					if tool == "read_output" {
						a["command_id"] = desks[0].try("start_command", args{"command": "echo begun; printf '\\n\\n' >begun; sleep 1000"}).Data["command_id"]
					}
					var wg sync.WaitGroup
					results := make([]agent.Result, users)
					for i, d := range desks {
						wg.Go(func() {
							text, err := json.Marshal(a)
							assert.NoError(t, err)
							results[i], err = d.Call(t.Context(), tool, text)
							assert.NoError(t, err, "%s: %s", tool, results[i].Text)
						})
					}
					if tool != "port_url" {
						testkit.Output(t, sb, "sh", "-c", fmt.Sprintf("head -n %d <>begun; rm begun", users))
					}
					how.end(t, srv, sb)
					wg.Wait()
					for i, d := range desks {
						name := fmt.Sprintf("%s of user %d: %s", tool, i, results[i].Text)
						assert.True(t, results[i].Failed, name)
						assert.Contains(t, results[i].Text, "before this call was done", name)
						assert.Equal(t, how.lost, results[i].Data["lost"], name)
						if tool == "bash" || tool == "python" {
							assert.Contains(t, results[i].Text, "begun", name)
						}
						next := d.try("bash", args{"command": "true"})
						assert.False(t, next.Failed, next.Text)
						assert.Nil(t, next.Data["lost"], "%s\nsays it twice: %s", name, next.Text)
					}
				}
			})
		}
	}
}
