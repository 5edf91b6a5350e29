package promises_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// unnamed lists the operations whose response does not name its object, each with the
// reason. The client can't detect that such a response belongs to another request.
var unnamed = map[*api.Op]string{
	api.CreateSandbox:   "the service may choose the name",
	api.CreateRuntime:   "the service may choose the name",
	api.ForkSandbox:     "the service may choose the name",
	api.ListSandboxes:   "a list does not name its parent",
	api.ListSessions:    "a list does not name its parent",
	api.ListDrives:      "a list does not name its parent",
	api.ListSnapshots:   "a list does not name its parent",
	api.SnapshotTree:    "a list does not name its parent",
	api.OpenInteractive: "the response is an address",
	api.MakeDir:         "the response is empty",
	api.WriteFiles:      "the response is empty",
	api.ReadFile:        "the response is only content",
	api.CommandLogs:     "the response is only content",
}

// TestCrossedResponses calls each operation of api.Table while a gateway mixes up two
// connections: the response belongs to the same operation on another object. The client
// treats it like a lost response. All rows use the same two worlds, one after another.
func TestCrossedResponses(t *testing.T) {
	t.Parallel()
	rows := lostResponses()
	srv := testkit.LightServer(t)
	w := newLostWorld(t, srv)
	twin := newTwin(t, w.c)
	for _, op := range inOrder() {
		row, ok := rows[op]
		require.True(t, ok, "%s %s has no row", op.Method, op.Path)
		if unnamed[op] != "" {
			continue
		}
		t.Run(op.Name+" "+op.Path, func(t *testing.T) {
			crossResponse(t, srv, w, twin, op, row)
		})
	}
}

func crossResponse(t *testing.T, srv *sandboxtest.Server, w, twin *lostWorld, op *api.Op, row lostResponse) {
	next, is := testkit.Transport(t), isOp(op)
	var crossed atomic.Int64
	gate := canned.RoundTripper(func(req *http.Request) (*http.Response, error) {
		if !is(req) || crossed.Add(1) > 1 {
			return next.RoundTrip(req)
		}
		theirs := w.requestOfTwin(t, req, twin)
		mine, err := next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		mine.Body.Close()
		resp, err := next.RoundTrip(theirs)
		if assert.NoError(t, err) {
			assert.Equal(t, mine.StatusCode, resp.StatusCode, "the status of the response to the twin")
		}
		return resp, err
	})
	w.c = testkit.Client(t, srv, sandbox.ClientOptions{
		HTTPClient: &http.Client{Transport: gate}, RetryWait: time.Millisecond, Reattach: &sandbox.ReattachOptions{Wait: time.Millisecond},
	})
	w.c.Bind(w.sb)
	w.c.Bind(w.cmd)
	w.c.Bind(w.drive)
	err := row.call(t.Context(), w)
	if undo := undos()[op]; undo != nil {
		defer func() {
			assert.NoError(t, undo(t.Context(), w))
			assert.NoError(t, undo(t.Context(), twin))
		}()
	}
	require.Positive(t, crossed.Load(), "nothing was exchanged")
	if row.unknown {
		assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
		return
	}
	require.NoError(t, err)
	if op.Class == api.Safe {
		assert.Greater(t, crossed.Load(), int64(1), "the client accepted it")
	}
}

// TestCrossedCommands: a gateway exchanges the responses to two commands that start at the
// same time. Each caller gets the output of its own command, and the client continues to
// choose IDs.
func TestCrossedCommands(t *testing.T) {
	t.Parallel()
	ways := map[string]func(context.Context, *sandbox.Sandbox, string) (string, error){
		"RunCommand": func(ctx context.Context, sb *sandbox.Sandbox, text string) (string, error) {
			done, err := sb.RunCommand(ctx, "sh", []string{"-c", "echo " + text + " | tee -a runs"}, nil)
			if err != nil {
				return "", err
			}
			return done.Stdout(ctx)
		},
		"RunCommand with a writer": func(ctx context.Context, sb *sandbox.Sandbox, text string) (string, error) {
			var out strings.Builder
			_, err := sb.RunCommand(ctx, "sh", []string{"-c", "echo " + text + " | tee -a runs"}, &sandbox.CommandOptions{Stdout: &out})
			return out.String(), err
		},
		"StartCommand": func(ctx context.Context, sb *sandbox.Sandbox, text string) (string, error) {
			cmd, err := sb.StartCommand(ctx, "sh", []string{"-c", "echo " + text + " | tee -a runs"}, nil)
			if err != nil {
				return "", err
			}
			return cmd.Stdout(ctx)
		},
		"Cmd": func(ctx context.Context, sb *sandbox.Sandbox, text string) (string, error) {
			out, err := sb.CommandContext(ctx, "sh", "-c", "echo "+text+" | tee -a runs").Output()
			return string(out), err
		},
	}
	for name, run := range ways {
		for _, where := range []string{"one session", "two sessions"} {
			if (where == "two sessions" && name != "RunCommand" || name == "RunCommand with a writer") && !needs.Slow() {
				continue
			}
			t.Run(name+" in "+where, func(t *testing.T) {
				t.Parallel()
				srv := testkit.LightServer(t)
				swap := &swapper{next: testkit.Transport(t), is: testkit.IsRun}
				var log testkit.LockedBuffer
				c := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: swap}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				boxes := make([]*sandbox.Sandbox, 2)
				var err error
				boxes[0], err = c.Create(t.Context(), nil)
				require.NoError(t, err)
				if boxes[1] = boxes[0]; where == "two sessions" {
					boxes[1], err = c.Create(t.Context(), nil)
					require.NoError(t, err)
				}
				var group sync.WaitGroup
				for i, sb := range boxes {
					group.Go(func() {
						text := strings.Repeat(string(rune('a'+i)), 3)
						out, err := run(t.Context(), sb, text)
						assert.NoError(t, err)
						assert.Equal(t, text+"\n", out)
					})
				}
				group.Wait()
				assert.NotContains(t, log.String(), "commands get their IDs from the service")
				if where == "one session" {
					assert.Len(t, strings.Fields(testkit.Output(t, boxes[0], "cat", "runs")), 2)
				}
			})
		}
	}
}

// TestCrossedAndUnreachable: a start gets the response to another start, and the lookup of
// the command fails. The client returns ErrOutcomeUnknown and not the other command, and
// continues to choose IDs.
func TestCrossedAndUnreachable(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	gate := &testkit.Gateway{Next: testkit.Transport(t)}
	c := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}, RetryWait: time.Millisecond})
	sb, err := c.Create(t.Context(), nil)
	require.NoError(t, err)
	theirs, err := sb.StartCommand(t.Context(), "sh", []string{"-c", "echo theirs"}, nil)
	require.NoError(t, err)
	var looks, chosen atomic.Int64
	for name, look := range map[string]func() (*http.Response, error){
		"a page": func() (*http.Response, error) {
			return canned.Response(404, "text/html", strings.NewReader("<html>")), nil
		},
		"a bad gateway":     func() (*http.Response, error) { return canned.Response(502, "text/html", strings.NewReader("")), nil },
		"no connection":     func() (*http.Response, error) { return nil, errReset },
		"a stopped session": func() (*http.Response, error) { return canned.JSON(410, `{"error":{"code":"sandbox_stopped"}}`), nil },
		"no permission":     func() (*http.Response, error) { return canned.JSON(403, `{"error":{"code":"forbidden"}}`), nil },
		"another command":   func() (*http.Response, error) { return canned.JSON(200, `{"command":{"id":"another"}}`), nil },
	} {
		gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			switch {
			case testkit.IsRun(req):
				if req.URL.Query().Has("cmdId") {
					chosen.Add(1)
				}
				resp, err := next.RoundTrip(req)
				if err != nil {
					return nil, err
				}
				resp.Body.Close()
				if body, err := json.Marshal(map[string]any{"command": map[string]any{
					"id": theirs.ID(), "name": "sh", "args": []string{"-c", "echo theirs"}, "cwd": "/", "sessionId": sb.CurrentSession().ID(), "exitCode": nil, "startedAt": 1,
				}}); assert.NoError(t, err) {
					resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(append(body, '\n'))), -1
				}
				return resp, nil
			case req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/cmd/"):
				looks.Add(1)
				return look()
			}
			return next.RoundTrip(req)
		})
		before := chosen.Load()
		_, err := sb.RunCommand(t.Context(), "true", nil, nil)
		assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, name)
		_, err = sb.StartCommand(t.Context(), "true", nil, nil)
		assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, name)
		assert.Equal(t, before+2, chosen.Load(), "%s: the client has stopped choosing IDs", name)
	}
	assert.Positive(t, looks.Load())
}

// TestDoubleWithOwnIDs: a test double of the API ignores the client's IDs, chooses others,
// and does not support lookups. Commands start nevertheless. After the second one, the
// client stops choosing IDs.
func TestDoubleWithOwnIDs(t *testing.T) {
	t.Parallel()
	var chosen, looks atomic.Int64
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: "http://127.0.0.1:1", Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}),
		MaxRetries: -1,
		HTTPClient: &http.Client{Transport: canned.RoundTripper(func(req *http.Request) (*http.Response, error) {
			switch {
			case testkit.IsRun(req):
				if req.URL.Query().Has("cmdId") {
					chosen.Add(1)
				}
				return canned.JSON(200, canned.Begun), nil
			case strings.Contains(req.URL.Path, "/cmd/"):
				looks.Add(1)
				return nil, errReset
			}
			return canned.JSON(200, canned.RunningSandbox), nil
		})},
	})
	require.NoError(t, err)
	sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	for range 4 {
		cmd, err := sb.StartCommand(t.Context(), "x", nil, nil)
		require.NoError(t, err)
		assert.Equal(t, "c1", cmd.ID())
	}
	assert.EqualValues(t, 2, chosen.Load())
	assert.EqualValues(t, 2, looks.Load())
}

// swapper exchanges the responses to the first two requests of a kind.
type swapper struct {
	next  http.RoundTripper
	is    func(*http.Request) bool
	mu    sync.Mutex
	first chan *http.Response // the response to the first request
	other chan *http.Response // the response to the second request
	count int
}

func (s *swapper) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	if !s.is(req) || s.count == 2 {
		s.mu.Unlock()
		return s.next.RoundTrip(req)
	}
	if s.count++; s.count == 1 {
		s.first, s.other = make(chan *http.Response, 1), make(chan *http.Response, 1)
	}
	give, take := s.first, s.other
	if s.count == 2 {
		give, take = take, give
	}
	s.mu.Unlock()
	resp, err := s.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	give <- resp
	select {
	case resp = <-take:
		return resp, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// newTwin creates a second world, whose objects have other names.
func newTwin(t *testing.T, c *sandbox.Client) *lostWorld {
	t.Helper()
	kept, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: "twinkept"})
	require.NoError(t, err)
	stopped, err := kept.Stop(t.Context(), nil)
	require.NoError(t, err)
	drive, err := c.GetOrCreateDrive(t.Context(), "twindata", nil)
	require.NoError(t, err)
	sb, err := c.Create(t.Context(), testkit.Lasting(&sandbox.CreateOptions{Name: "twinwork"}))
	require.NoError(t, err)
	twin := &lostWorld{c: c, sb: sb, drive: drive, snapshot: stopped.Snapshot.ID, prefix: "twin"}
	require.NoError(t, twin.start(t.Context()))
	return twin
}

// requestOfTwin returns the same request for the twin's objects.
func (w *lostWorld) requestOfTwin(t *testing.T, req *http.Request, twin *lostWorld) *http.Request {
	theirs := req.Clone(req.Context())
	names := strings.NewReplacer(
		w.cmd.ID(), twin.cmd.ID(), w.sb.CurrentSession().ID(), twin.sb.CurrentSession().ID(), w.snapshot, twin.snapshot,
		"/sandboxes/work", "/sandboxes/twinwork", "/sandboxes/kept", "/sandboxes/twinkept", "/drives/data", "/drives/twindata", "/drives/another", "/drives/twinanother",
	)
	theirs.URL.Path, theirs.URL.RawPath = names.Replace(req.URL.Path), ""
	query := theirs.URL.Query()
	if query.Has("cmdId") {
		query.Set("cmdId", "twin"+query.Get("cmdId"))
	}
	theirs.URL.RawQuery = query.Encode()
	if req.Body == nil || req.Body == http.NoBody {
		return theirs
	}
	body, err := io.ReadAll(req.Body)
	assert.NoError(t, err)
	req.Body = io.NopCloser(bytes.NewReader(body))
	body = []byte(strings.NewReplacer(`"name":"`, `"name":"twin`, `"cmdId":"`, `"cmdId":"twin`).Replace(string(body)))
	theirs.Body, theirs.ContentLength, theirs.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return theirs
}
