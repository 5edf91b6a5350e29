package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
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

// newConversations returns Conversations with their own client, as in another process, and
// with the platform's default timeout.
func newConversations(t *testing.T, srv *sandboxtest.Server, opts *agent.ConversationsOptions) *agent.Conversations {
	t.Helper()
	p := agent.NewConversations(testkit.Client(t, srv, sandbox.ClientOptions{}), opts)
	t.Cleanup(func() { assert.NoError(t, p.Close(context.WithoutCancel(t.Context()))) })
	return p
}

func conversationTools(t *testing.T, srv *sandboxtest.Server, sessions agent.Sessions, conversation string, opts *agent.Options) *testTools {
	t.Helper()
	tools := agent.ForConversation(sessions, conversation, opts)
	t.Cleanup(func() { assert.NoError(t, tools.Close()) })
	return &testTools{tools, t, srv, nil}
}

// TestLongConversation: calls extend the session of their sandbox beyond its timeout of five
// minutes, however the sandbox was found.
func TestLongConversation(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	for name, sessions := range map[string]func(t *testing.T, client *sandbox.Client) agent.Sessions{
		"pool": func(t *testing.T, client *sandbox.Client) agent.Sessions {
			p := agent.NewConversations(client, &agent.ConversationsOptions{Prefix: "p-"})
			t.Cleanup(func() { assert.NoError(t, p.Close(context.WithoutCancel(t.Context()))) })
			return p
		},
		"by name": func(t *testing.T, client *sandbox.Client) agent.Sessions {
			_, err := client.Create(t.Context(), &sandbox.CreateOptions{Name: "chat"})
			require.NoError(t, err)
			return agent.ByName(client)
		},
		"one sandbox": func(t *testing.T, client *sandbox.Client) agent.Sessions {
			sb, err := client.Create(t.Context(), &sandbox.CreateOptions{Name: "chat"})
			require.NoError(t, err)
			return agent.SessionsFunc(func(context.Context, string) (*sandbox.Sandbox, error) { return sb, nil })
		},
	} {
		if name != "pool" && !needs.Slow() {
			continue // TestKeepRunning covers a sandbox that is found by its name
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := testkit.LightServer(t)
			client := testkit.Client(t, srv, sandbox.ClientOptions{})
			s := sessions(t, client)
			begun := make(chan struct{}, 1)
			d := conversationTools(t, srv, s, "chat", &agent.Options{Limits: agent.Limits{CallsPerMinute: -1}, OnOutput: func(agent.Call, []byte) { begun <- struct{}{} }})
			started := d.try("start_command", args{"command": "sleep 100000"})
			id := started.Data["command_id"]
			d.ok("python", args{"code": "n = 0"})
			calls := 24 // five minutes each
			if !needs.Slow() {
				calls = 1
			}
			for range calls {
				// The command runs beyond the original timeout.
				ended := make(chan agent.Result, 1)
				go func() {
					r, err := d.Call(t.Context(), "bash", json.RawMessage(`{"command": "mkfifo end; echo begun; read line <end; rm end", "timeout_seconds": 600}`))
					assert.NoError(t, err)
					ended <- r
				}()
				<-begun
				srv.Advance(4*time.Minute + 50*time.Second)
				_, err := client.ListPage(t.Context(), nil) // any response tells the client the time
				require.NoError(t, err)
				d.ok("bash", args{"command": "echo >end"})
				r := <-ended
				assert.Equal(t, "Exit code 0."+wrapped("begun\n"), r.Text)
			}
			assert.Contains(t, d.ok("python", args{"code": "n + 1"}), "1")
			assert.Contains(t, d.ok("read_output", args{"command_id": id, "wait_seconds": 0.1}), "It is still running.")
		})
	}
}

// TestKeepRunning: with KeepRunning, a sandbox runs for two hours without a call.
func TestKeepRunning(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv := testkit.LightServer(t)
	client := testkit.Client(t, srv, sandbox.ClientOptions{})
	_, err := client.Create(t.Context(), &sandbox.CreateOptions{Name: "chat"})
	require.NoError(t, err)
	extensions := func() (n int) {
		for _, r := range srv.Requests() {
			if r.Operation == sandboxtest.ExtendTimeout {
				n++
			}
		}
		return n
	}
	d := conversationTools(t, srv, agent.ByName(client), "chat", &agent.Options{KeepRunning: true})
	id := d.try("start_command", args{"command": "sleep 100000"}).Data["command_id"]
	times := 11
	if !needs.Slow() {
		times = 2
	}
	for i := range times {
		require.Equal(t, i+1, extensions(), "one extension before each end")
		srv.Advance(11 * time.Minute)
		require.Eventually(t, func() bool {
			sb, err := client.Get(t.Context(), "chat", &sandbox.GetOptions{NoResume: true}) // any response tells the client the time
			assert.NoError(t, err)
			return sb.CurrentSession().TimeLeft() > 10*time.Minute
		}, testkit.Patience, 50*time.Millisecond)
	}
	assert.Contains(t, d.ok("read_output", args{"command_id": id, "wait_seconds": 0.1}), "It is still running.")
}

// TestDeadMachine: if a machine dies before its files were saved, one result reports it, in
// the same process or another one, and the conversation continues with a new sandbox.
func TestDeadMachine(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv := testkit.LightServer(t)
	p := newConversations(t, srv, nil)
	for name, next := range map[string]agent.Sessions{"the same process": p, "another process": newConversations(t, srv, nil)} {
		d := conversationTools(t, srv, p, name, nil)
		assert.Contains(t, d.ok("bash", args{"command": "echo x >f"}), "This sandbox is new")
		assert.NotContains(t, d.ok("bash", args{"command": "cat f"}), "new")
		require.True(t, srv.Crash(p.Name(name)))
		if next != agent.Sessions(p) {
			d = conversationTools(t, srv, next, name, nil)
		}
		result := d.try("bash", args{"command": "touch done"})
		assert.True(t, result.Failed, name)
		assert.Contains(t, result.Text, "Not done: the machine of the sandbox died", name)
		assert.Equal(t, []string{"files", "commands", "variables"}, result.Data["lost"], name)
		for range 2 {
			result = d.try("bash", args{"command": "ls f done 2>/dev/null || echo empty"})
			assert.Contains(t, result.Text, "empty", name)
			assert.Nil(t, result.Data["lost"], name)
		}
		assert.NotContains(t, result.Text, "new", "the new sandbox is reported once")
	}
}

// TestDeleteAfterCrash: Delete works if the machine died before its files were saved.
func TestDeleteAfterCrash(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	p := newConversations(t, srv, nil)
	conversationTools(t, srv, p, "chat", nil).ok("bash", args{"command": "true"})
	require.NoError(t, p.Stop(t.Context(), "chat"))
	_, release, err := p.Acquire(t.Context(), "chat")
	require.NoError(t, err)
	release()
	require.True(t, srv.Crash(p.Name("chat")))
	require.NoError(t, p.Delete(t.Context(), "chat"))
	assert.Empty(t, statusOf(t, srv, p.Name("chat")))
}

// TestLossesReportedOnce: the next result says what was lost since the last call, once.
func TestLossesReportedOnce(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv := testkit.LightServer(t)
	p := newConversations(t, srv, nil)
	other := newConversations(t, srv, nil)
	d := conversationTools(t, srv, p, "chat", nil)
	d.ok("bash", args{"command": "true"})
	stop := func() {
		sb, err := srv.Client().Get(t.Context(), p.Name("chat"), &sandbox.GetOptions{NoResume: true})
		require.NoError(t, err)
		_, err = sb.Stop(t.Context(), nil)
		require.NoError(t, err)
	}
	reportsOnce := func(d *testTools, what string, lost ...string) {
		t.Helper()
		result := d.try("bash", args{"command": "true"})
		assert.Contains(t, result.Text, what)
		assert.Equal(t, lost, result.Data["lost"])
		result = d.try("bash", args{"command": "true"})
		assert.NotContains(t, result.Text, what)
		assert.Nil(t, result.Data["lost"])
	}
	const stopped, died = "was stopped since the last call", "died since the last call"
	stop() // by another program
	reportsOnce(d, stopped, "commands", "variables")
	require.NoError(t, p.Stop(t.Context(), "chat")) // as happens when the sandbox is idle
	reportsOnce(d, stopped, "commands", "variables")
	stop()
	next := conversationTools(t, srv, other, "chat", nil)
	reportsOnce(next, stopped, "commands", "variables") // in another process
	require.True(t, srv.Crash(p.Name("chat")))
	reportsOnce(next, died, "files", "commands", "variables")
	require.True(t, srv.Crash(p.Name("chat")))
	reportsOnce(conversationTools(t, srv, other, "chat", nil), died, "files", "commands", "variables") // with a new Toolset for each turn
	require.True(t, srv.Crash(p.Name("chat")))
	reportsOnce(conversationTools(t, srv, newConversations(t, srv, nil), "chat", nil), died, "files", "commands", "variables")

	// The machine still runs, but the interpreter belonged to another process.
	assert.Contains(t, conversationTools(t, srv, newConversations(t, srv, nil), "chat", nil).ok("python", args{"code": "2"}), "The interpreter is new")

	require.NoError(t, srv.Client().Delete(t.Context(), p.Name("chat"), nil))
	third := conversationTools(t, srv, newConversations(t, srv, nil), "chat", nil)
	assert.Contains(t, third.ok("bash", args{"command": "true"}), "This sandbox is new")

	_, _, err := p.Acquire(t.Context(), "")
	assert.ErrorIs(t, err, sandbox.ErrInvalid, "all callers without an ID would share a sandbox")
	assert.ErrorIs(t, p.Delete(t.Context(), ""), sandbox.ErrInvalid)
}

// TestMaxAge: a conversation's files are kept until MaxAge after their last use, by the
// service's clock. The next call reports that they are gone.
func TestMaxAge(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Start: time.Now().AddDate(0, -2, 0)})
	p := newConversations(t, srv, nil)
	d := conversationTools(t, srv, p, "diary", nil)
	const day = 24 * time.Hour
	times, pause := 15, day
	if !needs.Slow() {
		times, pause = 2, 6*day // MaxAge is seven days
	}
	for i := range times {
		d.ok("bash", args{"command": fmt.Sprintf("echo %d >>diary", i)})
		require.NoError(t, p.Stop(t.Context(), "diary"))
		n, err := p.Cleanup(t.Context())
		require.NoError(t, err)
		assert.Zero(t, n)
		srv.Advance(pause)
	}
	srv.Advance(6*day - pause)
	assert.Contains(t, d.ok("bash", args{"command": "wc -l <diary"}), fmt.Sprint(times))
	require.NoError(t, p.Stop(t.Context(), "diary"))
	srv.Advance(8 * day)
	result := d.try("bash", args{"command": "cat diary"})
	assert.Contains(t, result.Text, "Not done: the sandbox had not been used for so long")
	assert.Equal(t, []string{"files", "commands", "variables"}, result.Data["lost"])
	assert.Contains(t, d.ok("bash", args{"command": "cat diary || echo empty"}), "empty")
	require.NoError(t, p.Stop(t.Context(), "diary"))
	srv.Advance(8 * day)
	n, err := p.Cleanup(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Empty(t, statusOf(t, srv, p.Name("diary")))
}

// TestWrongDate: a wrong Date in a response does not make a conversation too old.
func TestWrongDate(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	gate := &testkit.Gateway{Next: testkit.Transport(t)}
	client := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}})
	p := agent.NewConversations(client, &agent.ConversationsOptions{MaxAge: 24 * time.Hour})
	defer func() { assert.NoError(t, p.Close(context.WithoutCancel(t.Context()))) }()
	d := conversationTools(t, srv, p, "diary", nil)
	d.ok("bash", args{"command": "echo precious >diary"})
	dates := []time.Duration{8 * 24 * time.Hour, -8 * 24 * time.Hour, 48 * time.Hour, -48 * time.Hour}
	if !needs.Slow() {
		dates = dates[:2]
	}
	for _, wrong := range dates {
		require.NoError(t, p.Stop(t.Context(), "diary"))
		gate.Set(testkit.ShiftDate(wrong))
		n, err := p.Cleanup(t.Context())
		require.NoError(t, err)
		assert.Zero(t, n, "%v", wrong)
		assert.Contains(t, d.ok("bash", args{"command": "cat diary"}), "precious", "%v", wrong)
		gate.Set(nil)
	}
}

// TestCleanupRaces: Cleanup does not delete a sandbox that has replaced the one that was too
// old.
func TestCleanupRaces(t *testing.T) {
	t.Parallel()
	for requests := range 3 { // number of requests by name before the sandbox is replaced
		if requests == 2 && !needs.Slow() {
			break // with two requests it is not replaced, which TestMaxAge tests too
		}
		srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Start: time.Now().AddDate(0, -1, 0)})
		p := newConversations(t, srv, nil)
		conversationTools(t, srv, p, "chat", nil).ok("bash", args{"command": "true"})
		require.NoError(t, p.Stop(t.Context(), "chat"))
		srv.Advance(8 * 24 * time.Hour)
		name := p.Name("chat")
		replace := func() {
			require.NoError(t, srv.Client().Delete(t.Context(), name, nil))
			sb, err := srv.Client().Create(t.Context(), &sandbox.CreateOptions{Name: name})
			require.NoError(t, err)
			_, err = sb.Stop(t.Context(), nil)
			require.NoError(t, err)
		}
		gate := &testkit.Gateway{Next: testkit.Transport(t)}
		seen := 0
		gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.HasSuffix(req.URL.Path, name) {
				if seen == requests && req.Method != http.MethodDelete || req.Method == http.MethodDelete && seen == 0 {
					replace()
				}
				seen++
			}
			return next.RoundTrip(req)
		})
		cleaner := agent.NewConversations(testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}}), nil)
		n, err := cleaner.Cleanup(t.Context())
		require.NoError(t, err)
		if requests < 2 {
			assert.Zero(t, n, "%d", requests)
			assert.Equal(t, sandbox.StatusStopped, statusOf(t, srv, name), "%d", requests)
		} else {
			assert.Equal(t, 1, n)
		}
	}
}

// TestNoMoreTime: if a session can't be extended further, one result tells the model and the
// program how much time is left.
func TestNoMoreTime(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	p := newConversations(t, srv, &agent.ConversationsOptions{Create: func(string) *sandbox.CreateOptions { return &sandbox.CreateOptions{Timeout: 24 * time.Hour} }})
	d := conversationTools(t, srv, p, "long", nil)
	d.ok("bash", args{"command": "true"})
	srv.Advance(23*time.Hour + 57*time.Minute)
	reports := 0
	require.Eventually(t, func() bool {
		result := d.try("bash", args{"command": "true"})
		if left, ok := result.Data["stops_in"].(time.Duration); ok {
			reports++
			assert.InDelta(t, 3*time.Minute, left, float64(time.Minute))
			assert.Contains(t, result.Text, "can't be kept running for longer: it stops in")
		}
		return reports > 0
	}, testkit.Patience, 10*time.Millisecond)
	requests := testkit.Count(srv, sandboxtest.ExtendTimeout)
	result := d.try("bash", args{"command": "true"})
	assert.Nil(t, result.Data["stops_in"], "it is reported once")
	assert.Equal(t, requests, testkit.Count(srv, sandboxtest.ExtendTimeout), "after the refusal there is no further request")
}
