package promises_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRunsOnceDespiteEndedSession: a command's stream breaks, and the session ends before
// the client can repair it. The client does not mistake the API's error for a refusal of
// the command, and does not run the command again in the next session.
func TestRunsOnceDespiteEndedSession(t *testing.T) {
	t.Parallel()
	srv, gate, sb, direct := testkit.LightBehind(t, sandbox.ClientOptions{}, nil)
	cut, stopped, delivered := make(chan struct{}), make(chan struct{}), make(chan struct{})
	deliver := sync.OnceFunc(func() { close(delivered) })
	var first atomic.Bool
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if testkit.IsLogs(req) {
			<-stopped
		}
		resp, err := next.RoundTrip(req)
		if err == nil && testkit.IsRun(req) && first.CompareAndSwap(false, true) {
			pr, pw := io.Pipe()
			body := resp.Body
			go func() {
				defer deliver() // if there is no other data before the stream's end
				buf := make([]byte, 4<<10)
				for {
					n, err := body.Read(buf)
					if _, writeErr := pw.Write(buf[:n]); err != nil || writeErr != nil {
						return
					}
					deliver() // the data begins with the command's record
				}
			}()
			go func() { <-cut; <-delivered; pw.CloseWithError(io.ErrUnexpectedEOF); body.Close() }()
			resp.Body = pr
		}
		return resp, err
	})
	go func() {
		defer close(stopped)
		assert.Eventually(t, func() bool { return testkit.Count(srv, sandboxtest.RunCommand) == 1 }, testkit.Patience, 10*time.Millisecond)
		// The shell creates the file before it writes to it.
		for charged, _ := direct.FS().ReadFile(t.Context(), "charged"); string(charged) != "once\n" && t.Context().Err() == nil; {
			charged, _ = direct.FS().ReadFile(t.Context(), "charged")
		}
		close(cut)
		_, err := direct.Stop(t.Context(), nil)
		assert.NoError(t, err)
	}()
	_, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "echo once >> charged; sleep 60"}, nil)
	e, ok := errors.AsType[*sandbox.StreamError](err)
	require.True(t, ok, "%v", err)
	assert.NotEmpty(t, e.CommandID)
	require.ErrorIs(t, err, sandbox.ErrStopped)
	gate.Set(nil)
	assert.Equal(t, "once\n", testkit.Output(t, sb, "cat", "charged"))
}

// TestRunsOnceDespiteLostResponse: the response to a start is lost, and the client finds
// the command by its ID. Then the session ends, so the API refuses the command's log. The
// client does not run the command again.
func TestRunsOnceDespiteLostResponse(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	const script = "echo once >> charged"
	srv := testkit.LightServer(t)
	for name, run := range map[string]func(sb *sandbox.Sandbox) error{
		"RunCommand": func(sb *sandbox.Sandbox) error {
			_, err := sb.RunCommand(t.Context(), "sh", []string{"-c", script}, nil)
			return err
		},
		"StartCommand": func(sb *sandbox.Sandbox) error {
			cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", script}, &sandbox.StartOptions{Stdout: io.Discard})
			if err == nil {
				_, err = cmd.Wait(t.Context())
			}
			return err
		},
		"Cmd": func(sb *sandbox.Sandbox) error {
			return sb.CommandContext(t.Context(), "sh", "-c", script).Run()
		},
		"AppendFile": func(sb *sandbox.Sandbox) error {
			return sb.FS().AppendFile(t.Context(), "charged", []byte("once\n"))
		},
	} {
		for _, lost := range []string{"broken", "cut"} {
			if lost == "cut" && name != "RunCommand" && name != "StartCommand" && !needs.Slow() {
				continue // these start their commands like RunCommand and StartCommand
			}
			t.Run(name+", "+lost, func(t *testing.T) {
				t.Parallel()
				_, gate, sb, direct := testkit.BehindOn(t, srv, sandbox.ClientOptions{}, nil)
				var first, stopped atomic.Bool
				gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
					if testkit.IsLogs(req) && stopped.CompareAndSwap(false, true) {
						_, err := direct.Stop(t.Context(), nil)
						assert.NoError(t, err)
					}
					resp, err := next.RoundTrip(req)
					if err == nil && testkit.IsRun(req) && first.CompareAndSwap(false, true) {
						// Wait until the command has run, because it ends with its session.
						assert.NoError(t, waitAll(t.Context(), direct))
						if lost == "cut" {
							resp.Body = testkit.CleanCut(resp.Body, 0)
							return resp, nil
						}
						resp.Body.Close()
						return nil, errReset
					}
					return resp, err
				})
				err := run(sb)
				gate.Set(nil)
				if stopped.Load() {
					require.ErrorIs(t, err, sandbox.ErrStopped)
				} else {
					require.NoError(t, err, "the client has found the command, and has not read its log")
				}
				assert.Equal(t, "once\n", testkit.Output(t, sb, "cat", "charged"))
			})
		}
	}
}

// TestReplacedMeanwhile: GetOrCreate finds that a sandbox's files are gone, and wants to
// replace the sandbox, but another caller replaces it first. GetOrCreate returns the new
// sandbox, or ErrReplaced if the replacement comes between its last lookup and its delete.
func TestReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, overtaken := range map[string]func(req *http.Request) (before, behind bool){
		"after the response": func(req *http.Request) (bool, bool) { return false, req.URL.Query().Get("resume") == "true" },
		"before the delete":  func(req *http.Request) (bool, bool) { return req.Method == http.MethodDelete, false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := testkit.LightServer(t)
			a := testkit.Client(t, srv, sandbox.ClientOptions{})
			sb, err := a.Create(t.Context(), &sandbox.CreateOptions{Name: "work"})
			require.NoError(t, err)
			res, err := sb.Stop(t.Context(), nil)
			require.NoError(t, err)
			snap, err := a.GetSnapshot(t.Context(), res.Snapshot.ID)
			require.NoError(t, err)
			require.NoError(t, snap.Delete(t.Context()))

			opts := func() *sandbox.CreateOptions { return &sandbox.CreateOptions{NoResume: false} }
			var once sync.Once
			replace := func() {
				once.Do(func() {
					made, err := a.GetOrCreate(t.Context(), "work", opts())
					if assert.NoError(t, err) {
						assert.NoError(t, made.FS().WriteFile(t.Context(), "important", []byte("an hour of work"), 0o644))
					}
				})
			}
			gate := &testkit.Gateway{Next: testkit.Transport(t)}
			gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				before, behind := overtaken(req)
				if before {
					replace()
				}
				resp, err := next.RoundTrip(req)
				if behind {
					replace()
				}
				return resp, err
			})
			b := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}})
			got, err := b.GetOrCreate(t.Context(), "work", opts())
			if name == "before the delete" {
				require.ErrorIs(t, err, sandbox.ErrReplaced)
				assert.ErrorContains(t, err, `"work"`)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "an hour of work", testkit.Output(t, got, "cat", "important"))
		})
	}
}

// TestDeleteOnlyOurs: the response to a delete is lost, and another client then creates a
// sandbox with the same name. The client does not delete the new sandbox.
func TestDeleteOnlyOurs(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"handle", "name"} {
		for _, lost := range []string{"before it acted", "after it acted", "and the name was taken"} {
			t.Run(way+" "+lost, func(t *testing.T) {
				t.Parallel()
				srv := testkit.LightServer(t)
				other := testkit.Client(t, srv, sandbox.ClientOptions{})
				gate := &testkit.Gateway{Next: testkit.Transport(t)}
				c := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}})
				var once atomic.Bool
				gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
					if req.Method != http.MethodDelete || !once.CompareAndSwap(false, true) {
						resp, err := next.RoundTrip(req)
						if err == nil {
							// The gateway sets a Date of its own clock, which is an hour ahead.
							resp.Header.Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
						}
						if err == nil && lost == "before it acted" {
							createdEarlier(t, resp, time.Hour)
						}
						return resp, err
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
				sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: "shared"})
				require.NoError(t, err)
				if way == "handle" {
					err = sb.Delete(t.Context(), nil)
				} else {
					err = c.Delete(t.Context(), "shared", nil)
				}
				_, getErr := other.Get(t.Context(), "shared", nil)
				if lost == "and the name was taken" {
					require.NoError(t, getErr, "the client has deleted another client's sandbox")
					if way == "name" {
						require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, "the client knows only the name, so it can't tell the two sandboxes apart")
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

// createdEarlier moves the creation times in a response back.
func createdEarlier(t *testing.T, resp *http.Response, by time.Duration) {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	assert.NoError(t, err)
	resp.Body.Close()
	body = regexp.MustCompile(`"createdAt":\d+`).ReplaceAllFunc(body, func(field []byte) []byte {
		key, at, _ := strings.Cut(string(field), ":")
		ms, err := strconv.ParseInt(at, 10, 64)
		assert.NoError(t, err)
		return fmt.Appendf(nil, "%s:%d", key, ms-by.Milliseconds())
	})
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
}

// TestDeleteIsNotProvenByAnother: the request of a delete is lost. The retry gets an error
// that says that the object is missing, but lacks the rate limit, which the API reports in
// all responses. The client does not treat this error as proof of the deletion.
func TestDeleteIsNotProvenByAnother(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	gate := &testkit.Gateway{Next: testkit.Transport(t)}
	c := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}, RetryWait: time.Millisecond})
	sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: "ours"})
	require.NoError(t, err)
	stopped, err := sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	require.NotNil(t, stopped.Snapshot)
	drive, err := c.GetOrCreateDrive(t.Context(), "data", nil)
	require.NoError(t, err)
	snapshot, err := c.GetSnapshot(t.Context(), stopped.Snapshot.ID)
	require.NoError(t, err)
	for name, call := range map[string]struct{ remove, look func() error }{
		"sandbox, by name": {
			func() error { return c.Delete(t.Context(), "ours", nil) },
			func() error { _, err := c.Get(t.Context(), "ours", &sandbox.GetOptions{NoResume: true}); return err },
		},
		"drive, by its handle": {
			func() error { return drive.Delete(t.Context()) },
			func() error { _, err := c.GetDrive(t.Context(), "data"); return err },
		},
		"snapshot": {
			func() error { return snapshot.Delete(t.Context()) },
			func() error { _, err := c.GetSnapshot(t.Context(), stopped.Snapshot.ID); return err },
		},
	} {
		var lost atomic.Bool
		gate.Set(func(req *http.Request, _ http.RoundTripper) (*http.Response, error) {
			if !lost.Swap(true) {
				return canned.Response(http.StatusBadGateway, "text/html", strings.NewReader("<html>Bad Gateway</html>")), nil
			}
			return canned.JSON(http.StatusNotFound, `{"error":{"code":"not_found","message":"Not found."}}`), nil
		})
		err := call.remove()
		gate.Set(nil)
		require.Error(t, err, name)
		assert.NotErrorIs(t, err, sandbox.ErrNotFound, name)
		if name != "snapshot" { // deleting a snapshot twice does no harm
			assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, name)
		}
		assert.NoError(t, call.look(), name)
	}
}

// TestKillOnce: if the response to a signal is lost, the client does not repeat the signal,
// except for SIGKILL. A kill succeeds even if its response is lost.
func TestKillOnce(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{RetryWait: time.Millisecond}).Create(t.Context(), nil)
	require.NoError(t, err)
	for _, f := range []sandboxtest.Fault{{ActThenStatus: 502}, {DropAfter: true}} {
		f.Operation, f.Times = sandboxtest.KillCommand, 1
		cmd, err := sb.StartCommand(t.Context(), "bash", []string{"-c", `trap 'echo got one' INT; echo ready; while [ ! -e go ]; do sleep 0.1; done; rm go; echo over`}, nil)
		require.NoError(t, err)
		_, err = cmd.WaitForLog(t.Context(), regexp.MustCompile("ready"))
		require.NoError(t, err)
		srv.Inject(f)
		require.ErrorIs(t, cmd.Signal(t.Context(), sandbox.SIGINT), sandbox.ErrOutcomeUnknown)
		testkit.Output(t, sb, "touch", "go")
		out, err := cmd.CombinedOutput(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "ready\ngot one\nover\n", out)

		cmd, err = sb.StartCommand(t.Context(), "sleep", []string{"1000"}, nil)
		require.NoError(t, err)
		srv.Inject(f)
		require.NoError(t, cmd.Kill(t.Context()))
		done, err := cmd.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 137, done.ExitCode)
		require.ErrorIs(t, cmd.Signal(t.Context(), sandbox.SIGTERM), os.ErrProcessDone)
	}
}

// TestKillOnCancelEarly: KillOnCancel also kills a command whose context ends before its
// first record has arrived. The call runs in a synctest bubble. Its clock stands still
// while the call waits for a connection, so a slow machine does not exceed time limits.
func TestKillOnCancelEarly(t *testing.T) {
	t.Parallel()
	srv, outer := testkit.LightStart(t, nil)
	synctest.Test(t, func(t *testing.T) {
		gate := &testkit.Gateway{Next: testkit.Transport(t)}
		sb, err := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}}).Get(t.Context(), outer.Name(), nil)
		require.NoError(t, err)
		for name, run := range map[string]func(context.Context) error{
			"RunCommand": func(ctx context.Context) error {
				_, err := sb.RunCommand(ctx, "sleep", []string{"1000"}, &sandbox.CommandOptions{KillOnCancel: true})
				return err
			},
			"StartCommand": func(ctx context.Context) error {
				_, err := sb.StartCommand(ctx, "sleep", []string{"1000"}, &sandbox.StartOptions{KillOnCancel: true})
				return err
			},
		} {
			ctx, end := context.WithCancelCause(t.Context())
			gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				if testkit.IsRun(req) {
					end(context.DeadlineExceeded)
				}
				return next.RoundTrip(req)
			})
			require.ErrorIs(t, run(ctx), context.DeadlineExceeded, name)
		}
		cmds, err := sb.ListCommands(t.Context())
		require.NoError(t, err)
		cmds = slices.DeleteFunc(cmds, func(cmd *sandbox.Command) bool { return cmd.Name() != "sleep" }) // the others are the scripts that kill children
		assert.Len(t, cmds, 2)
		for _, cmd := range cmds {
			done, err := cmd.Wait(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 137, done.ExitCode)
		}
	})
}

// TestContextCauses: if the context of a call ends with a cause, the call's error matches
// both the context's error and the cause.
func TestContextCauses(t *testing.T) {
	t.Parallel()
	_, sb := testkit.LightStart(t, nil)
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
		"WaitForLog": func(ctx context.Context) error {
			_, err := cmd.WaitForLog(ctx, regexp.MustCompile("never"))
			return err
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { testkit.Linger(50 * time.Millisecond); cancel(why) }()
		err := call(ctx)
		require.ErrorIs(t, err, why, name)
		require.ErrorIs(t, err, context.Canceled, name)
	}
}

// TestLookupsDoNotResume: looking up commands does not resume the sandbox. It reports the end
// of commands, and also finds the commands of a session that another client has started.
func TestLookupsDoNotResume(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.LightStart(t, nil)
	cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", "exit 6"}, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		again, err := sb.GetCommand(t.Context(), cmd.ID())
		if !assert.NoError(t, err) {
			return true
		}
		code, over := again.ExitStatus()
		return over && code == 6
	}, testkit.Patience, 10*time.Millisecond)
	testkit.StopElsewhere(t, srv, sb)
	_, err = sb.GetCommand(t.Context(), cmd.ID())
	require.ErrorIs(t, err, sandbox.ErrStopped)
	_, err = sb.ListCommands(t.Context())
	require.ErrorIs(t, err, sandbox.ErrStopped)
	other, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Get(t.Context(), sb.Name(), &sandbox.GetOptions{NoResume: false})
	require.NoError(t, err)
	later, err := other.StartCommand(t.Context(), "true", nil, nil)
	require.NoError(t, err)
	_, err = sb.GetCommand(t.Context(), later.ID())
	require.NoError(t, err)
}

// TestCommandIDs: a command has the ID that the caller has chosen. If the service ignores
// or refuses such IDs, the client logs this once and continues without them.
func TestCommandIDs(t *testing.T) {
	t.Parallel()
	for _, mode := range []sandboxtest.CommandIDs{sandboxtest.CommandIDsHonored, sandboxtest.CommandIDsIgnored, sandboxtest.CommandIDsRefused} {
		t.Run(string(mode)+"mode", func(t *testing.T) {
			t.Parallel()
			srv := sandboxtest.New(t, &sandboxtest.Options{CommandIDs: mode, Mode: sandboxtest.Folder})
			var log testkit.LockedBuffer
			sb, err := testkit.Client(t, srv, sandbox.ClientOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}).Create(t.Context(), nil)
			require.NoError(t, err)
			for range 3 {
				_, err = sb.RunCommand(t.Context(), "true", nil, nil)
				require.NoError(t, err)
			}
			logged := 1
			if mode == sandboxtest.CommandIDsHonored {
				logged = 0
			}
			assert.Equal(t, logged, strings.Count(log.String(), "commands get their IDs from the service"), log.String())
			want := 3
			if mode == sandboxtest.CommandIDsRefused {
				want = 4 // the client repeats the first one without an ID
			}
			assert.Equal(t, want, testkit.Count(srv, sandboxtest.RunCommand))
			if mode != sandboxtest.CommandIDsHonored {
				return
			}
			done, err := sb.RunCommand(t.Context(), "true", nil, &sandbox.CommandOptions{ID: "mine-1"})
			require.NoError(t, err)
			assert.Equal(t, "mine-1", done.Command.ID())
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

// TestFilesOfAnEndedSession: something kills the helper program of a file operation. The
// error matches ErrStopped only if the session has ended. No process remains.
func TestFilesOfAnEndedSession(t *testing.T) {
	needs.GNU(t)
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox){
		"stopped": func(t *testing.T, _ *sandboxtest.Server, sb *sandbox.Sandbox) {
			_, err := sb.Stop(t.Context(), nil)
			require.NoError(t, err)
		},
		"crashed": func(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox) {
			require.True(t, srv.Crash(sb.Name()))
		},
		"alone": func(t *testing.T, _ *sandboxtest.Server, sb *sandbox.Sandbox) {
			var cmds []*sandbox.Command
			require.Eventually(t, func() bool { // the list may contain the command only some time after its start
				var err error
				cmds, err = sb.ListCommands(t.Context())
				return err == nil && slices.ContainsFunc(cmds, func(cmd *sandbox.Command) bool { return slices.Contains(cmd.Args(), pipeOf("alone")) })
			}, testkit.Patience, 10*time.Millisecond)
			for _, cmd := range cmds {
				if err := cmd.Kill(t.Context()); err != nil {
					require.ErrorIs(t, err, os.ErrProcessDone)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, sb := testkit.LightStart(t, nil)
			pipe := pipeOf(name)
			testkit.Output(t, sb, "mkfifo", pipe)
			result := make(chan error, 1)
			go func() { result <- sb.FS().AppendFile(t.Context(), pipe, []byte("nobody reads")) }()
			testkit.Output(t, sb, "sh", "-c", "until pgrep -f '^dd of=.*"+pipe+"'; do sleep 0.1; done")
			end(t, srv, sb)
			err := <-result
			require.Error(t, err)
			assert.Equal(t, name != "alone", errors.Is(err, sandbox.ErrStopped), "%v", err)
			srv.Close()
			assert.Error(t, exec.Command("pgrep", "-f", pipe).Run(), "a program outlived its sandbox")
		})
	}
}

// pipeOf returns a name that no other test process uses. Without namespaces, pgrep also
// finds the processes of other tests.
func pipeOf(name string) string { return fmt.Sprintf("pipe-%s-%d", name, os.Getpid()) }

// TestProgramKilledWithItsSession: a helper program was killed. The client looks up the
// session, and the error matches ErrStopped only if the session has ended.
func TestProgramKilledWithItsSession(t *testing.T) {
	t.Parallel()
	for _, status := range []sandbox.Status{sandbox.StatusStopped, sandbox.StatusStopping, sandbox.StatusFailed, sandbox.StatusRunning} {
		sb := canned.API(func(req *http.Request) (*http.Response, error) {
			if testkit.IsRun(req) {
				killed := strings.Replace(canned.Ended, `"exitCode":3`, `"exitCode":137`, 1)
				return canned.Response(200, "application/x-ndjson", strings.NewReader(canned.Begun+killed)), nil
			}
			return canned.JSON(200, `{"session":{"id":"s1","status":"`+string(status)+`"},"routes":[]}`), nil
		}).Sandbox(t)
		err := sb.FS().Remove(t.Context(), "x")
		require.Error(t, err, status)
		assert.Equal(t, status != sandbox.StatusRunning, errors.Is(err, sandbox.ErrStopped), "%s: %v", status, err)
	}
}
