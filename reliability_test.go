package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gateway is a transport that a test puts between a client and the emulator. Its
// function may answer by itself, and is nil for none.
type gateway struct {
	next http.RoundTripper
	mu   sync.Mutex
	via  func(req *http.Request, next http.RoundTripper) (*http.Response, error)
}

func (g *gateway) RoundTrip(req *http.Request) (*http.Response, error) {
	g.mu.Lock()
	via := g.via
	g.mu.Unlock()
	if via == nil {
		return g.next.RoundTrip(req)
	}
	return via(req, g.next)
}

func (g *gateway) set(via func(*http.Request, http.RoundTripper) (*http.Response, error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.via = via
}

// behind returns a sandbox whose client goes through a gateway, and the same one
// reached directly.
func behind(t *testing.T, opts sandbox.ClientOptions, create *sandbox.CreateOptions) (*sandboxtest.Server, *gateway, *sandbox.Sandbox, *sandbox.Sandbox) {
	t.Helper()
	srv := sandboxtest.New(t, nil)
	gate := &gateway{next: transport(t)}
	opts.HTTPClient = &http.Client{Transport: gate}
	sb, err := clientOf(t, srv, opts).Create(t.Context(), create)
	require.NoError(t, err)
	direct, err := clientOf(t, srv, sandbox.ClientOptions{}).Get(t.Context(), sb.Name(), &sandbox.GetOptions{Resume: new(false)})
	require.NoError(t, err)
	return srv, gate, sb, direct
}

func isRun(req *http.Request) bool {
	return req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/cmd")
}
func isLogs(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/logs") }
func isLook(req *http.Request) bool {
	_, id, ok := strings.Cut(req.URL.Path, "/cmd/")
	return req.Method == http.MethodGet && ok && !strings.Contains(id, "/")
}

// fetch is a command's output by a handle that nothing stands before.
func fetch(t *testing.T, sb *sandbox.Sandbox, name string, args ...string) string {
	t.Helper()
	done, err := sb.RunCommand(t.Context(), name, args, nil)
	require.NoError(t, err)
	out, err := done.Output(t.Context())
	require.NoError(t, err)
	return out
}

// TestRunOnceThoughSessionEnds: when a session ends while a command's stream
// breaks, the refusal that the repair meets is not taken for one of the command:
// it is not run again in the next session.
func TestRunOnceThoughSessionEnds(t *testing.T) {
	t.Parallel()
	srv, gate, sb, direct := behind(t, sandbox.ClientOptions{}, nil)
	cut, stopped, delivered := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	gate.set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if isLogs(req) {
			<-stopped
		}
		resp, err := next.RoundTrip(req)
		if err == nil && isRun(req) && first.CompareAndSwap(false, true) {
			pr, pw := io.Pipe()
			body := resp.Body
			go func() {
				var once sync.Once
				buf := make([]byte, 4<<10)
				for {
					n, err := body.Read(buf)
					if _, writeErr := pw.Write(buf[:n]); err != nil || writeErr != nil {
						return
					}
					once.Do(func() { close(delivered) }) // the command's record
				}
			}()
			go func() { <-cut; <-delivered; pw.CloseWithError(io.ErrUnexpectedEOF); body.Close() }()
			resp.Body = pr
		}
		return resp, err
	})
	go func() {
		defer close(stopped)
		assert.Eventually(t, func() bool { return count(srv, sandboxtest.RunCommand) == 1 }, 10*time.Second, 10*time.Millisecond)
		_, err := direct.FS().ReadFile(t.Context(), "charged")
		for err != nil && t.Context().Err() == nil {
			_, err = direct.FS().ReadFile(t.Context(), "charged")
		}
		close(cut)
		_, err = direct.Stop(t.Context(), nil)
		assert.NoError(t, err)
	}()
	_, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "echo once >> charged; sleep 60"}, nil)
	e, ok := errors.AsType[*sandbox.StreamError](err)
	require.True(t, ok, "%v", err)
	assert.NotEmpty(t, e.CommandID)
	require.ErrorIs(t, err, sandbox.ErrStopped)
	gate.set(nil)
	assert.Equal(t, "once\n", fetch(t, sb, "cat", "charged"))
}

// TestHookErrorsAreNotTheAPIs: what a hook returns is never taken for what the
// API says of the sandbox, whatever it wraps.
func TestHookErrorsAreNotTheAPIs(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]error{
		"files gone": &sandbox.APIError{Operation: "get sandbox", Status: 410, Code: "snapshot_not_found", SandboxName: "another"},
		"not found":  &sandbox.APIError{Operation: "get sandbox", Status: 404, Code: "not_found", SandboxName: "another"},
		"stopped":    &sandbox.APIError{Operation: "run command", Status: 410, Code: "sandbox_stopped", SessionID: "another"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := sandboxtest.New(t, nil)
			c := clientOf(t, srv, sandbox.ClientOptions{})
			sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: "work"})
			require.NoError(t, err)
			fetch(t, sb, "sh", "-c", "echo chapter > thesis")
			_, err = sb.Stop(t.Context(), nil)
			require.NoError(t, err)
			var runs atomic.Int64
			opts := &sandbox.CreateOptions{Resume: new(true), OnResume: func(context.Context, *sandbox.Sandbox) error {
				if runs.Add(1) == 1 {
					return broken
				}
				return nil
			}}
			_, err = c.GetOrCreate(t.Context(), "work", opts)
			require.ErrorIs(t, err, broken)
			assert.Zero(t, count(srv, sandboxtest.DeleteSandbox))
			// The hook is due: it runs again with the next call.
			sb, err = c.GetOrCreate(t.Context(), "work", opts)
			require.NoError(t, err)
			assert.EqualValues(t, 2, runs.Load())
			assert.Equal(t, "chapter\n", fetch(t, sb, "cat", "thesis"))
		})
	}
}

// TestReplacedMeanwhile: a caller whose delete comes late, after another one has
// replaced the sandbox whose files were gone, says so.
func TestReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	a := clientOf(t, srv, sandbox.ClientOptions{})
	sb, err := a.Create(t.Context(), &sandbox.CreateOptions{Name: "work"})
	require.NoError(t, err)
	res, err := sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	snap, err := a.GetSnapshot(t.Context(), res.Snapshot.ID)
	require.NoError(t, err)
	require.NoError(t, snap.Delete(t.Context()))

	reached, release := make(chan struct{}), make(chan struct{})
	gate := &gateway{next: transport(t)}
	gate.set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if req.Method == http.MethodDelete {
			close(reached)
			<-release
		}
		return next.RoundTrip(req)
	})
	late := make(chan error, 1)
	b := clientOf(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}})
	opts := func() *sandbox.CreateOptions { return &sandbox.CreateOptions{Resume: new(true)} }
	go func() { _, err := b.GetOrCreate(t.Context(), "work", opts()); late <- err }()
	<-reached
	_, err = a.GetOrCreate(t.Context(), "work", opts())
	require.NoError(t, err)
	close(release)
	e, ok := errors.AsType[*sandbox.ReplacedError](<-late)
	require.True(t, ok)
	assert.Equal(t, "work", e.SandboxName)
}

// cleanCut is a body that ends without an error behind so many bytes.
func cleanCut(body io.ReadCloser, after int64) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(body, after), body}
}

const manyLines = `i=0; while [ $i -lt 600 ]; do echo "line $i"; i=$((i+1)); done`

func manyLinesText() string {
	var b strings.Builder
	for i := range 600 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// TestCleanCuts: a log that ends without an error, between two records or within
// one, is not taken for whole, whether the command has ended or runs, and
// whatever the look at it is answered.
func TestCleanCuts(t *testing.T) {
	t.Parallel()
	answers := map[string]func() (*http.Response, error){
		"401": func() (*http.Response, error) { return replyJSON(401, ""), nil },
		"403": func() (*http.Response, error) { return reply(403, "text/html", strings.NewReader("<html>")), nil },
		"404": func() (*http.Response, error) { return replyJSON(404, ""), nil },
		"408": func() (*http.Response, error) { return replyJSON(408, ""), nil },
		"502": func() (*http.Response, error) { return replyJSON(502, "bad gateway"), nil },
		"broken off": func() (*http.Response, error) {
			return reply(200, "application/json", io.MultiReader(strings.NewReader(`{"command":`), broken{})), nil
		},
		"another page": func() (*http.Response, error) { return reply(200, "text/html", strings.NewReader("<html>")), nil },
		"as it is":     nil,
	}
	for name, answer := range answers {
		for how, tail := range map[string]string{"ended": "", "runs": "; sleep 0.3; echo last"} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				_, gate, sb, _ := behind(t, sandbox.ClientOptions{Retry: &sandbox.RetryOptions{Max: -1}, Reattach: &sandbox.ReattachOptions{Wait: time.Millisecond}}, nil)
				var cut, odd atomic.Bool
				gate.set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
					if isLook(req) && answer != nil && cut.Load() && odd.CompareAndSwap(false, true) {
						return answer()
					}
					resp, err := next.RoundTrip(req)
					if err == nil && isLogs(req) && cut.CompareAndSwap(false, true) {
						resp.Body, resp.ContentLength = cleanCut(resp.Body, 5000), -1
					}
					return resp, err
				})
				want := manyLinesText()
				if tail != "" {
					want += "last\n"
				}
				var out bytes.Buffer
				cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", manyLines + tail + "; exit 9"}, &sandbox.CommandOptions{Stdout: &out})
				require.NoError(t, err)
				require.NoError(t, cmd.WaitOutput(t.Context()))
				assert.Equal(t, want, out.String())
				assert.True(t, cut.Load())
				if answer == nil {
					cut.Store(false)
					text, err := cmd.Stdout(t.Context())
					require.NoError(t, err)
					assert.Equal(t, want, text)
					cut.Store(false)
					cmdOut, err := sb.CommandContext(t.Context(), "sh", "-c", manyLines+tail).Output()
					require.NoError(t, err)
					assert.Equal(t, want, string(cmdOut))
				}
			})
		}
	}
}

// broken is a body that breaks.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestOddAnswersCostAnAttempt: while a stream is repaired, a log that is answered
// oddly once is asked for again; so is one that is opened for the first time.
func TestOddAnswersCostAnAttempt(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 403, 408, 425, 502} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			_, gate, sb, _ := behind(t, sandbox.ClientOptions{Retry: &sandbox.RetryOptions{Max: -1}, Reattach: &sandbox.ReattachOptions{Wait: time.Millisecond}}, nil)
			var cut, odd atomic.Bool
			gate.set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				if isLogs(req) && odd.CompareAndSwap(false, true) {
					return reply(status, "text/html", strings.NewReader("<html>gateway</html>")), nil
				}
				resp, err := next.RoundTrip(req)
				if err == nil && isRun(req) && cut.CompareAndSwap(false, true) {
					resp.Body, resp.ContentLength = cleanCut(resp.Body, 2000), -1
				}
				return resp, err
			})
			var out bytes.Buffer
			_, err := sb.RunCommand(t.Context(), "sh", []string{"-c", manyLines}, &sandbox.CommandOptions{Stdout: &out})
			require.NoError(t, err)
			assert.Equal(t, manyLinesText(), out.String())
			odd.Store(false)
			text, err := sb.CommandContext(t.Context(), "sh", "-c", manyLines).Output()
			require.NoError(t, err)
			assert.Equal(t, manyLinesText(), string(text))
		})
	}
}

// TestWaitThroughOutage: waiting for a command outlasts an outage that the retries
// of a request do not.
func TestWaitThroughOutage(t *testing.T) {
	t.Parallel()
	_, gate, sb, _ := behind(t, sandbox.ClientOptions{Retry: &sandbox.RetryOptions{Max: -1}, Reattach: &sandbox.ReattachOptions{Wait: time.Millisecond}}, nil)
	cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", "exit 4"}, nil)
	require.NoError(t, err)
	var refused atomic.Int64
	gate.set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if refused.Add(1) < 4 {
			return nil, errReset
		}
		return next.RoundTrip(req)
	})
	done, err := cmd.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 4, done.ExitCode)
	assert.EqualValues(t, 4, refused.Load())
}

// TestDeleteOnlyOurs: a delete whose answer was lost is not sent again to a
// sandbox that has taken the name since.
func TestDeleteOnlyOurs(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"handle", "name"} {
		for _, lost := range []string{"before it acted", "after it acted", "and the name was taken"} {
			t.Run(way+" "+lost, func(t *testing.T) {
				t.Parallel()
				srv := sandboxtest.New(t, nil)
				other := clientOf(t, srv, sandbox.ClientOptions{})
				gate := &gateway{next: transport(t)}
				c := clientOf(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}})
				sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: "shared"})
				require.NoError(t, err)
				if way == "name" { // by the server's clock, which HTTP tells in whole seconds
					time.Sleep(time.Until(sb.Info().CreatedAt.Add(5 * time.Second)))
				}
				var once atomic.Bool
				gate.set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
					if req.Method != http.MethodDelete || !once.CompareAndSwap(false, true) {
						return next.RoundTrip(req)
					}
					if lost != "before it acted" {
						resp, err := next.RoundTrip(req)
						if err != nil {
							return nil, err
						}
						resp.Body.Close()
					}
					if lost == "and the name was taken" {
						_, err := other.Create(t.Context(), &sandbox.CreateOptions{Name: "shared"})
						assert.NoError(t, err)
					}
					return nil, errReset
				})
				if way == "handle" {
					err = sb.Delete(t.Context(), nil)
				} else {
					err = c.Delete(t.Context(), "shared", nil)
				}
				_, getErr := other.Get(t.Context(), "shared", nil)
				if lost == "and the name was taken" {
					require.NoError(t, getErr, "the new sandbox is somebody else's")
					if way == "name" {
						require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, "nobody can tell by the name alone")
						return
					}
				} else {
					require.ErrorIs(t, getErr, sandbox.ErrNotFound)
				}
				require.NoError(t, err)
			})
		}
	}
}

// TestKillOnce: a signal that means something the second time is delivered once,
// whatever becomes of its answer, and a kill that worked is no error.
func TestKillOnce(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	for _, f := range []sandboxtest.Fault{{ActThenStatus: 502}, {DropAfter: true}} {
		f.Operation, f.Times = sandboxtest.KillCommand, 1
		cmd, err := sb.StartCommand(t.Context(), "bash", []string{"-c", `trap 'echo got one' INT; echo ready; while [ ! -e go ]; do sleep 0.05; done; rm go; echo over`}, nil)
		require.NoError(t, err)
		_, err = cmd.WaitForLog(t.Context(), mustMatch("ready"))
		require.NoError(t, err)
		srv.Inject(f)
		require.ErrorIs(t, cmd.Kill(t.Context(), sandbox.SIGINT), sandbox.ErrOutcomeUnknown)
		fetch(t, sb, "touch", "go")
		out, err := cmd.Output(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "ready\ngot one\nover\n", out)

		cmd, err = sb.StartCommand(t.Context(), "sleep", []string{"1000"}, nil)
		require.NoError(t, err)
		srv.Inject(f)
		require.NoError(t, cmd.Kill(t.Context(), sandbox.SIGKILL))
		done, err := cmd.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 137, done.ExitCode)
		require.ErrorIs(t, cmd.Kill(t.Context(), sandbox.SIGTERM), os.ErrProcessDone)
	}
}

// TestOnCreateOnce: OnCreate runs for the caller that created and for no other,
// however many creates get no answer, having acted or not.
func TestOnCreateOnce(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	c := clientOf(t, srv, sandbox.ClientOptions{Retry: &sandbox.RetryOptions{Max: -1}})
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		fault := sandboxtest.Fault{Operation: sandboxtest.CreateSandbox, Status: 504, Delay: 50 * time.Millisecond, Probability: 0.5}
		if round%2 == 1 {
			fault.Status, fault.ActThenStatus = 0, 504
		}
		remove := srv.Inject(fault)
		name := fmt.Sprintf("box%d", round)
		var runs atomic.Int64
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				sb, err := c.GetOrCreate(t.Context(), name, &sandbox.CreateOptions{Tags: map[string]string{"a": "b"}, OnCreate: func(context.Context, *sandbox.Sandbox) error {
					runs.Add(1)
					return nil
				}})
				if err != nil {
					assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
					return
				}
				assert.Equal(t, map[string]string{"a": "b"}, sb.Info().Tags, "the mark does not show")
			})
		}
		group.Wait()
		remove()
		assert.LessOrEqual(t, runs.Load(), int64(1), "round %d", round)
		if fault.ActThenStatus != 0 {
			assert.EqualValues(t, 1, runs.Load(), "round %d: the one whose answer was lost knows its own", round)
		}
	}
}

// TestOnCreateFails: a sandbox whose OnCreate failed is taken away, so that the
// next call begins anew.
func TestOnCreateFails(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	c := clientOf(t, srv, sandbox.ClientOptions{})
	var runs atomic.Int64
	opts := &sandbox.CreateOptions{OnCreate: func(context.Context, *sandbox.Sandbox) error {
		if runs.Add(1) == 1 {
			return io.ErrClosedPipe
		}
		return nil
	}}
	_, err := c.GetOrCreate(t.Context(), "workspace", opts)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	_, err = c.Get(t.Context(), "workspace", nil)
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	_, err = c.GetOrCreate(t.Context(), "workspace", opts)
	require.NoError(t, err)
	assert.EqualValues(t, 2, runs.Load())
}

// TestHookStartsServers: what OnResume has started with its context lives on when
// the hook has returned, with its output and KillOnCancel, as with a Cmd.
func TestHookStartsServers(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	var server *sandbox.Command
	var cmd *sandbox.Cmd
	srv, sb := start(t, &sandbox.CreateOptions{OnResume: func(ctx context.Context, sb *sandbox.Sandbox) error {
		var err error
		server, err = sb.StartCommand(ctx, "sh", []string{"-c", "while [ ! -e say ]; do sleep 0.05; done; echo served; sleep 1000"}, &sandbox.CommandOptions{Stdout: &out, KillOnCancel: true})
		if err != nil {
			return err
		}
		cmd = sb.CommandContext(ctx, "sh", "-c", "while [ ! -e say ]; do sleep 0.05; done; exit 5")
		return cmd.Start()
	}})
	stopElsewhere(t, srv, sb)
	fetch(t, sb, "touch", "say")
	assert.Eventually(t, func() bool { return out.String() == "served\n" }, 10*time.Second, 10*time.Millisecond)
	var exit *sandbox.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	assert.Equal(t, 5, exit.ExitCode())
	require.NoError(t, server.Kill(t.Context(), sandbox.SIGKILL))
	_, err := server.Wait(t.Context())
	require.NoError(t, err)
}

// TestCallsWaitForHook: a call that begins while a hook runs goes on when the
// hook is done, and one that the new session has refused meanwhile gets the next.
func TestCallsWaitForHook(t *testing.T) {
	t.Parallel()
	inHook, release := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	srv, sb := start(t, &sandbox.CreateOptions{OnResume: func(ctx context.Context, sb *sandbox.Sandbox) error {
		if runs.Add(1) > 1 {
			return nil
		}
		close(inHook)
		<-release
		_, err := sb.RunCommand(ctx, "touch", []string{"warm"}, nil)
		return err
	}})
	stopElsewhere(t, srv, sb)
	results := make(chan string, 2)
	call := func() {
		done, err := sb.RunCommand(t.Context(), "ls", nil, nil)
		if !assert.NoError(t, err) {
			results <- ""
			return
		}
		out, err := done.Stdout(t.Context())
		assert.NoError(t, err)
		results <- out
	}
	go call()
	<-inHook
	before := count(srv, sandboxtest.RunCommand)
	go call()
	time.Sleep(50 * time.Millisecond) // for the call to go ahead, if it does
	assert.Equal(t, before, count(srv, sandboxtest.RunCommand))
	close(release)
	assert.Equal(t, "warm\n", <-results)
	assert.Equal(t, "warm\n", <-results)
	assert.EqualValues(t, 1, runs.Load())
}

// TestKillOnCancelEarly: a command whose context ends before its first record
// came is killed all the same.
func TestKillOnCancelEarly(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	defer srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, Delay: 100 * time.Millisecond})()
	for name, run := range map[string]func(context.Context) error{
		"RunCommand": func(ctx context.Context) error {
			_, err := sb.RunCommand(ctx, "sleep", []string{"1000"}, &sandbox.CommandOptions{KillOnCancel: true})
			return err
		},
		"StartCommand": func(ctx context.Context) error {
			_, err := sb.StartCommand(ctx, "sleep", []string{"1000"}, &sandbox.CommandOptions{KillOnCancel: true})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		require.ErrorIs(t, run(ctx), context.DeadlineExceeded, name)
		cancel()
	}
	cmds, err := sb.ListCommands(t.Context())
	require.NoError(t, err)
	assert.Len(t, cmds, 2)
	for _, cmd := range cmds {
		done, err := cmd.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 137, done.ExitCode)
	}
}

// refusingWriter takes nothing.
type refusingWriter struct{}

func (refusingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestFailedWriterNamesTheCommand: the error says which command it was, and KillOnCancel kills it.
func TestFailedWriterNamesTheCommand(t *testing.T) {
	t.Parallel()
	_, sb := start(t, nil)
	_, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "echo; sleep 1000"}, &sandbox.CommandOptions{Stdout: refusingWriter{}, KillOnCancel: true})
	e, ok := errors.AsType[*sandbox.StreamError](err)
	require.True(t, ok, "%v", err)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	cmd, err := sb.GetCommand(t.Context(), e.CommandID)
	require.NoError(t, err)
	done, err := cmd.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 137, done.ExitCode)
}

// TestCopyingEndsWithItsContext: that the writers have not got all of the output
// is told by WaitOutput and by Wait.
func TestCopyingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	_, sb := start(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the helper has returned")
	var out lockedBuffer
	cmd, err := sb.StartCommand(ctx, "sh", []string{"-c", "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two"}, &sandbox.CommandOptions{Stdout: &out})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return out.String() != "" }, 10*time.Second, 10*time.Millisecond)
	cancel(why)
	err = cmd.WaitOutput(t.Context())
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, err, context.Canceled)
	fetch(t, sb, "touch", "go")
	done, err := cmd.Wait(t.Context())
	require.ErrorIs(t, err, why)
	assert.Zero(t, done.ExitCode)
	assert.Equal(t, "one\n", out.String())
}

// TestContextCauses: every call whose context ended with a cause matches both.
func TestContextCauses(t *testing.T) {
	t.Parallel()
	_, sb := start(t, nil)
	cmd, err := sb.StartCommand(t.Context(), "sleep", []string{"1000"}, nil)
	require.NoError(t, err)
	why := errors.New("superseded")
	for name, call := range map[string]func(context.Context) error{
		"RunCommand": func(ctx context.Context) error {
			_, err := sb.RunCommand(ctx, "sleep", []string{"1000"}, nil)
			return err
		},
		"Wait":   func(ctx context.Context) error { _, err := cmd.Wait(ctx); return err },
		"Stdout": func(ctx context.Context) error { _, err := cmd.Stdout(ctx); return err },
		"Logs": func(ctx context.Context) (last error) {
			for _, err := range cmd.Logs(ctx) {
				last = err
			}
			return last
		},
		"WaitForLog": func(ctx context.Context) error { _, err := cmd.WaitForLog(ctx, mustMatch("never")); return err },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
		err := call(ctx)
		require.ErrorIs(t, err, why, name)
		require.ErrorIs(t, err, context.Canceled, name)
	}
}

// TestLooksDoNotResume: looking commands up starts no machine, tells of their
// end, and finds the session that another client has started.
func TestLooksDoNotResume(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", "exit 6"}, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		again, err := sb.GetCommand(t.Context(), cmd.ID())
		if !assert.NoError(t, err) {
			return true
		}
		code, over := again.ExitStatus()
		return over && code == 6
	}, 20*time.Second, 10*time.Millisecond)
	stopElsewhere(t, srv, sb)
	_, err = sb.GetCommand(t.Context(), cmd.ID())
	require.ErrorIs(t, err, sandbox.ErrStopped)
	_, err = sb.ListCommands(t.Context())
	require.ErrorIs(t, err, sandbox.ErrStopped)
	other, err := clientOf(t, srv, sandbox.ClientOptions{}).Get(t.Context(), sb.Name(), &sandbox.GetOptions{Resume: new(true)})
	require.NoError(t, err)
	later, err := other.StartCommand(t.Context(), "true", nil, nil)
	require.NoError(t, err)
	_, err = sb.GetCommand(t.Context(), later.ID())
	require.NoError(t, err)
}

// TestCommandIDs: a command has the ID that it was given; a service that ignores
// or refuses IDs is noticed, once, and served as before.
func TestCommandIDs(t *testing.T) {
	t.Parallel()
	for _, mode := range []sandboxtest.CommandIDs{sandboxtest.CommandIDsHonored, sandboxtest.CommandIDsIgnored, sandboxtest.CommandIDsRefused} {
		t.Run(string(mode)+"mode", func(t *testing.T) {
			t.Parallel()
			srv := sandboxtest.New(t, &sandboxtest.Options{CommandIDs: mode})
			sb, err := clientOf(t, srv, sandbox.ClientOptions{}).Create(t.Context(), nil)
			require.NoError(t, err)
			for range 3 {
				_, err = sb.RunCommand(t.Context(), "true", nil, nil)
				require.NoError(t, err)
			}
			want := 3
			if mode == sandboxtest.CommandIDsRefused {
				want = 4 // the first one was refused
			}
			assert.Equal(t, want, count(srv, sandboxtest.RunCommand))
			if mode != sandboxtest.CommandIDsHonored {
				return
			}
			done, err := sb.RunCommand(t.Context(), "true", nil, &sandbox.CommandOptions{ID: "mine-1"})
			require.NoError(t, err)
			assert.Equal(t, "mine-1", done.ID())
			_, err = sb.RunCommand(t.Context(), "true", nil, &sandbox.CommandOptions{ID: "mine-1"})
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, http.StatusConflict, e.Status)
			for _, bad := range []string{"a/b", "..", strings.Repeat("x", 65), "é"} {
				_, err := sb.RunCommand(t.Context(), "true", nil, &sandbox.CommandOptions{ID: bad})
				require.ErrorIs(t, err, sandbox.ErrInvalid)
			}
		})
	}
}

// TestLostMkdir: of a directory that is there nobody can tell who made it.
func TestLostMkdir(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	defer srv.Inject(sandboxtest.Fault{Operation: sandboxtest.MakeDir, ActThenStatus: 502, Times: 1})()
	require.ErrorIs(t, sb.FS().Mkdir(t.Context(), "lock", 0o755), sandbox.ErrOutcomeUnknown)
	assert.Equal(t, 1, count(srv, sandboxtest.MakeDir))
}

// TestDeletedSandboxIsNoMissingFile: reading a file of a sandbox that another
// client has deleted is no missing file.
func TestDeletedSandboxIsNoMissingFile(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	require.NoError(t, clientOf(t, srv, sandbox.ClientOptions{}).Delete(t.Context(), sb.Name(), nil))
	_, err := sb.FS().ReadFile(t.Context(), "x")
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	assert.NotErrorIs(t, err, os.ErrNotExist)
}

// TestEmptySuccesses: an answer that leaves out what was made is none.
func TestEmptySuccesses(t *testing.T) {
	t.Parallel()
	sb := hostile(func(*http.Request) (*http.Response, error) { return replyJSON(200, "{}"), nil }).box(t)
	_, err := sb.StartCommand(t.Context(), "x", nil, nil)
	require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
	_, err = sb.Snapshot(t.Context(), nil)
	require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
	_, err = sb.GetCommand(t.Context(), "c1")
	require.Error(t, err)
	_, err = sb.OpenInteractive(t.Context())
	require.Error(t, err)
}

// TestChunksDoNotOverlap: what is appended to a chunk does not change the next.
func TestChunksDoNotOverlap(t *testing.T) {
	t.Parallel()
	_, sb := start(t, nil)
	cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", manyLines}, nil)
	require.NoError(t, err)
	_, err = cmd.Wait(t.Context())
	require.NoError(t, err)
	var out strings.Builder
	for chunk, err := range cmd.LogChunks(t.Context()) {
		require.NoError(t, err)
		out.Write(chunk.Data)
		_ = append(chunk.Data, strings.Repeat("garbage", 1000)...)
	}
	assert.Equal(t, manyLinesText(), out.String())
}
