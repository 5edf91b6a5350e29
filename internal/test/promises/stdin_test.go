package promises_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func isStdin(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/stdin") }

// TestStdinLateRequest: a writer gives up while its request is in flight, and the request
// arrives after the next writer has begun. The command gets the input of both writers.
func TestStdinLateRequest(t *testing.T) {
	t.Parallel()
	_, gate, sb, _ := testkit.LightBehind(t, sandbox.ClientOptions{}, nil)
	cmd, err := sb.StartCommand(t.Context(), "cat", nil, &sandbox.StartOptions{AttachStdin: true})
	require.NoError(t, err)
	under, arrive := make(chan struct{}), make(chan struct{})
	arrived := make(chan struct{})
	var requests atomic.Int32
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !isStdin(req) {
			return next.RoundTrip(req)
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		again := func(ctx context.Context) (*http.Response, error) {
			r := req.Clone(ctx)
			r.Body = io.NopCloser(bytes.NewReader(body))
			return next.RoundTrip(r)
		}
		if requests.Add(1) == 1 {
			close(under)
			go func() {
				defer close(arrived)
				<-arrive
				if resp, err := again(context.WithoutCancel(req.Context())); err == nil {
					resp.Body.Close()
				}
			}()
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		var b struct{ Data []byte }
		if json.Unmarshal(body, &b) == nil && len(b.Data) > 0 && requests.Load() < 100 {
			requests.Store(100)
			close(arrive) // the second writer has asked for the position, and not yet sent its data
			<-arrived
		}
		return again(req.Context())
	})
	ctx, cancel := context.WithCancel(t.Context())
	first := cmd.Stdin(ctx)
	_, err = first.Write([]byte("AAAA"))
	require.NoError(t, err)
	<-under
	cancel()
	require.ErrorIs(t, first.Close(), context.Canceled)
	second := cmd.Stdin(t.Context())
	_, err = second.Write([]byte("BBBB"))
	require.NoError(t, err)
	require.NoError(t, second.Close())
	out, err := cmd.Stdout(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "AAAABBBB", out)
}

// TestStdinCloseAfterLostRequest: a request is lost, and then the command ends. Close returns
// ErrOutcomeUnknown, because the data of the request may have arrived. If the caller has
// written more data after the request, Close returns io.ErrClosedPipe, because this data
// has not arrived.
func TestStdinCloseAfterLostRequest(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	for how, end := range map[string]func(t *testing.T, direct *sandbox.Sandbox, id string){
		"session stopped": func(t *testing.T, direct *sandbox.Sandbox, _ string) {
			_, err := direct.Stop(context.WithoutCancel(t.Context()), nil)
			assert.NoError(t, err)
		},
		"command ended": func(t *testing.T, direct *sandbox.Sandbox, id string) {
			cmd, err := direct.GetCommand(t.Context(), id)
			if assert.NoError(t, err) && assert.NoError(t, cmd.Kill(t.Context())) {
				_, err = cmd.Wait(t.Context())
				assert.NoError(t, err)
			}
		},
	} {
		for _, after := range []string{"", "close", "more", "more in the end"} { // the caller's next step after the lost request
			if how == "command ended" && after != "more" && !needs.Slow() {
				continue
			}
			t.Run(how+" "+after, func(t *testing.T) {
				t.Parallel()
				_, gate, sb, direct := testkit.BehindOn(t, srv, sandbox.ClientOptions{}, nil)
				cmd, err := sb.StartCommand(t.Context(), "cat", nil, &sandbox.StartOptions{AttachStdin: true})
				require.NoError(t, err)
				w := cmd.Stdin(t.Context())
				var requests atomic.Int32
				sent, lost := make(chan struct{}), make(chan struct{})
				gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
					if !isStdin(req) {
						return next.RoundTrip(req)
					}
					if requests.Add(1) == 2 {
						_, _ = io.Copy(io.Discard, req.Body)
						end(t, direct, cmd.ID())
						close(lost)
						return nil, io.ErrUnexpectedEOF
					}
					resp, err := next.RoundTrip(req)
					if requests.Load() == 1 {
						defer close(sent)
					}
					return resp, err
				})
				_, err = w.Write([]byte("first\n"))
				require.NoError(t, err)
				<-sent
				_, err = w.Write([]byte("the important rest\n"))
				require.NoError(t, err)
				if after != "" {
					<-lost
				}
				if after == "more in the end" {
					require.Eventually(t, func() bool { _, err = w.Write(nil); return err != nil }, testkit.Patience, time.Millisecond)
					assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
				}
				more := strings.HasPrefix(after, "more")
				if more {
					_, _ = w.Write([]byte("more")) // succeeds, or fails like Close
				}
				err = w.Close()
				assert.ErrorIs(t, err, io.ErrClosedPipe)
				assert.Equal(t, !more, errors.Is(err, sandbox.ErrOutcomeUnknown), "%v", err)
			})
		}
	}
}

// TestStdinEmptySuccess: a proxy responds to a write with status 200, but the body does not
// name the command, or not how much it has received. The client does not treat this as a success, and sends the data again.
func TestStdinEmptySuccess(t *testing.T) {
	t.Parallel()
	srv, direct := testkit.LightStart(t, nil)
	for _, body := range []string{``, `{}`, `null`, `{"command":{"id":"another"}}`, `{"command":{"id":"THIS"}}`} {
		for _, at := range []string{"first", "second", "last"} {
			for _, passOn := range []bool{false, true} {
				always := body == "{}" && at != "first" || at == "second" && !passOn && body != "null"
				if !always && !needs.Slow() || at == "first" && strings.Contains(body, "THIS") {
					continue // the first response may lack a count: not every sandbox counts
				}
				t.Run(fmt.Sprintf("%s at the %s, passed on %v", body, at, passOn), func(t *testing.T) {
					t.Parallel()
					stdinEmptySuccess(t, srv, direct, body, at, passOn)
				})
			}
		}
	}
}

// stdinEmptySuccess responds to one request with body. If passOn is set, it first delivers
// the request. After the last request, it also waits until the command has ended.
func stdinEmptySuccess(t *testing.T, srv *sandboxtest.Server, direct *sandbox.Sandbox, body, at string, passOn bool) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 100<<10) // at least 4 requests
	gate, sb := throughGateway(t, srv, direct, sandbox.ClientOptions{Reattach: &sandbox.ReattachOptions{Wait: time.Millisecond}})
	cmd, err := sb.StartCommand(t.Context(), "sha256sum", nil, &sandbox.StartOptions{AttachStdin: true})
	require.NoError(t, err)
	var requests, answered atomic.Int32
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !isStdin(req) {
			return next.RoundTrip(req)
		}
		sent, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(sent))
		var input struct{ Close bool }
		if err := json.Unmarshal(sent, &input); err != nil {
			return nil, err
		}
		number := requests.Add(1)
		here := at == "first" && number == 1 || at == "second" && number == 2 || at == "last" && input.Close
		if !here || answered.Add(1) > 1 {
			return next.RoundTrip(req)
		}
		if passOn {
			resp, err := next.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			resp.Body.Close()
			if at == "last" {
				ended, err := direct.GetCommand(req.Context(), cmd.ID())
				if err == nil {
					_, err = ended.Wait(req.Context())
				}
				assert.NoError(t, err)
			}
		}
		return canned.JSON(200, strings.Replace(body, "THIS", cmd.ID(), 1)), nil
	})
	w := cmd.Stdin(t.Context())
	_, err = io.Copy(w, bytes.NewReader(data))
	require.NoError(t, err)
	err = w.Close()
	out, waitErr := cmd.Stdout(t.Context())
	require.NoError(t, waitErr)
	assert.Contains(t, out, fmt.Sprintf("%x", sha256.Sum256(data)))
	assert.Greater(t, requests.Load(), int32(4), "the client sends one request again")
	if at == "last" && passOn { // the command has ended, so the client can't ask for the outcome
		assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
	} else {
		assert.NoError(t, err)
	}
}
