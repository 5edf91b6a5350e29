package devserver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// localSessions is a worker and a client of sessions in this process.
type localSessions struct {
	emulator *sandboxtest.Server
	temporal client.Client
	sessions *session.Client
}

// startLocal starts sessions in this process. The workers write to one store, and the
// viewers read from another one, which may wrap the first.
func startLocal(t *testing.T, policy session.Policy, write, read durable.OutputStore) *localSessions {
	t.Helper()
	return startLocalVia(t, http.DefaultTransport.(*http.Transport).Clone(), policy, write, read)
}

// startLocalVia is startLocal with a transport for the workers.
func startLocalVia(t *testing.T, via http.RoundTripper, policy session.Policy, write, read durable.OutputStore) *localSessions {
	t.Helper()
	l := &localSessions{emulator: sandboxtest.New(t, nil)}
	_, l.temporal = startTemporal(t)
	w := worker.New(l.temporal, queue, worker.Options{MaxConcurrentActivityExecutionSize: 1000, StickyScheduleToStartTimeout: time.Second})
	hc := &http.Client{Transport: via}
	t.Cleanup(hc.CloseIdleConnections)
	c, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: l.emulator.URL, Credentials: auth.Static(l.emulator.Credentials()), HTTPClient: hc})
	require.NoError(t, err)
	session.Register(w, &durable.Worker{Client: c, Output: write})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	l.sessions = session.New(l.temporal, &session.Options{
		Sandbox: l.emulator.Client(), Output: read, Policy: policy, Defaults: durable.Options{Heartbeat: 2 * time.Second},
	})
	return l
}

// followed is a transport that calls tell when the reader of a log reads again after the
// first output. By then, it has processed that output.
type followed struct {
	*http.Transport
	tell func()
}

func (f followed) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := f.Transport.RoundTrip(req)
	if err == nil && (strings.HasSuffix(req.URL.Path, "/logs") || strings.HasSuffix(req.URL.Path, "/cmd")) {
		resp.Body = &followedBody{ReadCloser: resp.Body, tell: f.tell}
	}
	return resp, err
}

type followedBody struct {
	io.ReadCloser
	tell func()
	some bool
}

func (b *followedBody) Read(p []byte) (int, error) {
	if b.some {
		b.tell()
	}
	n, err := b.ReadCloser.Read(p)
	b.some = b.some || bytes.Contains(p[:n], []byte(`"stdout"`))
	return n, err
}

// heldStore commits once release is closed.
type heldStore struct {
	durable.OutputStore
	release chan struct{}
}

func (s heldStore) Create(ctx context.Context, key string) (durable.OutputWriter, error) {
	w, err := s.OutputStore.Create(ctx, key)
	return heldWriter{w, s.release}, err
}

type heldWriter struct {
	durable.OutputWriter
	release chan struct{}
}

func (w heldWriter) Commit() error {
	<-w.release
	return w.OutputWriter.Commit()
}

// hookedStore replaces the results of Open.
type hookedStore struct {
	durable.OutputStore
	opened func(r io.ReadCloser, err error) (io.ReadCloser, error)
}

func (s hookedStore) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	return s.opened(s.OutputStore.Open(ctx, key))
}

// TestViewerOfALostMachine: the viewer of a command whose machine dies waits until the
// store has the output that was read. It does not report that output as lost.
func TestViewerOfALostMachine(t *testing.T) {
	dir := durable.Dir(t.TempDir())
	var crashed atomic.Bool
	var once sync.Once
	release, read := make(chan struct{}), make(chan struct{})
	via := followed{http.DefaultTransport.(*http.Transport).Clone(), sync.OnceFunc(func() { close(read) })}
	l := startLocalVia(t, via, session.Policy{}, heldStore{dir, release}, hookedStore{dir, func(r io.ReadCloser, err error) (io.ReadCloser, error) {
		if crashed.Load() && err != nil { // before this, the output is not stored
			once.Do(func() { close(release) })
		}
		return r, err
	}})
	id, err := l.sessions.Start(t.Context(), nil)
	require.NoError(t, err)
	_, err = l.sessions.Command(t.Context(), id, session.Command{Command: "echo part; sleep 1000"})
	require.NoError(t, err)
	output := ""
	for e, err := range l.sessions.Events(t.Context(), id, session.Cursor{}) {
		require.NoError(t, err)
		require.NotEqual(t, session.TypeOutputLost, e.Type, "%s", e.Error)
		output += e.Data
		if e.Type == session.TypeCommandOutput {
			<-read // wait for the worker: the viewer may be ahead of it
			crashed.Store(true)
			require.True(t, l.emulator.Crash("durable-"+id))
		}
		if e.Type == session.TypeCommandEnd {
			assert.Equal(t, durable.Lost, e.Outcome)
			assert.EqualValues(t, len(output), e.Bytes)
			break
		}
	}
	assert.Equal(t, "part\n", output)
}

// TestStoreUnavailable: an unavailable store breaks the stream, which continues later at
// its cursor. Only a missing object is reported as lost.
func TestStoreUnavailable(t *testing.T) {
	dir := durable.Dir(t.TempDir())
	away := errors.New("the store is away")
	var failing atomic.Value
	failing.Store(struct{ error }{nil})
	l := startLocal(t, session.Policy{}, dir, hookedStore{dir, func(r io.ReadCloser, err error) (io.ReadCloser, error) {
		if fails := failing.Load().(struct{ error }).error; fails != nil {
			return nil, fails
		}
		return r, err
	}})
	id, err := l.sessions.Start(t.Context(), nil)
	require.NoError(t, err)
	_, err = l.sessions.Command(t.Context(), id, session.Command{Command: "echo out"})
	require.NoError(t, err)
	// read reads from a cursor to the command's end.
	read := func(from session.Cursor) (types []string, at session.Cursor, err error) {
		for e, err := range l.sessions.Events(t.Context(), id, from) {
			if err != nil {
				return types, at, err
			}
			at = e.Cursor
			types = append(types, e.Type)
			if e.Type == session.TypeCommandEnd {
				break
			}
		}
		return types, at, nil
	}
	whole, _, err := read(session.Cursor{})
	require.NoError(t, err)
	require.Contains(t, whole, session.TypeCommandOutput)

	failing.Store(struct{ error }{away})
	types, at, err := read(session.Cursor{})
	require.ErrorIs(t, err, away)
	failing.Store(struct{ error }{nil})
	rest, _, err := read(at)
	require.NoError(t, err)
	assert.Equal(t, whole, append(types, rest...), "each once")

	failing.Store(struct{ error }{fs.ErrNotExist})
	lost, _, err := read(session.Cursor{})
	require.NoError(t, err)
	assert.Contains(t, lost, session.TypeOutputLost)
	assert.NotContains(t, lost, session.TypeCommandOutput)
}

// TestTruncated: without a store, a late viewer learns which events are gone and gets the
// others at once, even if nothing more happens in the session.
func TestTruncated(t *testing.T) {
	l := startLocal(t, session.Policy{HistoryLimit: 40, KeepEvents: 1}, nil, nil)
	id, err := l.sessions.Start(t.Context(), nil)
	require.NoError(t, err)
	run := func() string {
		d, err := l.temporal.DescribeWorkflowExecution(t.Context(), id, "")
		require.NoError(t, err)
		return d.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	}
	command := func() {
		done, err := l.sessions.Command(t.Context(), id, session.Command{Command: "true"})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			s, err := l.sessions.State(t.Context(), id)
			return err == nil && s.Running != done && s.Queued == 0
		}, time.Minute, 20*time.Millisecond)
	}
	first := run()
	for run() == first {
		command()
	}
	command()
	s, err := l.sessions.State(t.Context(), id)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var next int
	truncated := false
	for e, err := range l.sessions.Events(ctx, id, session.Cursor{}) {
		require.NoError(t, err)
		switch {
		case e.Type == session.TypeTruncated:
			assert.Less(t, next, e.From) // may come twice if the session continues as new in the meantime
			truncated, next = true, e.From
		case e.Type != session.TypeCommandOutput && e.Type != session.TypeOutputLost:
			require.True(t, truncated, "the truncated event comes first")
			assert.Equal(t, next, e.Seq)
			next++
		}
		if next >= s.Events {
			return
		}
	}
}
