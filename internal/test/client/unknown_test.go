package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withoutIDs returns a sandbox on which the server chooses the IDs of commands. If the
// response to a start is lost, the client can't find the command.
func withoutIDs(t *testing.T) (*sandboxtest.Server, *sandbox.Sandbox) {
	t.Helper()
	srv := newServer(t)
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{ServerCommandIDs: true}).Create(t.Context(), nil)
	require.NoError(t, err)
	return srv, sb
}

// TestAppendUnknown: if AppendFile can't know whether it has appended, it does not retry.
func TestAppendUnknown(t *testing.T) {
	t.Parallel()
	srv, sb := withoutIDs(t)
	data := bytes.Repeat([]byte("x"), 70<<10)
	defer srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, ActThenStatus: 502, Times: 1})()
	assert.ErrorIs(t, sb.FS().AppendFile(t.Context(), "log", data), sandbox.ErrOutcomeUnknown)
	got, err := sb.FS().ReadFile(t.Context(), "log")
	if errors.Is(err, fs.ErrNotExist) {
		return // the client removed the upload before the command could append it
	}
	require.NoError(t, err)
	assert.LessOrEqual(t, len(got), len(data))
}

// TestJoinRunsTwice: if the response to the command that completes a file is lost, the client
// runs the command again. The second run notices that the first has succeeded.
func TestJoinRunsTwice(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv, sb := withoutIDs(t)
	for _, size := range []int{0, 4<<20 + 1} {
		w, err := sb.FS().Create(t.Context(), "file", nil)
		require.NoError(t, err)
		_, err = w.Write(make([]byte, size))
		require.NoError(t, err)
		remove := srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, ActThenStatus: 502, Times: 1})
		assert.NoError(t, w.Close())
		remove()
		got, err := sb.FS().ReadFile(t.Context(), "file")
		require.NoError(t, err)
		assert.Len(t, got, size)
	}
}

// TestStdinLost: if the service loses input that it has confirmed, the writer returns an
// error. The next writer continues at the service's position.
func TestStdinLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, n := &stdinAPI{}, 0
		api.respond = func(offset int64, data []byte, end bool) (int, bool) {
			if n++; n == 2 {
				api.got.Truncate(1)
			} else if offset <= int64(api.got.Len()) {
				api.receive(offset, data, end)
			}
			return 200, true
		}
		cmd := api.command(t)
		in := cmd.Stdin(t.Context())
		_, err := io.WriteString(in, "first\n")
		require.NoError(t, err)
		time.Sleep(time.Second) // the client sends the line
		_, err = io.WriteString(in, "second\n")
		require.NoError(t, err)
		assert.ErrorContains(t, in.Close(), "input was lost")

		in = cmd.Stdin(t.Context())
		_, err = io.WriteString(in, "third\n")
		require.NoError(t, err)
		require.NoError(t, in.Close())
		assert.Equal(t, "fthird\n", api.got.String())
	})
}

// TestStdinOfEndedCommand: the response to a write is lost, and then the command has ended.
// The error is io.ErrClosedPipe. It matches ErrOutcomeUnknown only if the lost write was
// the last one.
func TestStdinOfEndedCommand(t *testing.T) {
	t.Run("more", func(t *testing.T) { stdinOfEndedCommand(t, 3, false) })
	t.Run("the end", func(t *testing.T) { stdinOfEndedCommand(t, 2, true) })
}

func stdinOfEndedCommand(t *testing.T, writes int, unknown bool) {
	synctest.Test(t, func(t *testing.T) {
		api, n := &stdinAPI{}, 0
		api.respond = func(offset int64, data []byte, end bool) (int, bool) {
			switch n++; n {
			case 1:
				api.receive(offset, data, end)
				return 200, true
			case 2:
				return 502, false
			}
			return 410, false
		}
		in := api.command(t).Stdin(t.Context())
		for range writes {
			_, err := io.WriteString(in, "line\n")
			require.NoError(t, err)
			time.Sleep(100 * time.Millisecond) // the client sends the line
		}
		err := in.Close()
		assert.ErrorIs(t, err, io.ErrClosedPipe)
		assert.Equal(t, unknown, errors.Is(err, sandbox.ErrOutcomeUnknown), "%v", err)
	})
}

// TestCreatedByAnotherClient: OnCreate does not run if another client creates the sandbox after
// this client has looked it up and before its own request to create it.
func TestCreatedByAnotherClient(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	other := testkit.Client(t, srv, sandbox.ClientOptions{})
	gate := &testkit.Gateway{Next: testkit.Transport(t)}
	made := false
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if req.Method == http.MethodPost && !made {
			made = true
			_, err := other.Create(context.WithoutCancel(t.Context()), &sandbox.CreateOptions{Name: "box"})
			assert.NoError(t, err)
		}
		return next.RoundTrip(req)
	})
	ours := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}})
	sb, err := ours.GetOrCreate(t.Context(), "box", &sandbox.CreateOptions{
		Tags: map[string]string{"a": "1"},
		OnCreate: func(context.Context, *sandbox.Sandbox) error {
			t.Error("OnCreate ran for another client's sandbox")
			return nil
		},
	})
	require.NoError(t, err)
	assert.True(t, made)
	assert.Equal(t, "box", sb.Name())
}
