package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/observe"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// outline is an observer that prints its events as a tree. An event is the child of the
// event whose Begin has returned the context of its own Begin.
type outline struct {
	mu    sync.Mutex
	roots []*branch
}

type branch struct {
	event    observe.Event
	children []*branch
	over     bool
}

type branchKey struct{}

func (o *outline) Begin(ctx context.Context, e observe.Event) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := &branch{event: e}
	if parent, ok := ctx.Value(branchKey{}).(*branch); ok {
		parent.children = append(parent.children, b)
	} else {
		o.roots = append(o.roots, b)
	}
	return context.WithValue(ctx, branchKey{}, b)
}

func (o *outline) End(ctx context.Context, e observe.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := ctx.Value(branchKey{}).(*branch)
	b.event, b.over = e, true
}

func (o *outline) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var text strings.Builder
	var write func(list []*branch, indent string)
	write = func(list []*branch, indent string) {
		for _, b := range list {
			e := b.event
			line := []string{string(e.Kind), e.Operation, e.Program, e.Outcome}
			if e.Attempt > 1 {
				line = append(line, fmt.Sprint("attempt ", e.Attempt))
			}
			if e.Status != 0 && e.Status != 200 {
				line = append(line, fmt.Sprint("status ", e.Status))
			}
			if e.Cause != "" {
				line = append(line, "because "+e.Cause)
			}
			if !b.over {
				line = append(line, "NOT OVER")
			}
			fmt.Fprintln(&text, indent+strings.Join(strings.Fields(strings.Join(line, " ")), " "))
			write(b.children, indent+"  ")
		}
	}
	write(o.roots, "")
	return text.String()
}

// TestObserverTree: RunCommand finds its sandbox stopped. A 503 delays the resume, and the
// connection breaks twice while the output arrives. The events form a tree, and the
// repeated ones name their cause.
func TestObserverTree(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	var seen outline
	var log testkit.LockedBuffer
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{
		Observer: &seen, RetryWait: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}).Create(t.Context(), testkit.Lasting(&sandbox.CreateOptions{Name: "observed"}))
	require.NoError(t, err)
	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	seen.roots = nil

	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.GetSandbox, Times: 1, Status: http.StatusServiceUnavailable, Message: "come back later"})
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, Match: func(*http.Request) bool { return sb.CurrentSession().Info().Status == sandbox.StatusRunning }, Times: 1, CutAfterBytes: 1500})
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.CommandLogs, Times: 1, CutAfterBytes: 2500})
	done, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "for i in $(seq 100); do echo a line of output, number $i; done; exit 3", "secret-argument"}, nil)
	require.NoError(t, err)
	require.Equal(t, 3, done.ExitCode)

	want := `command sh exit
  operation run command stopped status 410
    request run command stopped attempt 1 status 410
  resume ok because stopped
    operation get sandbox ok attempt 2 because busy
      request get sandbox busy attempt 1 status 503
      request get sandbox ok attempt 2 because busy
  operation run command broken
    request run command broken
  repair ok because cut
  operation read command logs broken
    request read command logs broken
  repair ok attempt 2 because cut
  operation read command logs ok
    request read command logs ok
  operation read command logs ok
    request read command logs ok
`
	assert.Equal(t, strings.ReplaceAll(want, " attempt 1", ""), strings.Join(without(strings.SplitAfter(seen.String(), "\n"), "get command"), ""))
	command := seen.roots[0].event
	assert.Equal(t, []any{"observed", done.Command.SessionID(), done.Command.ID(), "sh", "exit", 3}, []any{command.Sandbox, command.Session, command.Command, command.Program, command.Outcome, command.ExitCode})
	out, err := done.Stdout(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, len(out), command.Received, "repeated output is counted once")

	// Each record of the log names the sandbox and the cause, and none contains an
	// argument of the command.
	text := log.String()
	assert.NotContains(t, text, "secret-argument")
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v", command, command, command), "secret-argument")
	for _, record := range []string{
		`level=WARN msg="sandbox request" operation="get sandbox" sandbox=observed session=` + done.Command.SessionID() + ` method=GET path=/v2/sandboxes/{sandbox} attempt=2 cause=busy causeError="status 503, `,
		`level=INFO msg="sandbox resume" sandbox=observed session=`,
		`level=WARN msg="sandbox output repair" sandbox=observed session=` + done.Command.SessionID() + " command=" + done.Command.ID() + " attempt=1 cause=cut",
	} {
		assert.Contains(t, text, record)
	}
	assert.Contains(t, text, "come back later")
}

// without returns the lines that do not contain the text.
func without(lines []string, text string) (left []string) {
	for _, line := range lines {
		if !strings.Contains(line, text) {
			left = append(left, line)
		}
	}
	return left
}

// TestObserverKinds: an operation that makes several requests has one event, which lasts
// from its start to its end and names the sandbox.
func TestObserverKinds(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv := newServer(t)
	events := &testkit.Events{}
	client := testkit.Client(t, srv, sandbox.ClientOptions{Observer: events, RetryWait: time.Millisecond})
	hook := func(ctx context.Context, sb *sandbox.Sandbox) error {
		_, err := sb.RunCommand(ctx, "true", nil, nil)
		return err
	}
	ctx := t.Context()
	last := func(kind observe.Kind) observe.Event {
		t.Helper()
		list := events.Ended(kind)
		require.NotEmpty(t, list, kind)
		e := list[len(list)-1]
		assert.Equal(t, "box", e.Sandbox, "%v", e)
		assert.NotZero(t, e.Start)
		return e
	}
	sb, err := client.GetOrCreate(ctx, "box", testkit.Lasting(&sandbox.CreateOptions{OnCreate: hook, OnResume: hook}))
	require.NoError(t, err)
	assert.Equal(t, "OnCreate", last("hook").Operation)

	var out bytes.Buffer
	cmd, err := sb.StartCommand(ctx, "echo", []string{"hello"}, &sandbox.StartOptions{Stdout: &out})
	require.NoError(t, err)
	_, err = cmd.Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, []any{"echo", int64(6), "ok"}, []any{last("command").Program, last("command").Received, last("command").Outcome})
	cmd, err = sb.StartCommand(ctx, "sh", []string{"-c", "exit 7"}, nil)
	require.NoError(t, err)
	assert.Equal(t, "started", last("command").Outcome)
	_, err = cmd.Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, []any{7, "exit", cmd.ID()}, []any{last("wait").ExitCode, last("wait").Outcome, last("wait").Command})
	_, err = sb.CommandContext(ctx, "sh", "-c", "echo 12345; exit 2").Output()
	require.Error(t, err)
	assert.Equal(t, []any{2, "exit", int64(6), nil}, []any{last("command").ExitCode, last("command").Outcome, last("command").Received, last("command").Err})
	require.Error(t, sb.CommandContext(ctx, "no-such-program").Run())
	assert.Equal(t, "no_program", last("command").Outcome)

	content := bytes.Repeat([]byte("x"), 100_000)
	require.NoError(t, sb.FS().WriteFiles(ctx, []sandbox.File{{Path: "f", Content: content}}, nil))
	assert.NotZero(t, last("upload").Sent)
	r, err := sb.FS().Open(ctx, "f", nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	assert.EqualValues(t, len(content), last("download").Received)
	_, err = sb.FS().Open(ctx, "missing", nil)
	require.Error(t, err)
	assert.Equal(t, "not_found", last("download").Outcome)
	require.NoError(t, sb.FS().DownloadDir(ctx, ".", t.TempDir()+"/d", nil))
	assert.EqualValues(t, len(content), last("download").Received)

	stopped, err := sb.Stop(ctx, nil)
	require.NoError(t, err)
	assert.Equal(t, []any{stopped.Snapshot.ID, stopped.Session.Duration}, []any{last("stop").Snapshot, last("stop").Lived})
	before := len(events.Ended("hook"))
	require.NoError(t, sb.Resume(ctx))
	assert.Equal(t, []any{"asked", "ok", "OnResume"}, []any{last("resume").Cause, last("resume").Outcome, last("hook").Operation})
	assert.Len(t, events.Ended("hook"), before+1)
	require.NoError(t, sb.Close())
	_, err = client.Get(ctx, "box", nil)
	require.NoError(t, err)
	assert.Equal(t, "get", last("resume").Cause)
	assert.Len(t, events.Ended("resume"), 2)

	_, err = client.Get(ctx, "nowhere", nil)
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	ops := events.Ended("operation")
	assert.Equal(t, []any{"nowhere", "not_found", 404}, []any{ops[len(ops)-1].Sandbox, ops[len(ops)-1].Outcome, ops[len(ops)-1].Status})
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = client.Get(gone, "box", nil)
	require.Error(t, err)
	ops = events.Ended("operation")
	assert.Equal(t, "canceled", ops[len(ops)-1].Outcome)

	require.Eventually(t, func() bool { return events.Open() == 0 }, testkit.Patience, time.Millisecond)
	assert.Len(t, srv.Requests(), len(events.Ended("request")), "each request has an event")
}

// noOp is an observer that ignores all events.
type noOp struct{}

func (noOp) Begin(ctx context.Context, _ observe.Event) context.Context { return ctx }
func (noOp) End(context.Context, observe.Event)                         {}

// TestObserverAllocations: a call with a no-op observer makes no more allocations than one
// without an observer.
func TestObserverAllocations(t *testing.T) {
	stream := fmt.Sprintf(canned.Command, "null") + "\n" + `{"data":"hello\n","stream":"stdout"}` + "\n" + fmt.Sprintf(canned.Command, "0") + "\n"
	responses := func(req *http.Request) (string, string) {
		switch {
		case strings.HasSuffix(req.URL.Path, "/cmd"):
			return "application/x-ndjson", stream
		case strings.HasSuffix(req.URL.Path, "/v3/sandboxes"):
			return "application/json", `{"sandbox":` + fmt.Sprintf(canned.Sandbox, 0) + `,"session":` + canned.Session + `,"routes":[]}`
		}
		return "application/json", fmt.Sprintf(canned.Command, "0")
	}
	// Use the minimum of many calls, because the standard library's pools sometimes lose
	// buffers. An allocation of this module would occur in each call.
	measure := func(o observe.Observer) (got [2]float64) {
		c, err := sandbox.NewClient(&sandbox.ClientOptions{
			BaseURL: "https://api.test", HTTPClient: &http.Client{Transport: canned.Responses(responses)}, Observer: o,
			Credentials: auth.Static(auth.Credentials{Token: "token", TeamID: "team", ProjectID: "project"}),
		})
		require.NoError(t, err)
		sb, err := c.Create(t.Context(), nil)
		require.NoError(t, err)
		for i, call := range []func() error{
			func() error { _, err := sb.RunCommand(t.Context(), "echo", []string{"hello"}, nil); return err },
			func() error { _, err := sb.GetCommand(t.Context(), "cmd_1"); return err },
		} {
			got[i] = math.MaxInt
			for range 500 {
				got[i] = min(got[i], testing.AllocsPerRun(1, func() { err = errors.Join(err, call()) }))
			}
		}
		require.NoError(t, err)
		return got
	}
	assert.Equal(t, measure(nil), measure(noOp{}), "allocations of RunCommand and GetCommand")
}

// TestObserverSecrets: an observer receives no token, even if a server sends it back.
func TestObserverSecrets(t *testing.T) {
	t.Parallel()
	const token = "planted-token-of-an-observer"
	events := &testkit.Events{}
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: "https://api.test", Observer: events, MaxRetries: 1, RetryWait: time.Millisecond,
		Credentials: auth.Static(auth.Credentials{Token: token, TeamID: "team", ProjectID: "project"}),
		HTTPClient: &http.Client{Transport: canned.API(func(req *http.Request) (*http.Response, error) {
			resp := canned.JSON(503, `{"error":{"code":"busy","message":"`+req.Header.Get("Authorization")+`\u001b[2J"}}`)
			resp.Header.Set("X-Vercel-Id", "iad1::"+token+"\x1b")
			return resp, nil
		})},
	})
	require.NoError(t, err)
	_, err = c.Get(t.Context(), "box", nil)
	require.Error(t, err)
	requests := events.Ended("request")
	require.Len(t, requests, 2)
	assert.Equal(t, 2, requests[1].Attempt)
	assert.Len(t, events.Ended("operation"), 1)
	for _, e := range events.Ended() {
		text := fmt.Sprint(e, e.Err, e.CauseErr, e.RequestID)
		assert.NotContains(t, text, token)
		assert.NotContains(t, text, "\x1b")
	}
}
