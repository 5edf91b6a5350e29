package sandbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestHooksOfTheSession: OnResume runs for a session that another process has
// started without hooks, for the first handle with hooks that uses it, and for no
// other.
func TestHooksOfTheSession(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	c, other := testkit.Client(t, srv, sandbox.ClientOptions{}), testkit.Client(t, srv, sandbox.ClientOptions{})
	var created, resumed atomic.Int64
	count := func(n *atomic.Int64) sandbox.Hook {
		return func(context.Context, *sandbox.Sandbox) error { n.Add(1); return nil }
	}
	opts := &sandbox.CreateOptions{OnCreate: count(&created), OnResume: count(&resumed)}
	first, err := c.GetOrCreate(t.Context(), "x", opts)
	require.NoError(t, err)
	testkit.Output(t, first, "true")
	assert.EqualValues(t, 0, resumed.Load(), "the first session was not resumed")
	restart := func() {
		_, err := first.Stop(t.Context(), nil)
		require.NoError(t, err)
		plain, err := other.Get(t.Context(), "x", nil)
		require.NoError(t, err)
		testkit.Output(t, plain, "true")
	}
	restart()
	testkit.Output(t, first, "true")
	assert.EqualValues(t, 1, resumed.Load(), "by a handle from before")
	again, err := c.GetOrCreate(t.Context(), "x", opts)
	require.NoError(t, err)
	testkit.Output(t, again, "true")
	assert.EqualValues(t, 1, resumed.Load(), "it has run")

	restart()
	got, err := c.Get(t.Context(), "x", &sandbox.GetOptions{OnResume: opts.OnResume})
	require.NoError(t, err)
	assert.EqualValues(t, 2, resumed.Load(), "by Get")
	testkit.Output(t, got, "true")
	testkit.Output(t, first, "true")
	third, err := testkit.Client(t, srv, sandbox.ClientOptions{}).GetOrCreate(t.Context(), "x", opts)
	require.NoError(t, err)
	testkit.Output(t, third, "true")
	assert.EqualValues(t, 2, resumed.Load())

	restart()
	looked, err := c.Get(t.Context(), "x", &sandbox.GetOptions{NoResume: true, OnResume: opts.OnResume})
	require.NoError(t, err)
	assert.EqualValues(t, 2, resumed.Load(), "it is only looked at")
	testkit.Output(t, looked, "true")
	assert.EqualValues(t, 3, resumed.Load())
	assert.EqualValues(t, 1, created.Load())
}

// TestClientHooks: handles from JSON have the hooks of their client, and options
// with hooks of their own keep those.
func TestClientHooks(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	var created, resumed, own atomic.Int64
	c := testkit.Client(t, srv, sandbox.ClientOptions{Hooks: func(sb sandbox.Info) (onCreate, onResume sandbox.Hook) {
		if sb.Tags["kind"] != "preview" {
			return nil, nil
		}
		return func(context.Context, *sandbox.Sandbox) error { created.Add(1); return nil },
			func(context.Context, *sandbox.Sandbox) error { resumed.Add(1); return nil }
	}})
	for _, kind := range []string{"preview", "other"} {
		made, err := c.GetOrCreate(t.Context(), kind, &sandbox.CreateOptions{Tags: map[string]string{"kind": kind}})
		require.NoError(t, err)
		_, err = made.Stop(t.Context(), nil)
		require.NoError(t, err)
		text, err := json.Marshal(made)
		require.NoError(t, err)
		var decoded sandbox.Sandbox
		require.NoError(t, json.Unmarshal(text, &decoded))
		c.Bind(&decoded)
		testkit.Output(t, &decoded, "true")
	}
	assert.EqualValues(t, 1, created.Load())
	assert.EqualValues(t, 1, resumed.Load())

	sb, err := c.Get(t.Context(), "preview", nil)
	require.NoError(t, err)
	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	_, err = c.Get(t.Context(), "preview", &sandbox.GetOptions{OnResume: func(context.Context, *sandbox.Sandbox) error { own.Add(1); return nil }})
	require.NoError(t, err)
	assert.EqualValues(t, 1, own.Load())
	assert.EqualValues(t, 1, resumed.Load())
}

// TestHookOutlivesItsSession: OnResume that goes on in the next session, since its
// own has been stopped, has run for that one, too, unless it fails.
func TestHookOutlivesItsSession(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		runs := 0
		var direct *sandbox.Sandbox
		srv, _, sb, direct := testkit.Behind(t, sandbox.ClientOptions{}, &sandbox.CreateOptions{OnResume: func(ctx context.Context, sb *sandbox.Sandbox) error {
			if runs++; runs > 1 {
				return nil
			}
			if _, err := direct.Stop(ctx, nil); err != nil {
				return err
			}
			_, err := sb.RunCommand(ctx, "true", nil, nil)
			if err == nil && fails {
				err = errors.New("no licence")
			}
			return err
		}})
		testkit.StopElsewhere(t, srv, sb)
		_, err := sb.RunCommand(t.Context(), "true", nil, nil)
		assert.Equal(t, fails, err != nil, "%v", err)
		testkit.Output(t, sb, "true")
		testkit.Output(t, sb, "true")
		want := 1
		if fails {
			want = 2
		}
		assert.Equal(t, want, runs, "fails: %v", fails)
	}
}

// TestOnCreateNeedsATag: with five tags of one's own there is none left by which
// other processes know that OnCreate is due, which is an error before any request.
func TestOnCreateNeedsATag(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	onCreate := func(context.Context, *sandbox.Sandbox) error { return nil }
	for _, tags := range []map[string]string{
		{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}, {"go-sandbox-creation": "mine"},
	} {
		_, err := c.GetOrCreate(t.Context(), "preview", &sandbox.CreateOptions{Tags: tags, OnCreate: onCreate})
		assert.ErrorIs(t, err, sandbox.ErrInvalid)
		assert.ErrorContains(t, err, "go-sandbox-creation")
		assert.Empty(t, srv.Requests())
	}
	sb, err := c.GetOrCreate(t.Context(), "preview", &sandbox.CreateOptions{Tags: map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}, OnCreate: onCreate})
	require.NoError(t, err)
	assert.Len(t, sb.Info().Tags, 4)
}

// TestLocksOfALongLife: hooks and EnsureCommand work without a home that can be
// written, and what tells other processes of them does not grow with the sessions.
func TestLocksOfALongLife(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]sandbox.Env{"home": nil, "no home": {"HOME": "/nonexistent"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, other := testkit.Start(t, nil)
			if env != nil {
				testkit.NeedBox(t, other) // the locks are in /tmp
			}
			lives, ids := 4, []string{"web", "db", "worker"}
			if !needs.Slow() {
				lives, ids = 3, ids[:2]
			}
			created, resumed := 0, 0
			var locks []string
			for range lives {
				c := testkit.Client(t, srv, sandbox.ClientOptions{}) // as of another process
				for range 2 {
					sb, err := c.GetOrCreate(t.Context(), "long", &sandbox.CreateOptions{
						Env:      env,
						OnCreate: func(context.Context, *sandbox.Sandbox) error { created++; return nil },
						OnResume: func(context.Context, *sandbox.Sandbox) error { resumed++; return nil },
					})
					require.NoError(t, err)
					for _, id := range ids {
						_, err := sb.EnsureCommand(t.Context(), id, "sleep", []string{"1000"}, nil)
						require.NoError(t, err)
					}
				}
				sb, err := c.Get(t.Context(), "long", &sandbox.GetOptions{NoResume: true})
				require.NoError(t, err)
				locks = append(locks, strings.TrimSpace(testkit.Output(t, sb, "sh", "-c",
					`for d in "$HOME" /tmp; do [ ! -d "$d/.go-sandbox" ] || find "$d/.go-sandbox" -mindepth 1; done | wc -l`)))
				_, err = sb.Stop(t.Context(), nil)
				require.NoError(t, err)
			}
			assert.Equal(t, 1, created)
			assert.Equal(t, lives-1, resumed)
			require.NotEqual(t, "0", locks[0], "they are elsewhere")
			assert.Equal(t, locks[1], locks[lives-1], "%v", locks)
		})
	}
}

// TestHooksCost: nothing without hooks, and one request to learn that they have
// run, once for each client.
func TestHooksCost(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv := sandboxtest.New(t, nil)
	nothing := func(context.Context, *sandbox.Sandbox) error { return nil }
	get := func(c *sandbox.Client, onResume sandbox.Hook) int {
		before := len(srv.Requests())
		sb, err := c.Get(t.Context(), "x", &sandbox.GetOptions{OnResume: onResume})
		require.NoError(t, err)
		testkit.Output(t, sb, "true")
		return len(srv.Requests()) - before
	}
	a, b := testkit.Client(t, srv, sandbox.ClientOptions{}), testkit.Client(t, srv, sandbox.ClientOptions{})
	made, err := a.Create(t.Context(), &sandbox.CreateOptions{Name: "x"})
	require.NoError(t, err)
	assert.Equal(t, 2, get(a, nothing), "the first session needs no hook")
	_, err = made.Stop(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, 2, get(a, nil), "without hooks: get and run")
	assert.Equal(t, 4, get(a, nothing), "the lock is taken, and the end noted")
	assert.Equal(t, 2, get(a, nothing), "this client knows that it has run")
	assert.Equal(t, 3, get(b, nothing), "another one asks")
	assert.Equal(t, 2, get(b, nothing))
}

// TestOnCreateAwaited: who comes while OnCreate runs waits for it, in this client
// and in another, and learns of its failure by trying again.
func TestOnCreateAwaited(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	a, b := testkit.Client(t, srv, sandbox.ClientOptions{}), testkit.Client(t, srv, sandbox.ClientOptions{})
	inside, release := make(chan struct{}, 10), make(chan struct{})
	var runs atomic.Int64
	broken := errors.New("no licence")
	opts := &sandbox.CreateOptions{OnCreate: func(ctx context.Context, sb *sandbox.Sandbox) error {
		n := runs.Add(1)
		inside <- struct{}{}
		<-release
		if n == 1 {
			return broken
		}
		return sb.FS().WriteFile(ctx, "ready", []byte("yes"), 0o644)
	}}
	var group sync.WaitGroup
	var failed atomic.Int64
	enter := func(c *sandbox.Client) {
		group.Go(func() {
			sb, err := c.GetOrCreate(t.Context(), "conv", opts)
			if errors.Is(err, broken) {
				failed.Add(1)
				return
			}
			if assert.NoError(t, err) {
				text, err := sb.FS().ReadFile(t.Context(), "ready")
				assert.NoError(t, err, "it was returned before it was complete")
				assert.Equal(t, "yes", string(text))
			}
		})
	}
	enter(a)
	<-inside
	for range 3 {
		enter(a)
		enter(b)
	}
	testkit.Linger(100 * time.Millisecond) // for them to get there, if they can
	close(release)
	group.Wait()
	assert.EqualValues(t, 2, runs.Load())
	assert.GreaterOrEqual(t, failed.Load(), int64(1))
	assert.Less(t, failed.Load(), int64(7), "another client starts over")
	enter(a)
	group.Wait()
	assert.EqualValues(t, 2, runs.Load())
}

// hooksChild holds the address and credentials of an emulator in a process that
// TestHooksOfProcesses has started.
const hooksChild = "SANDBOX_HOOKS_CHILD"

// TestHooksChild is such a process: it stops or uses a sandbox on command,
// and says how that went.
func TestHooksChild(t *testing.T) {
	setting := strings.Fields(os.Getenv(hooksChild))
	if len(setting) == 0 {
		needs.Other(t, "is a part of TestHooksOfProcesses")
	}
	// Shorter ones run out on a busy machine while their holder lives, and others
	// take over, as they should.
	sandbox.SetHookLease(10 * time.Second)
	me := setting[0]
	c, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: setting[1], Credentials: auth.Static(auth.Credentials{Token: setting[2], TeamID: setting[3], ProjectID: setting[4]})})
	require.NoError(t, err)
	defer c.CloseIdleConnections()
	// The sandbox's own record: what began and ended, by whom, in which session.
	hook := func(kind string) sandbox.Hook {
		return func(ctx context.Context, sb *sandbox.Sandbox) error {
			cur := sb.CurrentSession()
			for _, line := range []string{"echo begin %s %s %s >>record", "sleep 0.1", "echo end %s %s %s >>record"} {
				if strings.Contains(line, "%") {
					line = fmt.Sprintf(line, kind, cur.ID(), me)
				}
				if _, err := cur.RunCommand(ctx, "sh", []string{"-c", line}, nil); err != nil {
					return err
				}
			}
			return nil
		}
	}
	opts := &sandbox.CreateOptions{OnCreate: hook("create"), OnResume: hook("resume"), Timeout: time.Hour}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		sb, err := c.GetOrCreate(t.Context(), "shared", opts)
		if err == nil && orders.Text() == "stop" {
			_, err = sb.Stop(t.Context(), nil)
		}
		var done *sandbox.CommandResult
		said := ""
		if err == nil && orders.Text() == "use" {
			if done, err = sb.RunCommand(t.Context(), "cat", []string{"record"}, nil); err == nil {
				said, err = done.Stdout(t.Context())
			}
		}
		if done != nil && err == nil {
			session := done.Command.SessionID()
			if !strings.Contains(said, "end create") || strings.Contains(said, "begin resume "+session) && !strings.Contains(said, "end resume "+session) {
				err = fmt.Errorf("used before its hooks: %q", said)
			}
		}
		text := "ok"
		if err != nil {
			text = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println("said", text)
	}
}

// hooksProcess is a process of TestHooksChild.
type hooksProcess struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func startHooksProcess(t *testing.T, srv *sandboxtest.Server, name string) *hooksProcess {
	t.Helper()
	cr := srv.Credentials()
	p := &hooksProcess{name: name, cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHooksChild$")}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %s %s", hooksChild, name, srv.URL, cr.Token, cr.TeamID, cr.ProjectID))
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.lines = bufio.NewScanner(out)
	require.NoError(t, p.cmd.Start())
	return p
}

func (p *hooksProcess) order(t *testing.T, what string) {
	t.Helper()
	_, err := io.WriteString(p.stdin, what+"\n")
	require.NoError(t, err)
}

func (p *hooksProcess) said(t *testing.T) string {
	t.Helper()
	for p.lines.Scan() {
		if text, ok := strings.CutPrefix(p.lines.Text(), "said "); ok {
			return text
		}
	}
	t.Fatalf("%s has ended: %v", p.name, p.lines.Err())
	return ""
}

// TestHooksOfProcesses: two processes stop and use one sandbox, and are killed at
// random. By the sandbox's record each hook completes once for each session, and
// begins again only where the process that ran it was killed.
func TestHooksOfProcesses(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "sh")
	rounds := 6
	if !needs.Slow() {
		rounds = 4
	}
	if text := os.Getenv("SANDBOX_HOOK_ROUNDS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	random := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	srv := sandboxtest.New(t, nil)
	watcher := testkit.Client(t, srv, sandbox.ClientOptions{})
	killed := map[string]bool{}
	started := 0
	start := func() *hooksProcess {
		started++
		return startHooksProcess(t, srv, fmt.Sprintf("p%d", started))
	}
	processes := []*hooksProcess{start(), start()}
	sessions, kills := 0, 0
	for round := range rounds {
		for _, p := range processes {
			p.order(t, "use")
		}
		victim := -1
		if random.IntN(3) == 0 || round == 1 {
			victim = random.IntN(2)
			testkit.Linger(time.Duration(random.IntN(500)) * time.Millisecond) // somewhere in the hook, or not
			require.NoError(t, processes[victim].cmd.Process.Kill())
			_ = processes[victim].cmd.Wait()
			killed[processes[victim].name] = true
			kills++
		}
		for i, p := range processes {
			if i == victim {
				processes[i] = start()
				continue
			}
			require.Equal(t, "ok", p.said(t), "round %d", round)
		}
		if round%10 == 9 || round == rounds-1 {
			sb, err := watcher.Get(t.Context(), "shared", nil)
			require.NoError(t, err)
			sessions += checkHookRecord(t, testkit.Output(t, sb, "cat", "record"), killed)
			require.NoError(t, sb.Delete(t.Context(), nil))
			continue
		}
		p := processes[random.IntN(2)]
		p.order(t, "stop")
		require.Equal(t, "ok", p.said(t))
	}
	for _, p := range processes {
		require.NoError(t, p.stdin.Close())
		_ = p.cmd.Wait()
	}
	t.Logf("%d rounds, %d kills, %d hooks completed", rounds, kills, sessions)
}

// checkHookRecord returns how many hooks have completed.
func checkHookRecord(t *testing.T, record string, killed map[string]bool) (completed int) {
	t.Helper()
	running, done := map[string]string{}, map[string]string{} // by hook and session: the process
	now := ""
	for line := range strings.Lines(record) {
		word := strings.Fields(line)
		require.Len(t, word, 4, "%q", line)
		of, by := word[1]+" "+word[2], word[3]
		if word[1] == "create" {
			of = "create"
		}
		// One that is killed between the end of its hook and its word of that is
		// followed by another that can't know.
		require.True(t, done[of] == "" || killed[done[of]], "%s again:\n%s", line, record)
		switch word[0] {
		case "begin":
			require.True(t, now == "" || killed[now], "two at a time:\n%s", record)
			if before := running[of]; before != "" {
				require.True(t, killed[before], "%s has begun and lives:\n%s", before, record)
			}
			running[of], now = by, by
		case "end":
			require.Equal(t, running[of], by, "%s", record)
			done[of], now = by, ""
			completed++
		}
	}
	for of, by := range running {
		require.True(t, done[of] != "" || killed[by], "%s of %s has no end:\n%s", of, by, record)
	}
	require.NotEmpty(t, done["create"], record)
	return completed
}

// TestMarksOfOthers: a tag that anybody could have written names no lock in the
// sandbox unless it is a name and nothing else.
func TestMarksOfOthers(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	for mark, runs := range map[string]int{
		"M1": 1, strings.Repeat("a", 64): 1, strings.Repeat("a", 65): 0, "": 0, "../x": 0, "a b": 0, "a-b": 0, "é": 0,
	} {
		sb, err := c.Create(t.Context(), testkit.Lasting(&sandbox.CreateOptions{Tags: map[string]string{"go-sandbox-creation": "once-" + mark}}))
		require.NoError(t, err)
		ran := 0
		_, err = c.GetOrCreate(t.Context(), sb.Name(), &sandbox.CreateOptions{OnCreate: func(context.Context, *sandbox.Sandbox) error { ran++; return nil }})
		require.NoError(t, err)
		assert.Equal(t, runs, ran, "%q", mark)
	}
}
