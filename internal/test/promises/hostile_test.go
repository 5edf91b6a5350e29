package promises_test

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowEnd is a body whose end arrives some time after its content.
type slowEnd struct {
	io.Reader
	after time.Duration
}

func (s *slowEnd) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if n == 0 && err == io.EOF {
		time.Sleep(s.after)
	}
	return n, err
}

// TestAfterTheLastRecord: the client ignores everything that follows the record of a
// command's end. Such data does not make the call fail, and a late end does not delay it.
func TestAfterTheLastRecord(t *testing.T) {
	for name, rest := range map[string]string{"nothing": "", "garbage": "garbage\n", "garbage without an end": "garbage"} {
		for _, after := range []time.Duration{0, 250 * time.Millisecond} {
			t.Run(name+" "+after.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sb := canned.API(func(*http.Request) (*http.Response, error) {
						return canned.Response(200, "application/x-ndjson", &slowEnd{strings.NewReader(canned.Begun + canned.Ended + rest), after}), nil
					}).Sandbox(t)
					done, err := sb.RunCommand(t.Context(), "x", nil, nil)
					require.NoError(t, err)
					assert.Equal(t, 3, done.ExitCode)
				})
			})
		}
	}
}

// TestWaitLimits: Wait gives up if it can't reach the API. It continues if the platform
// cuts a long request.
func TestWaitLimits(t *testing.T) {
	for name, cut := range map[string]bool{"unreachable": false, "cut": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				waits := 0
				sb := canned.API(func(req *http.Request) (*http.Response, error) {
					if req.Method == http.MethodPost {
						return canned.JSON(200, canned.Begun), nil
					}
					if req.URL.Query().Get("wait") == "" {
						return canned.JSON(200, canned.Begun), nil // a lookup, which doesn't wait
					}
					waits++
					trace := httptrace.ContextClientTrace(req.Context())
					if waits > 30 && trace.GotConn == nil {
						return canned.JSON(200, canned.Ended), nil
					}
					if trace.GetConn != nil {
						trace.GetConn("api.test:443")
					}
					switch {
					case waits > 30:
						return canned.JSON(200, canned.Ended), nil
					case cut:
						trace.GotConn(httptrace.GotConnInfo{})
						time.Sleep(5 * time.Minute)
						return nil, syscall.ECONNRESET
					}
					time.Sleep(40 * time.Second)
					return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ETIMEDOUT}
				}).Sandbox(t)
				cmd, err := sb.StartCommand(t.Context(), "x", nil, nil)
				require.NoError(t, err)
				done, err := cmd.Wait(t.Context())
				if cut {
					require.NoError(t, err)
					assert.Equal(t, 3, done.ExitCode)
					return
				}
				require.ErrorIs(t, err, syscall.ETIMEDOUT)
			})
		})
	}
}

// TestHookThatIgnoresItsEnd: a hook uses another handle and context, and so waits for the
// resume that it is part of. The client abandons this hook, and also a hook that exits its
// goroutine.
func TestHookThatIgnoresItsEnd(t *testing.T) {
	for name, hook := range map[string]func(sb *sandbox.Sandbox) error{
		"the hook waits for itself": func(outer *sandbox.Sandbox) error {
			_, err := outer.StartCommand(context.Background(), "hook", nil, nil)
			return err
		},
		"the hook exits its goroutine": func(*sandbox.Sandbox) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var outer *sandbox.Sandbox
				c := canned.API(func(req *http.Request) (*http.Response, error) {
					if req.URL.Query().Get("resume") == "true" {
						return canned.JSON(200, strings.Replace(canned.RunningSandbox, `"routes"`, `"resumed":true,"routes"`, 1)), nil
					}
					if req.Method == http.MethodGet {
						return canned.JSON(200, canned.RunningSandbox), nil
					}
					return canned.JSON(410, `{"error":{"code":"sandbox_stopped","message":"stopped"}}`), nil
				}).Client(t)
				outer, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true, OnResume: func(context.Context, *sandbox.Sandbox) error {
					return hook(outer)
				}})
				require.NoError(t, err)
				_, err = outer.StartCommand(t.Context(), "x", nil, nil)
				require.Error(t, err)
				t.Log(err)
			})
		})
	}
}

// TestEmptyResponses: if a response does not contain the object, the call fails, and the
// handle keeps its data.
func TestEmptyResponses(t *testing.T) { synctest.Test(t, emptyResponses) }

func emptyResponses(t *testing.T) {
	var stopped atomic.Bool
	sb := canned.API(func(req *http.Request) (*http.Response, error) {
		switch {
		case strings.HasSuffix(req.URL.Path, "/stop"):
			stopped.Store(true)
		case strings.HasSuffix(req.URL.Path, "/cmd"):
			return canned.JSON(200, canned.Begun), nil
		}
		return canned.JSON(200, "{}"), nil
	}).Sandbox(t)
	_, err := sb.Stop(t.Context(), &sandbox.StopOptions{NoWait: true})
	require.Error(t, err)
	require.Error(t, sb.Update(t.Context(), &sandbox.UpdateOptions{VCPUs: 2}))
	require.ErrorIs(t, sb.ExtendTimeout(t.Context(), time.Minute), sandbox.ErrOutcomeUnknown)
	require.NoError(t, sb.Refresh(t.Context()))
	assert.Equal(t, "box", sb.Name())
	assert.Equal(t, "s1", sb.CurrentSession().ID())
	_, err = sb.StartCommand(t.Context(), "x", nil, nil)
	require.NoError(t, err)

	empty := canned.API(func(*http.Request) (*http.Response, error) { return canned.JSON(200, "{}"), nil })
	sb = empty.Sandbox(t)
	_, err = sb.StartCommand(t.Context(), "x", nil, nil)
	require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
	_, err = sb.Snapshot(t.Context(), nil)
	require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
	_, err = sb.GetCommand(t.Context(), "c1")
	require.Error(t, err)
	_, err = sb.OpenInteractive(t.Context())
	require.Error(t, err)

	c := empty.Client(t)
	for _, name := range []string{"mine", ""} {
		_, err = c.Create(t.Context(), &sandbox.CreateOptions{Name: name})
		require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, "a handle without data would be useless")
	}
}

// TestResultByValue: a result has the same JSON by value and by pointer, and marshaling
// an empty one does not panic.
func TestResultByValue(t *testing.T) {
	sb := canned.API(func(*http.Request) (*http.Response, error) {
		return canned.Response(200, "application/x-ndjson", strings.NewReader(canned.Begun+canned.Ended)), nil
	}).Sandbox(t)
	done, err := sb.RunCommand(t.Context(), "x", nil, nil)
	require.NoError(t, err)
	byPointer, err := json.Marshal(done)
	require.NoError(t, err)
	byValue, err := json.Marshal(map[string]any{"done": *done})
	require.NoError(t, err)
	assert.JSONEq(t, `{"done":`+string(byPointer)+`}`, string(byValue))
	_, err = json.Marshal(&sandbox.CommandResult{})
	require.Error(t, err)
}

// TestBackPressure: while a writer blocks, the client reads from the connection only as
// much as fits into its buffer. No output is lost.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := `{"stream":"stdout","data":"` + strings.Repeat("x", 1023) + `\n"}` + "\n"
		const count = 1000
		var sent atomic.Int64
		sb := canned.API(func(req *http.Request) (*http.Response, error) {
			if !testkit.IsRun(req) {
				return canned.JSON(404, `{"error":{"code":"not_found","message":"not found"}}`), nil
			}
			pr, pw := io.Pipe()
			go func() {
				_, _ = io.WriteString(pw, canned.Begun)
				for range count {
					if _, err := io.WriteString(pw, line); err != nil {
						return
					}
					sent.Add(1)
				}
				_, _ = io.WriteString(pw, canned.Ended)
				pw.Close()
			}()
			resp := canned.Response(200, "application/x-ndjson", nil)
			resp.Body = pr
			return resp, nil
		}).Sandbox(t)
		slow := &slowWriter{open: make(chan struct{})}
		result := make(chan error, 1)
		go func() {
			_, err := sb.RunCommand(t.Context(), "x", nil, &sandbox.CommandOptions{Stdout: slow})
			result <- err
		}()
		synctest.Wait()
		assert.LessOrEqual(t, sent.Load(), int64(64), "lines that the client has read while the writer blocked")
		close(slow.open)
		require.NoError(t, <-result)
		assert.Equal(t, count*1024, slow.n)
	})
}

// slowWriter blocks until it is opened.
type slowWriter struct {
	open chan struct{}
	n    int
}

func (w *slowWriter) Write(p []byte) (int, error) {
	<-w.open
	w.n += len(p)
	return len(p), nil
}

// TestGetOrCreateGivesUp: the API contradicts itself. Each resume reports that the
// sandbox's files are gone, but each lookup reports that its session runs. GetOrCreate
// gives up.
func TestGetOrCreateGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lookups atomic.Int64
		var silent int64 // the number of the lookup that gets no response
		c := canned.API(func(req *http.Request) (*http.Response, error) {
			if req.URL.Query().Get("resume") == "true" {
				if lookups.Add(1) == silent {
					return canned.Unanswered(req)
				}
				return canned.JSON(410, `{"error":{"code":"snapshot_not_found","message":"Cannot resume sandbox: no snapshot available."}}`), nil
			}
			return canned.JSON(200, canned.RunningSandbox), nil
		}).Client(t)
		sb, err := c.GetOrCreate(t.Context(), "box", nil)
		assert.Nil(t, sb)
		assert.ErrorIs(t, err, sandbox.ErrSnapshotNotFound)
		for _, silent = range []int64{0, 2} { // the context ends during a pause, or during a request
			lookups.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), 1100*time.Millisecond)
			sb, err = c.GetOrCreate(ctx, "box", nil)
			cancel()
			assert.Nil(t, sb)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorIs(t, err, sandbox.ErrSnapshotNotFound)
		}
	})
}

// TestOddTimes: the client ignores times that time.Time can't encode as JSON.
func TestOddTimes(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{"9e300", "1e400", "-1e400", "900000000000000000", "-900000000000000000"} {
		box := `{"name":"box","createdAt":` + odd + `,"updatedAt":1700000000000}`
		c := canned.API(func(req *http.Request) (*http.Response, error) {
			if req.URL.Path == "/v2/sandboxes" {
				return canned.JSON(200, `{"sandboxes":[`+box+`],"pagination":{"count":1,"next":null}}`), nil
			}
			return canned.JSON(200, `{"sandbox":`+box+`,"session":{"id":"s1","status":"running","createdAt":`+odd+`},"routes":[]}`), nil
		}).Client(t)
		sb, err := c.Get(t.Context(), "box", nil)
		require.NoError(t, err, odd)
		page, err := c.ListPage(t.Context(), nil)
		require.NoError(t, err, odd)
		for _, info := range append(page.Items, sb.Info()) {
			assert.Zero(t, info.CreatedAt, odd)
			assert.EqualValues(t, 1700000000, info.UpdatedAt.Unix(), odd)
			_, err := json.Marshal(info)
			assert.NoError(t, err, odd)
		}
		_, err = json.Marshal(sb)
		assert.NoError(t, err, odd)
	}
}

// TestNullPolicy: other clients write null for an absent policy. Decoding it returns nil.
func TestNullPolicy(t *testing.T) {
	t.Parallel()
	var s sandbox.Session
	require.NoError(t, json.Unmarshal([]byte(`{"session":{"id":"s1","status":"running","networkPolicy":null},"routes":[]}`), &s))
	assert.Nil(t, s.Info().NetworkPolicy)
	var sb sandbox.Sandbox
	require.NoError(t, json.Unmarshal([]byte(`{"metadata":{"id":"s1","status":"running","networkPolicy":null},"sandboxMetadata":{"name":"x"}}`), &sb))
}

// TestGetOrCreateWaits: while another caller creates the sandbox, its name is taken, but a
// lookup does not find it yet. GetOrCreate waits for it.
func TestGetOrCreateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int64
		var there time.Time // when lookups begin to find the sandbox
		absent := "Sandbox not found."
		c := canned.API(func(req *http.Request) (*http.Response, error) {
			requests.Add(1)
			switch {
			case time.Now().After(there) && req.Method == http.MethodGet:
				return canned.JSON(200, canned.RunningSandbox), nil
			case req.Method == http.MethodGet:
				return canned.JSON(404, `{"error":{"code":"not_found","message":"`+absent+`"}}`), nil
			}
			return canned.JSON(400, `{"error":{"code":"bad_request","message":"A sandbox with the name 'box' already exists for this project."}}`), nil
		}).Client(t)
		for _, row := range []struct {
			takes, ctx, waits time.Duration
			absent            string
			err               []error
		}{
			{takes: 20 * time.Second, waits: 20 * time.Second},
			{takes: 9 * time.Minute, waits: 9 * time.Minute},
			{takes: time.Hour, waits: 10 * time.Minute, err: []error{sandbox.ErrConflict}},
			{takes: time.Hour, ctx: time.Minute, waits: time.Minute, err: []error{sandbox.ErrConflict, context.DeadlineExceeded}},
			{takes: time.Hour, absent: "Named sandbox 'box' has no latest sandbox.", err: []error{sandbox.ErrNotFound, sandbox.ErrConflict}},
		} {
			ctx, cancel := t.Context(), func() {}
			if row.ctx > 0 {
				ctx, cancel = context.WithTimeout(ctx, row.ctx)
			}
			begun := time.Now()
			there, absent = begun.Add(row.takes), cmp.Or(row.absent, "Sandbox not found.")
			requests.Store(0)
			sb, err := c.GetOrCreate(ctx, "box", nil)
			cancel()
			assert.InDelta(t, row.waits, time.Since(begun), float64(6*time.Second))
			assert.Less(t, requests.Load(), int64(600))
			if row.err == nil {
				require.NoError(t, err)
				assert.Equal(t, "box", sb.Name())
			}
			for _, want := range row.err {
				assert.ErrorIs(t, err, want)
			}
			if row.absent != "" {
				assert.EqualValues(t, 3, requests.Load())
				assert.Zero(t, time.Since(begun))
				assert.ErrorContains(t, err, "Client.Delete")
			}
		}
	})
}
