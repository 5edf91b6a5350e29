package promises_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAdoptsOnlyItsOwn: if the response to a start is lost, the client looks the command up
// by its ID. It returns the found command only if the program and arguments are the same.
func TestAdoptsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.LightStart(t, nil)
	const id = "mine"
	_, err := sb.RunCommand(t.Context(), "echo", []string{"first"}, &sandbox.CommandOptions{ID: id})
	require.NoError(t, err)
	for name, args := range map[string][]string{"other arguments": {"second"}, "more arguments": {"first", "second"}} {
		lost := srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, ActThenStatus: 502, Times: 1})
		_, err := sb.RunCommand(t.Context(), "echo", args, &sandbox.CommandOptions{ID: id})
		lost()
		require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, name)
		require.ErrorContains(t, err, "another program", name)
	}
	lost := srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, ActThenStatus: 502, Times: 1})
	defer lost()
	done, err := sb.RunCommand(t.Context(), "echo", []string{"first"}, &sandbox.CommandOptions{ID: id})
	require.NoError(t, err)
	out, err := done.Stdout(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "first\n", out)
}

// TestContextEndsDuringLookup: the context ends while the client looks up a lost start. The
// error matches the context's error, its cause, and ErrOutcomeUnknown.
func TestContextEndsDuringLookup(t *testing.T) {
	t.Parallel()
	_, gate, sb, _ := testkit.LightBehind(t, sandbox.ClientOptions{}, nil)
	why := errors.New("enough")
	for name, start := range map[string]func(context.Context) error{
		"RunCommand":   func(ctx context.Context) error { _, err := sb.RunCommand(ctx, "true", nil, nil); return err },
		"StartCommand": func(ctx context.Context) error { _, err := sb.StartCommand(ctx, "true", nil, nil); return err },
	} {
		ctx, end := context.WithCancelCause(t.Context())
		gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if testkit.IsLook(req) {
				end(why)
			}
			return nil, errReset
		})
		err := start(ctx)
		require.ErrorIs(t, err, why, name)
		require.ErrorIs(t, err, context.Canceled, name)
		require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, name)
		end(nil)
	}
}

// TestDeliveredTwice: a proxy delivers a request twice and returns the second response, a
// conflict. The client does not conclude that another caller uses the ID or the name.
func TestDeliveredTwice(t *testing.T) {
	t.Parallel()
	srv, gate, sb, direct := testkit.LightBehind(t, sandbox.ClientOptions{}, nil)
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if req.Method != http.MethodPost || !testkit.IsRun(req) && !strings.HasSuffix(req.URL.Path, "/sandboxes") {
			return next.RoundTrip(req)
		}
		content, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		for range 2 {
			again := req.Clone(req.Context())
			again.Body = io.NopCloser(bytes.NewReader(content))
			resp, err := next.RoundTrip(again)
			if err != nil || resp.StatusCode >= 400 {
				return resp, err
			}
			if err := resp.Body.Close(); err != nil {
				return nil, err
			}
		}
		return nil, errors.New("the server did not refuse the second request")
	})
	done, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "echo x >> runs; echo out"}, nil)
	require.NoError(t, err)
	out, err := done.Stdout(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "out\n", out)
	require.NoError(t, sb.FS().AppendFile(t.Context(), "runs", []byte("y\n")))
	assert.Equal(t, "x\ny\n", testkit.Output(t, direct, "cat", "runs"))

	made := 0
	_, err = testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}}).GetOrCreate(t.Context(), "twice", &sandbox.CreateOptions{
		OnCreate: func(context.Context, *sandbox.Sandbox) error {
			made++
			return nil
		},
	})
	require.NoError(t, err)
	assert.Equal(t, 1, made, "OnCreate runs for the created sandbox")
}

// TestCompressedErrors: the client understands an error that a proxy has compressed, even
// if it has requested an uncompressed response.
func TestCompressedErrors(t *testing.T) {
	t.Parallel()
	_, gate, sb, _ := testkit.LightBehind(t, sandbox.ClientOptions{}, nil)
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil || resp.StatusCode < 400 {
			return resp, err
		}
		defer resp.Body.Close()
		var zipped bytes.Buffer
		zw := gzip.NewWriter(&zipped)
		_, err = io.Copy(zw, resp.Body)
		if err := errors.Join(err, zw.Close()); err != nil {
			return nil, err
		}
		resp.Header.Set("Content-Encoding", "gzip")
		resp.Header.Del("Content-Length")
		resp.Body, resp.ContentLength = io.NopCloser(&zipped), int64(zipped.Len())
		return resp, nil
	})
	err := sb.CommandContext(t.Context(), "no-such-program").Run()
	require.ErrorIs(t, err, exec.ErrNotFound)
}

// TestStdinRetryAfterYears: if Retry-After is longer than the client may wait, the write
// fails at once.
func TestStdinRetryAfterYears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int32
		sb := canned.API(func(req *http.Request) (*http.Response, error) {
			switch {
			case testkit.IsRun(req):
				return canned.JSON(200, strings.TrimSpace(canned.Begun)), nil
			case strings.HasSuffix(req.URL.Path, "/stdin"):
				resp := canned.JSON(429, `{"error":{"code":"rate_limited","message":"slow down"}}`)
				resp.Header.Set("Retry-After", "25")
				if writes.Add(1) > 1 {
					resp.Header.Set("Retry-After", "100000000")
				}
				return resp, nil
			}
			return canned.JSON(404, `{}`), nil
		}).Sandbox(t)
		cmd, err := sb.StartCommand(t.Context(), "x", nil, &sandbox.StartOptions{AttachStdin: true})
		require.NoError(t, err)
		begin := time.Now()
		in := cmd.Stdin(t.Context())
		_, err = in.Write([]byte("hello"))
		require.NoError(t, err)
		require.ErrorIs(t, in.Close(), sandbox.ErrRateLimited)
		assert.GreaterOrEqual(t, time.Since(begin), 25*time.Second, "the client waits for the first Retry-After, which is short enough")
		assert.Less(t, time.Since(begin), time.Minute)
	})
}

// TestConflictWhileStarting: a proxy delivers a start twice and returns the second
// response, a conflict, while the API still carries out the first start. The client waits
// for the command. If it does not appear, and the client has chosen the ID, the error is
// ErrOutcomeUnknown: the caller does not know the ID, and might run the command again.
func TestConflictWhileStarting(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	for _, after := range []time.Duration{0, 1500 * time.Millisecond, -1} {
		for _, id := range []string{"", "mine"} {
			t.Run(after.String()+" "+id, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { conflictWhileStarting(t, srv, after, id) })
			})
		}
	}
}

// conflictWhileStarting delivers the first start after a pause, or never if the pause is
// negative.
func conflictWhileStarting(t *testing.T, srv *sandboxtest.Server, after time.Duration, id string) {
	gate := &testkit.Gateway{Next: bubbleTransport()}
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}}).Create(t.Context(), nil)
	require.NoError(t, err)
	started := make(chan struct{})
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !testkit.IsRun(req) {
			return next.RoundTrip(req)
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		first := req.Clone(context.WithoutCancel(req.Context()))
		first.Body = io.NopCloser(strings.NewReader(string(body)))
		go func() {
			defer close(started)
			if after < 0 {
				return
			}
			time.Sleep(after)
			if resp, err := next.RoundTrip(first); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		return canned.JSON(409, `{"error":{"code":"conflict","message":"A command with this ID exists."}}`), nil
	})
	done, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "echo once"}, &sandbox.CommandOptions{ID: id})
	<-started
	gate.Set(nil)
	switch {
	case id != "":
		// The caller knows the ID, and may have used it before.
		e, ok := errors.AsType[*sandbox.APIError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, http.StatusConflict, e.Status)
		assert.NotErrorIs(t, err, sandbox.ErrOutcomeUnknown)
	case after >= 0:
		require.NoError(t, err)
		out, err := done.Stdout(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "once\n", out)
	default:
		assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
	}
	list, err := sb.ListCommands(t.Context())
	require.NoError(t, err)
	assert.Len(t, list, map[bool]int{true: 1, false: 0}[after >= 0])
}
