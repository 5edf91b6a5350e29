package session

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
)

// testSession is a session in a test environment.
type testSession struct {
	t *testing.T
	*durabletest.Env
	outcomes map[string]string // by key: the command's ID, or the refusal
}

func newTestSession(t *testing.T, opts *durabletest.Options) *testSession {
	env := durabletest.New(t, opts)
	RegisterOnly(env, env.Worker)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "ses-1", TaskQueue: "sandbox"})
	return &testSession{t, env, map[string]string{}}
}

// send plans a command at a time. outcomes[key] gets its ID or refusal.
func (p *testSession) send(at time.Duration, key, script string) {
	p.At(at, func() {
		p.UpdateWorkflow(updateCommand, "", &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { p.outcomes[key] = "refused: " + err.Error() },
			OnComplete: func(v any, err error) {
				if err == nil {
					p.outcomes[key] = fmt.Sprint(v)
				}
			},
		}, commandUpdate{Key: key, Command: script})
	})
}

// sendUpdate sends an update and ignores the answer.
func (p *testSession) sendUpdate(name string, arg any) {
	p.UpdateWorkflow(name, "", &testsuite.TestUpdateCallback{OnAccept: func() {}, OnReject: func(error) {}, OnComplete: func(any, error) {}}, arg)
}

// run runs the session to its end and returns its events.
func (p *testSession) run(policy Policy) []Event {
	p.ExecuteWorkflow(Workflow, input{Policy: policy})
	require.True(p.t, p.IsWorkflowCompleted())
	return p.events()
}

func (p *testSession) events() []Event {
	var all []Event
	for from := 0; ; {
		v, err := p.QueryWorkflow(queryEvents, from)
		require.NoError(p.t, err)
		var got page
		require.NoError(p.t, v.Get(&got))
		for _, e := range got.Events {
			all = append(all, e.Event)
			from = e.Event.Seq + 1
		}
		if len(got.Events) == 0 {
			return all
		}
	}
}

// output returns the stored output of a command.
func (p *testSession) output(id string) string {
	var b strings.Builder
	for rec, err := range durable.ReadOutput(p.t.Context(), p.Worker.Output, keyOfOutput(p.events(), id), 0) {
		require.NoError(p.t, err)
		b.Write(rec.Data)
	}
	return b.String()
}

// keyOfOutput returns the key of a command's output.
func keyOfOutput(events []Event, id string) string {
	for _, e := range events {
		if e.Type == TypeCommandStart && e.ID == id {
			return e.Output
		}
	}
	return "none/" + id
}

// whenRead returns a channel that is closed when the worker has read a text of a command's
// output and asks for more.
func (p *testSession) whenRead(text string) <-chan struct{} {
	w := &watchedLogs{text: text, read: make(chan struct{})}
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: p.Server.URL, Credentials: auth.Static(p.Server.Credentials()), HTTPClient: &http.Client{Transport: w},
	})
	require.NoError(p.t, err)
	p.Worker.Client = c
	return w.read
}

type watchedLogs struct {
	text string
	once sync.Once
	read chan struct{}
}

func (w *watchedLogs) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil && (strings.HasSuffix(req.URL.Path, "/logs") || strings.HasSuffix(req.URL.Path, "/cmd")) {
		resp.Body = &watchedBody{ReadCloser: resp.Body, w: w}
	}
	return resp, err
}

type watchedBody struct {
	io.ReadCloser
	w    *watchedLogs
	seen []byte
}

func (b *watchedBody) Read(p []byte) (int, error) {
	if strings.Contains(string(b.seen), b.w.text+`\n"`) { // skip the command line, which may contain the text, too
		b.w.once.Do(func() { close(b.w.read) })
	}
	n, err := b.ReadCloser.Read(p)
	b.seen = append(b.seen, p[:n]...)
	return n, err
}

// on calls f once c is closed, unless the test ends first.
func (p *testSession) on(c <-chan struct{}, f func()) {
	done := make(chan struct{})
	p.t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		select {
		case <-c:
			f()
		case <-p.t.Context().Done():
		}
	}()
}

// story describes the events in words, such as "cmd-1 exited 0".
func story(events []Event) []string {
	var words []string
	for _, e := range events {
		switch e.Type {
		case TypeStatus:
			words = append(words, e.State)
		case TypeCommandEnd:
			text := e.ID + " " + string(e.Outcome)
			if e.ExitCode != nil {
				text += fmt.Sprint(" ", *e.ExitCode)
			}
			words = append(words, text)
		case TypeResult:
			words = append(words, e.Status)
		}
	}
	return words
}
