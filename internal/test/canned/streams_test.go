package canned_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
)

// TestLogChunks: each chunk is a line. Its data is valid until the next iteration.
func TestLogChunks(t *testing.T) {
	log := ""
	for i := range 500 {
		log += fmt.Sprintf(`{"stream":"stdout","data":"line %d\n"}`+"\n"+`{"stream":"stderr","data":"\u00e9 \"%d\""}`+"\n", i, i)
	}
	command := fmt.Sprintf(canned.Command, "0")
	sb := canned.Box(t, canned.Log(command, log))
	cmd, err := sb.GetCommand(t.Context(), "cmd_1")
	require.NoError(t, err)
	var lines, chunks []sandbox.LogEntry
	for line, err := range cmd.Logs(t.Context()) {
		require.NoError(t, err)
		lines = append(lines, line)
	}
	for chunk, err := range cmd.LogChunks(t.Context()) {
		require.NoError(t, err)
		chunks = append(chunks, sandbox.LogEntry{Stream: chunk.Stream, Data: string(chunk.Data)})
		clear(chunk.Data) // callers may change the data
	}
	require.Len(t, lines, 1000)
	assert.Equal(t, lines, chunks)
	assert.Equal(t, sandbox.LogEntry{Stream: sandbox.Stderr, Data: `é "499"`}, lines[999])
}

func TestLogChunksAllocateNothing(t *testing.T) {
	allocs := func(lines int) float64 {
		log := strings.Repeat(`{"stream":"stdout","data":"some text, é\n"}`+"\n", lines)
		sb := canned.Box(t, canned.Log(fmt.Sprintf(canned.Command, "0"), log))
		cmd, err := sb.GetCommand(t.Context(), "cmd_1")
		require.NoError(t, err)
		return testing.AllocsPerRun(5, func() {
			n := 0
			for range cmd.LogChunks(t.Context()) {
				n++
			}
			require.Equal(t, lines, n)
		})
	}
	assert.Less(t, allocs(10_000), allocs(10)+100, "the number of allocations depends on the number of lines")
}

// TestWrongContentType: a start gets a successful response that is not a stream. The command
// may have started. The client does not wait for the body of this response, nor for the
// bodies of similar responses to its lookups.
func TestWrongContentType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb := canned.API(func(*http.Request) (*http.Response, error) {
			pr, pw := io.Pipe()
			t.Cleanup(func() { pw.Close() })
			resp := canned.Response(200, "text/html", nil)
			resp.Body = pr
			return resp, nil
		}).Sandbox(t)
		_, err := sb.RunCommand(t.Context(), "x", nil, nil)
		require.ErrorContains(t, err, "text/html")
		require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
	})
}

// TestReattachLimits: if the network is lost, the client gives up after some time, even if
// each attempt takes long.
func TestReattachLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		sb := canned.API(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodPost {
				return canned.Response(200, "application/x-ndjson", strings.NewReader(canned.Begun)), nil
			}
			if time.Since(begin) > 24*time.Hour {
				t.Error("the client does not give up")
				return canned.Response(200, "application/x-ndjson", strings.NewReader(canned.Begun+canned.Ended)), nil
			}
			time.Sleep(40 * time.Second)
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ETIMEDOUT}
		}).Sandbox(t)
		_, err := sb.RunCommand(t.Context(), "x", nil, nil)
		e, ok := errors.AsType[*sandbox.StreamError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, "c1", e.CommandID)
	})
}

// TestUnknownTransport: if a transport does not report whether it has sent a request, the
// client assumes that it has.
func TestUnknownTransport(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		sent    int
		unknown bool
	}{
		"lost":    {syscall.ECONNRESET, 1, true},
		"refused": {&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				sb := canned.API(func(req *http.Request) (*http.Response, error) {
					if req.Method == http.MethodPost {
						sent++
					}
					return nil, c.err
				}).Sandbox(t)
				_, err := sb.StartCommand(t.Context(), "x", nil, nil)
				require.ErrorIs(t, err, c.err)
				assert.Equal(t, c.unknown, errors.Is(err, sandbox.ErrOutcomeUnknown))
				assert.Equal(t, c.sent, sent, "requests")
			})
		})
	}
}
