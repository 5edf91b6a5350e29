package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func newLastingConversations(t *testing.T, srv *sandboxtest.Server, opts agent.ConversationsOptions) *agent.Conversations {
	t.Helper()
	opts.Create = func(string) *sandbox.CreateOptions { return testkit.Lasting(nil) }
	p := agent.NewConversations(srv.Client(), &opts)
	t.Cleanup(func() { assert.NoError(t, p.Close(context.WithoutCancel(t.Context()))) })
	return p
}

func statusOf(t *testing.T, srv *sandboxtest.Server, name string) sandbox.Status {
	t.Helper()
	sb, err := srv.Client().Get(t.Context(), name, &sandbox.GetOptions{NoResume: true})
	if errors.Is(err, sandbox.ErrNotFound) {
		return ""
	}
	require.NoError(t, err)
	return sb.Status()
}

// TestConversations: a sandbox is stopped when idle and keeps its files. The next call starts
// it. Cleanup deletes it when it is too old.
func TestConversations(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Start: time.Now().Add(-2 * time.Hour)})
	p := newLastingConversations(t, srv, agent.ConversationsOptions{Idle: 50 * time.Millisecond})
	tools := agent.ForConversation(p, "user 7: chat/3", nil)
	defer tools.Close()
	d := &testTools{tools, t, srv, nil}
	d.ok("write_file", args{"path": "f", "content": "kept"})
	name := p.Name("user 7: chat/3")
	assert.NotContains(t, name, "user")
	stopped := func() bool { return statusOf(t, srv, name) == sandbox.StatusStopped }
	require.Eventually(t, stopped, testkit.Patience, 10*time.Millisecond)
	assert.Contains(t, d.ok("read_file", args{"path": "f"}), "kept")
	d.ok("stop_sandbox", nil)
	assert.True(t, stopped())
	sb, release, err := p.Acquire(t.Context(), "user 7: chat/3")
	require.NoError(t, err)
	assert.Equal(t, name, sb.Name())
	testkit.Linger(200 * time.Millisecond)
	assert.Equal(t, sandbox.StatusRunning, statusOf(t, srv, name), "a sandbox in use is not idle")
	release()
	release() // a second call does nothing
	require.Eventually(t, stopped, testkit.Patience, 10*time.Millisecond)

	// Another process finds the same sandbox, and replaces it if it is older than MaxAge.
	other := newLastingConversations(t, srv, agent.ConversationsOptions{})
	again, release, err := other.Acquire(t.Context(), "user 7: chat/3")
	require.NoError(t, err)
	assert.Equal(t, name, again.Name())
	release()
	require.NoError(t, other.Stop(t.Context(), "user 7: chat/3"))
	old := newLastingConversations(t, srv, agent.ConversationsOptions{MaxAge: time.Minute})
	srv.Advance(time.Hour)
	fresh, release, err := old.Acquire(t.Context(), "user 7: chat/3")
	require.NoError(t, err)
	defer release()
	found, err := fresh.FS().Exists(t.Context(), "f")
	require.NoError(t, err)
	assert.False(t, found)

	// Cleanup deletes only stopped sandboxes of conversations.
	n, err := old.Cleanup(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
	require.NoError(t, old.Stop(t.Context(), "user 7: chat/3"))
	srv.Advance(time.Hour)
	_, err = srv.Client().Create(t.Context(), &sandbox.CreateOptions{Name: "mine"})
	require.NoError(t, err)
	n, err = newLastingConversations(t, srv, agent.ConversationsOptions{}).Cleanup(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
	n, err = old.Cleanup(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Empty(t, statusOf(t, srv, name))
	require.NoError(t, old.Delete(t.Context(), "nobody"))
	assert.NotEmpty(t, statusOf(t, srv, "mine"))
}

// TestMaxRunning: no more than MaxRunning sandboxes run.
func TestMaxRunning(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	p := newLastingConversations(t, srv, agent.ConversationsOptions{MaxRunning: 2, Idle: time.Hour})
	running := func() int {
		n := 0
		for info, err := range srv.Client().List(t.Context(), nil) {
			require.NoError(t, err)
			if info.Status == sandbox.StatusRunning {
				n++
			}
		}
		return n
	}
	_, releaseA, err := p.Acquire(t.Context(), "a")
	require.NoError(t, err)
	_, releaseB, err := p.Acquire(t.Context(), "b")
	require.NoError(t, err)
	// Both are in use. A third Acquire waits until its context ends.
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() {
		_, _, err := p.Acquire(ctx, "c")
		waits <- err
	}()
	cancel()
	require.ErrorIs(t, <-waits, context.Canceled)
	// The least recently used sandbox is stopped to make room.
	releaseB()
	releaseA()
	_, releaseC, err := p.Acquire(t.Context(), "c")
	require.NoError(t, err)
	assert.Equal(t, 2, running())
	assert.Equal(t, sandbox.StatusStopped, statusOf(t, srv, p.Name("b")))
	releaseC()

	// Of many concurrent calls, each succeeds.
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			sb, release, err := p.Acquire(t.Context(), fmt.Sprint(i%4))
			if assert.NoError(t, err) {
				assert.LessOrEqual(t, running(), 2)
				_, err := sb.RunCommand(t.Context(), "true", nil, nil)
				assert.NoError(t, err)
				release()
			}
		})
	}
	wg.Wait()
	require.NoError(t, p.Close(t.Context()))
	assert.Zero(t, running())
	_, _, err = p.Acquire(t.Context(), "a")
	require.Error(t, err)
}

// TestProject: each call names its sandbox, and tools create, list and remove sandboxes.
func TestProject(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv := testkit.LightServer(t)
	tools := agent.ForProject(srv.Client(), nil)
	defer tools.Close()
	d := &testTools{tools, t, srv, nil}
	for _, tool := range tools.Tools() {
		var s struct {
			Properties map[string]any
			Required   []string
		}
		require.NoError(t, json.Unmarshal(tool.InputSchema, &s))
		own := tool.Name == "create_sandbox" || tool.Name == "list_sandboxes"
		assert.Equal(t, !own, s.Properties["sandbox"] != nil, tool.Name)
		assert.Equal(t, !own, len(s.Required) > 0 && s.Required[0] == "sandbox", tool.Name)
	}
	text := d.ok("create_sandbox", args{"name": "a", "env": args{"K": "v"}, "tags": args{"x": "y"}, "region": "sfo1", "timeout_minutes": 60})
	created, err := srv.Client().Get(t.Context(), "a", &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	assert.Equal(t, "sfo1", created.Info().Region)
	assert.Contains(t, text, "Created the sandbox a. Commands start in /vercel.")
	assert.Contains(t, d.refused("create_sandbox", args{"name": "a"}), "The sandbox service refuses this:\n<sandbox-data>\n")
	assert.Contains(t, d.refused("create_sandbox", args{"vcpus": 3}), "VCPUs")
	d.ok("write_file", args{"sandbox": "a", "path": "f", "content": "of a"})
	assert.Contains(t, d.ok("bash", args{"sandbox": "a", "command": "echo $K"}), "\nv\n")
	id := d.try("create_snapshot", args{"sandbox": "a"}).Data["snapshot_id"]
	d.ok("create_sandbox", args{"name": "b", "snapshot_id": id, "timeout_minutes": 60})
	assert.Contains(t, d.ok("read_file", args{"sandbox": "b", "path": "f"}), "of a")
	d.ok("write_file", args{"sandbox": "b", "path": "f", "content": "of b"})
	assert.Contains(t, d.ok("read_file", args{"sandbox": "a", "path": "f"}), "of a")
	assert.Contains(t, d.refused("bash", args{"command": "true"}), "list_sandboxes lists all")
	assert.Contains(t, d.refused("bash", args{"sandbox": "none", "command": "true"}), "There is no sandbox")
	d.ok("stop_sandbox", args{"sandbox": "a"})
	starts := testkit.Count(srv, sandboxtest.GetSandbox)
	d.ok("stop_sandbox", args{"sandbox": "a"})
	assert.Equal(t, starts+1, testkit.Count(srv, sandboxtest.GetSandbox))
	assert.Equal(t, sandbox.StatusStopped, statusOf(t, srv, "a"), "stop_sandbox does not start the sandbox first")
	assert.Contains(t, d.ok("list_sandboxes", nil), "a (stopped, vercel/sandbox/universal) x=y")
	assert.Contains(t, d.ok("list_sandboxes", args{"name_prefix": "b"}), "1 sandboxes.")
	d.ok("remove_sandbox", args{"sandbox": "a"})
	assert.Contains(t, d.refused("remove_sandbox", args{"sandbox": "a"}), "There is no sandbox")
}

// TestProjectLimits: Limits and Options.Create restrict which sandboxes a model can create.
func TestProjectLimits(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	tools := agent.ForProject(srv.Client(), &agent.Options{
		Limits: agent.Limits{Sandboxes: 2, VCPUs: 2},
		Create: func(_ context.Context, o *sandbox.CreateOptions) error {
			if o.Name == "forbidden" {
				return agent.Refuse("not this name")
			}
			o.VCPUs, o.NetworkPolicy, o.Tags = 1, sandbox.DenyAll(), map[string]string{"by": "model"}
			return nil
		},
	})
	defer tools.Close()
	d := &testTools{tools, t, srv, nil}
	assert.Contains(t, d.refused("create_sandbox", args{"name": "big", "vcpus": 4}), "at most 2 vcpus")
	assert.Equal(t, "Refused: not this name", d.refused("create_sandbox", args{"name": "forbidden"}))
	d.ok("create_sandbox", args{"name": "a", "vcpus": 2, "tags": args{"x": "y"}})
	sb, err := srv.Client().Get(t.Context(), "a", &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"by": "model"}, sb.Info().Tags)
	assert.Equal(t, 1, sb.Info().VCPUs)
	assert.Equal(t, sandbox.DenyAll(), sb.Info().NetworkPolicy)
	assert.Contains(t, d.refused("create_sandbox", args{"name": "a"}), "refuses this")
	d.ok("create_sandbox", args{"name": "b"})
	assert.Contains(t, d.refused("create_sandbox", args{"name": "c"}), "2 sandboxes that you have created")
	d.ok("remove_sandbox", args{"sandbox": "a"})
	d.ok("create_sandbox", args{"name": "c"})
}

// TestInvalidOptions: with invalid options each call fails before it does anything, and the
// model is not asked to try again.
func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	newToolset := func(o agent.ConversationsOptions) *agent.Toolset {
		p := agent.NewConversations(nil, &o)
		t.Cleanup(func() { assert.NoError(t, p.Close(context.WithoutCancel(t.Context()))) })
		return agent.ForConversation(p, "chat", nil)
	}
	for want, tools := range map[string]*agent.Toolset{
		`Tools: "bsh" is none of bash`:  agent.New(nil, &agent.Options{Tools: []string{"bash", "bsh"}}),
		"Limits.Timeout: -1ns is neg":   agent.New(nil, &agent.Options{Limits: agent.Limits{Timeout: -1}}),
		"Limits.Timeout: 1h0m0s is mor": agent.New(nil, &agent.Options{Limits: agent.Limits{Timeout: time.Hour, MaxTimeout: time.Second}}),
		"Limits.Output: -1 is less":     agent.ForProject(nil, &agent.Options{Limits: agent.Limits{Output: -1}}),
		"Limits.Output: 10 is less":     agent.New(nil, &agent.Options{Limits: agent.Limits{Output: 10}}),
		"Limits.Calls: -1 is negative":  agent.New(nil, &agent.Options{Limits: agent.Limits{Calls: -1}}),
		"the Sandbox is nil, or":        agent.New(nil, nil),
		"the Sandbox is nil, or was":    agent.New(&sandbox.Sandbox{}, nil),
		"sessions: is nil":              agent.ForConversation(nil, "chat", nil),
		`Paths: "src"`:                  agent.New(nil, &agent.Options{Paths: []string{"/a", "src"}}),
		`Prefix: "my agent/"`:           newToolset(agent.ConversationsOptions{Prefix: "my agent/"}),
		"Idle: -1ns is negative":        newToolset(agent.ConversationsOptions{Idle: -1}),
		"MaxRunning: -1 is negative":    newToolset(agent.ConversationsOptions{MaxRunning: -1}),
		"conversation: the ID is empty": agent.ForConversation(agent.NewConversations(nil, nil), "", nil),
	} {
		result, err := tools.Call(t.Context(), "bash", json.RawMessage(`{"command": "true"}`))
		require.ErrorIs(t, err, sandbox.ErrInvalid, want)
		assert.ErrorContains(t, err, "agent: invalid argument: "+want)
		assert.Contains(t, result.Text, "nothing that you call can change it", want)
		require.NoError(t, tools.Close())
	}
	offered := agent.New(nil, &agent.Options{Tools: []string{"bash", "save_artifact"}})
	defer offered.Close()
	assert.Len(t, offered.Tools(), 1, "naming a tool for artifacts without a folder is not a mistake")
}

// TestListPages: a model can list all sandboxes of a project page by page, even if few fit
// into a result.
func TestListPages(t *testing.T) {
	t.Parallel()
	const n = 30
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"name": "box-%02d", "status": "stopped", "runtime": "node24", "tags": {"k": "%s"}}`, i, strings.Repeat(`\n`, 300))
	}
	client := canned.API(func(req *http.Request) (*http.Response, error) {
		query := req.URL.Query()
		limit, err := strconv.Atoi(query.Get("limit"))
		assert.NoError(t, err)
		from, _ := strconv.Atoi(query.Get("cursor")) // zero for the first page
		to := min(from+limit, n)
		next := "null"
		if to < n {
			next = fmt.Sprintf(`"%d"`, to)
		}
		return canned.JSON(http.StatusOK, fmt.Sprintf(`{"sandboxes": [%s], "pagination": {"count": %d, "next": %s}}`, strings.Join(all[from:to], ","), to-from, next)), nil
	}).Client(t)
	tools := agent.ForProject(client, &agent.Options{Limits: agent.Limits{Output: 4 << 10}})
	defer tools.Close()
	d := &testTools{tools, t, nil, nil}
	seen := ""
	for cursor, more := "", true; more; {
		result := d.try("list_sandboxes", args{"cursor": cursor})
		assert.LessOrEqual(t, len(result.Text), 4<<10)
		seen += result.Text
		cursor, more = result.Data["cursor"].(string)
		assert.Equal(t, more, strings.Contains(result.Text, "There are more: cursor "+cursor+"."))
	}
	for i := range n {
		assert.Equal(t, 1, strings.Count(seen, fmt.Sprintf("box-%02d (stopped", i)), i)
	}
}

// TestSessionErrors: if a sandbox can't be found, that is an error for the program if the
// program chose it, and a failed result if the model chose it.
func TestSessionErrors(t *testing.T) {
	t.Parallel()
	srv := testkit.SharedServer(t)
	const command = `{"command": "true"}`
	failWith := func(err error) agent.Sessions {
		return agent.SessionsFunc(func(context.Context, string) (*sandbox.Sandbox, error) { return nil, err })
	}
	wrong := &agent.ConversationsOptions{Create: func(string) *sandbox.CreateOptions { return &sandbox.CreateOptions{VCPUs: 3} }}
	pool := agent.NewConversations(srv.Client(), wrong)
	defer func() { assert.NoError(t, pool.Close(t.Context())) }()
	for name, test := range map[string]struct {
		sessions agent.Sessions
		matches  error
		text     string
	}{
		"options":        {pool, sandbox.ErrInvalid, "are not valid"},
		"file":           {failWith(&fs.PathError{Op: "open", Path: "/home/me/ids", Err: fs.ErrNotExist}), fs.ErrNotExist, "can't be used at the moment"},
		"no credentials": {failWith(auth.ErrNoCredentials), auth.ErrNoCredentials, "has no credentials"},
		"no sandbox":     {agent.ByName(srv.Client()), sandbox.ErrNotFound, "no longer exists"},
	} {
		tools := agent.ForConversation(test.sessions, "none", nil)
		for _, tool := range []string{"bash", "stop_sandbox"} {
			given := command
			if tool != "bash" {
				given = "{}"
			}
			if tool != "bash" && name == "options" {
				continue // there is nothing to stop
			}
			result, err := tools.Call(t.Context(), tool, json.RawMessage(given))
			require.ErrorIs(t, err, test.matches, "%s %s: %s", name, tool, result.Text)
			assert.True(t, result.Failed)
			assert.Contains(t, result.Text, test.text, name)
			assert.NotContains(t, result.Text, "/home/me", name)
		}
		require.NoError(t, tools.Close())
	}
	project := agent.ForProject(srv.Client(), nil)
	defer project.Close()
	for _, name := range []string{"none", "not/valid"} {
		result, err := project.Call(t.Context(), "bash", json.RawMessage(fmt.Sprintf(`{"sandbox": %q, "command": "true"}`, name)))
		require.NoError(t, err)
		assert.True(t, result.Failed)
	}
}

// TestErrorsForTheProgram: problems that the model can't fix are errors for the program. The
// text for the model contains nothing from the API's message.
func TestErrorsForTheProgram(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	const secret = "token-in-a-message"
	refuse := func(status int, code string) canned.API {
		return func(req *http.Request) (*http.Response, error) {
			if strings.HasSuffix(req.URL.Path, "/cmd") && req.Method == http.MethodPost {
				return canned.JSON(status, fmt.Sprintf(`{"error": {"code": %q, "message": %q}}`, code, secret)), nil
			}
			return canned.JSON(http.StatusOK, canned.RunningSandbox), nil
		}
	}
	for name, test := range map[string]struct {
		api     canned.API
		matches error
		text    string
	}{
		"credentials": {refuse(http.StatusForbidden, "forbidden"), sandbox.ErrUnauthorized, "refuses the credentials"},
		"quota":       {refuse(http.StatusPaymentRequired, "payment_required"), sandbox.ErrQuotaExceeded, "quota"},
		"rate":        {refuse(http.StatusTooManyRequests, "rate_limited"), sandbox.ErrRateLimited, "Wait a minute"},
		"gone":        {refuse(http.StatusNotFound, "not_found"), sandbox.ErrNotFound, "no longer exists"},
		"unknown":     {refuse(http.StatusInternalServerError, "internal"), nil, "It is unknown whether this was done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, err := sandbox.NewClient(&sandbox.ClientOptions{
					HTTPClient: &http.Client{Transport: test.api}, Credentials: auth.Static(auth.Credentials{Token: "t", TeamID: "team", ProjectID: "prj"}), MaxRetries: -1,
				})
				require.NoError(t, err)
				sb, err := client.Get(t.Context(), "box", nil)
				require.NoError(t, err)
				var reported []error
				tools := agent.New(sb, &agent.Options{OnError: func(_ agent.Call, err error) { reported = append(reported, err) }})
				defer tools.Close()
				result, err := tools.Call(t.Context(), "bash", json.RawMessage(`{"command": "true"}`))
				assert.True(t, result.Failed)
				assert.Contains(t, result.Text, test.text)
				assert.NotContains(t, result.Text, secret)
				if test.matches == nil { // the model can check it, so the program gets no error
					require.NoError(t, err)
					assert.Empty(t, reported)
					return
				}
				require.ErrorIs(t, err, test.matches)
				assert.Equal(t, []error{err}, reported)
			})
		})
	}
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		tools := agent.New(nil, nil)
		require.NoError(t, tools.Close())
		_, err := tools.Call(t.Context(), "bash", json.RawMessage(`{"command": "true"}`))
		require.ErrorContains(t, err, "closed")
	})
}
