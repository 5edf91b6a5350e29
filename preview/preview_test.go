package preview_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/preview"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// portApp is a server in a sandbox. It records the beginning of each POST and responds with
// the status in its path. /echo upgrades the connection, /die ends the server, and the
// response to a GET shows the path.
type portApp struct {
	mu    sync.Mutex
	posts []string
}

// serve is the command "app" of a sandbox. Its argument is a port.
func (a *portApp) serve(ctx context.Context, inv *sandboxtest.Invocation) int {
	l, err := net.Listen("tcp", ":"+inv.Args[0])
	if err != nil {
		fmt.Fprintln(inv.Stderr, err)
		return 1
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // a test's own visitors
		if r.Header.Get("Upgrade") != "" {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			line, _ := rw.ReadString('\n')
			_, _ = io.WriteString(conn, line)
			return
		}
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, r.URL.Path)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		a.mu.Lock()
		a.posts = append(a.posts, string(body[:min(20, len(body))]))
		a.mu.Unlock()
		if r.URL.Path == "/die" {
			end()
			panic(http.ErrAbortHandler)
		}
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(status)
		fmt.Fprintf(w, "the app's own %d", len(body))
	})}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	_ = server.Serve(l)
	return 0
}

// bodies returns the beginnings of the POSTs.
func (a *portApp) bodies() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.posts)
}

// start returns a hook that starts the app on a port.
func (a *portApp) start(port int) sandbox.Hook {
	return func(ctx context.Context, sb *sandbox.Sandbox) error {
		_, err := sb.StartCommand(ctx, "app", []string{strconv.Itoa(port)}, nil)
		return err
	}
}

// newPortApp returns an emulator whose sandboxes have the command "app", and a free port. In
// folder mode sandboxes share the test's network.
func newPortApp(t *testing.T) (*sandboxtest.Server, *portApp, int) {
	t.Helper()
	srv, app := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder}), &portApp{}
	srv.HandleCommand("app", app.serve)
	return srv, app, needs.Port(t)
}

// createSandbox creates a sandbox with a port.
func createSandbox(t *testing.T, srv *sandboxtest.Server, port int, onResume sandbox.Hook) *sandbox.Sandbox {
	t.Helper()
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Create(t.Context(), testkit.Lasting(&sandbox.CreateOptions{Ports: []int{port}, OnResume: onResume}))
	require.NoError(t, err)
	return sb
}

// portSandbox creates a sandbox that starts the app on a port in each session.
func portSandbox(t *testing.T) (*sandboxtest.Server, *sandbox.Sandbox, *portApp, int) {
	t.Helper()
	srv, app, port := newPortApp(t)
	sb := createSandbox(t, srv, port, app.start(port))
	require.NoError(t, app.start(port)(t.Context(), sb))
	_, err := sb.WaitForPort(t.Context(), port, nil)
	require.NoError(t, err)
	return srv, sb, app, port
}

// TestReverseProxyResumes: statuses of the app pass through, each POST arrives once, and
// any kind of request resumes the sandbox.
func TestReverseProxyResumes(t *testing.T) {
	t.Parallel()
	_, sb, app, port := portSandbox(t)
	front := httptest.NewServer(preview.ReverseProxy(sb, port, nil))
	defer front.Close()
	post := func(path, body string) (int, string) {
		t.Helper()
		resp, err := front.Client().Post(front.URL+path, "text/plain", strings.NewReader(body))
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	var want []string
	for _, status := range []int{404, 410, 422, 502, 503} {
		body := fmt.Sprintf("awake %d", status)
		got, text := post(fmt.Sprintf("/%d", status), body)
		assert.Equal(t, status, got)
		assert.Equal(t, fmt.Sprintf("the app's own %d", len(body)), text)
		want = append(want, body)
	}
	// The server exits after it has received the request, which is not sent again.
	status, _ := post("/die", "fatal")
	assert.Equal(t, http.StatusBadGateway, status)
	want = append(want, "fatal")

	_, err := sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	big := "asleep " + strings.Repeat("x", 200_000)
	status, text := post("/200", big)
	assert.Equal(t, 200, status)
	assert.Equal(t, fmt.Sprintf("the app's own %d", len(big)), text)
	want = append(want, big[:20])
	assert.Equal(t, want, app.bodies())

	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	other := httptest.NewServer(preview.ReverseProxy(sb, port, nil)) // the first proxy has just resumed the sandbox, and waits before it does so again
	defer other.Close()
	conn, err := net.Dial("tcp", other.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /echo HTTP/1.1\r\nHost: front\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	_, err = io.WriteString(conn, "hello\n")
	require.NoError(t, err)
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "hello\n", line)
}

// TestTransportConcurrentResume: concurrent requests to a stopped sandbox resume it once,
// and each arrives once.
func TestTransportConcurrentResume(t *testing.T) {
	t.Parallel()
	_, sb, app, port := portSandbox(t)
	client := &http.Client{Transport: preview.Transport(sb, port, nil)}
	defer client.CloseIdleConnections()
	var want []string
	rounds, visitors := 2, 20
	if !needs.Slow() {
		rounds, visitors = 1, 8
	}
	for round := range rounds {
		_, err := sb.Stop(t.Context(), nil)
		require.NoError(t, err)
		var group sync.WaitGroup
		for i := range visitors {
			want = append(want, fmt.Sprintf("%d.%d", round, i))
			body := want[len(want)-1]
			group.Go(func() {
				resp, err := client.Post("http://app/200", "text/plain", strings.NewReader(body))
				if assert.NoError(t, err) {
					assert.Equal(t, 200, resp.StatusCode)
					assert.NoError(t, resp.Body.Close())
				}
			})
		}
		group.Wait()
	}
	assert.ElementsMatch(t, want, app.bodies())
	sessions := 0
	for _, err := range sb.ListSessions(t.Context(), nil) {
		require.NoError(t, err)
		sessions++
	}
	assert.Equal(t, rounds+1, sessions, "the first session, and one for each round")
}

// TestTransportRunsStart: if another client has started the session, OnResume does not
// run and nothing listens. A request runs Options.Start, and arrives once.
func TestTransportRunsStart(t *testing.T) {
	t.Parallel()
	srv, app, port := newPortApp(t)
	first := createSandbox(t, srv, port, nil)
	_, err := first.Stop(t.Context(), nil)
	require.NoError(t, err)
	plain, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Get(t.Context(), first.Name(), nil)
	require.NoError(t, err)
	require.NoError(t, plain.Resume(t.Context()))

	var hooks atomic.Int64
	serve := app.start(port)
	start := func(ctx context.Context, sb *sandbox.Sandbox) error {
		hooks.Add(1)
		if err := serve(ctx, sb); err != nil {
			return err
		}
		// A Start that returns before the server listens may be called again.
		_, err := sb.WaitForPort(ctx, port, nil)
		return err
	}
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Get(t.Context(), first.Name(), &sandbox.GetOptions{
		OnResume: func(context.Context, *sandbox.Sandbox) error { return errors.New("it ran") },
	})
	require.NoError(t, err)
	refusals := testkit.LockedBuffer{}
	base := testkit.Transport(t)
	tr := preview.Transport(sb, port, &preview.Options{Start: start, Base: canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err == nil && resp.StatusCode == http.StatusBadGateway {
			fmt.Fprintln(&refusals, resp.Header.Get("X-Vercel-Error"))
		}
		return resp, err
	})})
	client := &http.Client{Transport: tr}
	for _, body := range []string{"first", "second"} {
		resp, err := client.Post("http://app/200", "text/plain", strings.NewReader(body))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
	assert.NotEmpty(t, refusals.String(), "the edge refused a request before anything listened")
	assert.EqualValues(t, 1, hooks.Load())
	assert.Equal(t, []string{"first", "second"}, app.bodies())
	assert.Equal(t, plain.CurrentSession().ID(), sb.CurrentSession().ID(), "the session is the same")
}

// TestTransportGivesUp: nothing listens, the sandbox is gone, arguments are wrong.
func TestTransportGivesUp(t *testing.T) {
	t.Parallel()
	port := needs.Port(t)
	_, sb := testkit.LightStart(t, &sandbox.CreateOptions{Ports: []int{port}})
	base := testkit.Transport(t)
	get := func(tr http.RoundTripper, body io.Reader) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://app/", body)
		require.NoError(t, err)
		resp, err := tr.RoundTrip(req)
		if err == nil {
			err = errors.Join(fmt.Errorf("status %d", resp.StatusCode), resp.Body.Close())
		}
		return err
	}
	tr := preview.Transport(sb, port, &preview.Options{MaxWait: 300 * time.Millisecond, Base: base})
	err := get(tr, nil)
	assert.ErrorContains(t, err, fmt.Sprintf("port %d of %q", port, sb.Name()))
	assert.ErrorContains(t, err, "SANDBOX_NOT_LISTENING for 300ms")
	err = get(preview.Transport(sb, 9, nil), nil)
	assert.ErrorIs(t, err, sandbox.ErrNoRoute)
	assert.ErrorContains(t, err, "only ports from 1024 to 65535 can be exposed")
	for field, bad := range map[string]preview.Options{"MaxWait": {MaxWait: -1}, "Idle": {Idle: -1}} {
		err := get(preview.Transport(sb, port, &bad), nil)
		assert.ErrorIs(t, err, sandbox.ErrInvalid)
		assert.ErrorContains(t, err, field+": -1ns is negative")
	}
	assert.ErrorIs(t, get(preview.Transport(sb, 0, nil), nil), sandbox.ErrInvalid)
	require.NoError(t, sb.Delete(t.Context(), nil))
	assert.Error(t, get(tr, nil))
}

// clientOfEdge returns a client for a sandbox's port, and the number of times that the client
// has resumed the sandbox. Its requests go to edge, which stands in for the service's edge.
func clientOfEdge(t *testing.T, edge canned.RoundTripper) (*http.Client, *int) {
	t.Helper()
	resumes := 0
	client := canned.API(func(*http.Request) (*http.Response, error) {
		resumes++
		return canned.JSON(200, `{"session":{"id":"sess_1","status":"running"},"sandbox":{"name":"box","currentSessionId":"sess_1"},
			"routes":[{"url":"https://a-3000.example.com","subdomain":"a","port":3000}]}`), nil
	}).Client(t)
	sb, err := client.Get(t.Context(), "box", nil)
	require.NoError(t, err)
	resumes = 0
	return &http.Client{Transport: preview.Transport(sb, 3000, &preview.Options{Base: edge})}, &resumes
}

// TestReverseProxyPages tests the pages that visitors see if the server does not respond.
func TestReverseProxyPages(t *testing.T) {
	refusal := func(status int, code, message string) canned.RoundTripper {
		return func(*http.Request) (*http.Response, error) {
			resp := canned.JSON(status, fmt.Sprintf(`{"error":{"code":%q,"message":%q}}`, code, message))
			resp.Header.Set("X-Vercel-Error", code)
			return resp, nil
		}
	}
	for _, test := range []struct {
		name         string
		gone         bool
		base         canned.RoundTripper
		start        sandbox.Hook
		status       int
		again        bool
		page, logged string
	}{
		{name: "waking", base: refusal(410, "SANDBOX_STOPPED", "The sandbox has stopped."), status: 504, again: true, page: "is being started", logged: "SANDBOX_STOPPED for 1m0s"},
		{name: "not listening", base: refusal(502, "SANDBOX_NOT_LISTENING", "Let it <listen> on 0.0.0.0."), status: 504, again: true, page: "Let it &lt;listen&gt; on 0.0.0.0.", logged: "Let it <listen> on 0.0.0.0."},
		{name: "not to be started", base: refusal(502, "SANDBOX_NOT_LISTENING", "m"), start: func(context.Context, *sandbox.Sandbox) error { return errors.New("no disk") }, status: 504, again: true, page: "m", logged: "Start: no disk"},
		{name: "gone", gone: true, base: refusal(410, "SANDBOX_STOPPED", "m"), status: 404, page: "nothing at this address", logged: "not found"},
		{name: "gone with its address", gone: true, base: func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		}, status: 404, page: "nothing at this address", logged: "not found"},
		{name: "unreachable", base: func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("secret refused")}
		}, status: 502, page: "reached at the moment", logged: "refused"},
		{name: "broken", base: func(*http.Request) (*http.Response, error) { return nil, errors.New("secret detail") }, status: 502, page: "may have received it", logged: "secret detail"},
		{name: "slow", base: func(*http.Request) (*http.Response, error) { return nil, context.DeadlineExceeded }, status: 504, page: "in time", logged: "deadline"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := false
				client := canned.API(func(*http.Request) (*http.Response, error) {
					if test.gone && got {
						return canned.JSON(404, `{"error":{"code":"not_found","message":"Named sandbox 'box' not found for this project."}}`), nil
					}
					got = true
					return canned.JSON(200, `{"session":{"id":"sess_1","status":"running"},"sandbox":{"name":"box","currentSessionId":"sess_1"},
						"routes":[{"url":"https://a-3000.example.com","subdomain":"a","port":3000}]}`), nil
				}).Client(t)
				sb, err := client.Get(t.Context(), "box", nil)
				require.NoError(t, err)
				var logged bytes.Buffer
				proxy := preview.ReverseProxy(sb, 3000, &preview.Options{Base: test.base, Start: test.start})
				proxy.ErrorLog = log.New(&logged, "", 0)
				for _, accept := range []string{"text/html,*/*", "application/json"} {
					req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
					req.Header.Set("Accept", accept)
					rec := httptest.NewRecorder()
					proxy.ServeHTTP(rec, req)
					resp := rec.Result()
					assert.Equal(t, test.status, resp.StatusCode)
					assert.Equal(t, test.again, resp.Header.Get("Retry-After") != "")
					assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
					text := rec.Body.String()
					if accept == "application/json" {
						text = html.EscapeString(text)
						assert.Contains(t, resp.Header.Get("Content-Type"), "text/plain")
					} else {
						assert.Equal(t, test.again, strings.Contains(text, "http-equiv=\"refresh\""))
					}
					assert.Contains(t, text, test.page)
					assert.NotContains(t, text, "secret")
				}
				assert.Contains(t, logged.String(), test.logged)
			})
		})
	}
}

// TestStart: Start runs once for all concurrent requests after the server has exited.
func TestStart(t *testing.T) {
	t.Parallel()
	srv, app, port := newPortApp(t)
	sb := createSandbox(t, srv, port, nil)
	var starts atomic.Int64
	serve := app.start(port)
	opts := &preview.Options{Start: func(ctx context.Context, sb *sandbox.Sandbox) error {
		starts.Add(1)
		if err := serve(ctx, sb); err != nil {
			return err
		}
		// On a slow machine the server may not listen before the next call of Start.
		_, err := sb.WaitForPort(ctx, port, nil)
		return err
	}, Base: testkit.Transport(t)}
	client := &http.Client{Transport: preview.Transport(sb, port, opts)}
	post := func(path, body string, status int) {
		resp, err := client.Post("http://app"+path, "text/plain", strings.NewReader(body))
		if assert.NoError(t, err) {
			assert.Equal(t, status, resp.StatusCode)
			assert.NoError(t, resp.Body.Close())
		}
	}
	post("/200", "before", 200)
	post("/die", "last", 502) // the edge's status for a broken connection
	address, err := sb.URL(port)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // earlier requests were lost with the old server
		resp, err := http.Get(address)
		return err == nil && resp.Body.Close() == nil && resp.Header.Get("X-Vercel-Error") == "SANDBOX_NOT_LISTENING"
	}, testkit.Patience, 5*time.Millisecond)
	client.Transport = preview.Transport(sb, port, opts) // the first transport has just called Start, and waits before it does so again
	var visitors sync.WaitGroup
	for range 5 {
		visitors.Go(func() { post("/200", "after", 200) })
	}
	visitors.Wait()
	assert.EqualValues(t, 2, starts.Load())
	assert.Equal(t, []string{"before", "last", "after", "after", "after", "after", "after"}, app.bodies())
}

// TestStartOnce: a request that was sent before the server started does not start it again,
// even if its refusal arrives later.
func TestStartOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts atomic.Int64
		client := canned.API(func(*http.Request) (*http.Response, error) {
			return canned.JSON(200, `{"session":{"id":"sess_1","status":"running"},"sandbox":{"name":"box","currentSessionId":"sess_1"},
				"routes":[{"url":"https://a-3000.example.com","subdomain":"a","port":3000}]}`), nil
		}).Client(t)
		sb, err := client.Get(t.Context(), "box", nil)
		require.NoError(t, err)
		visits := &http.Client{Transport: preview.Transport(sb, 3000, &preview.Options{
			Base: canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
				running := starts.Load() > 0
				late, err := time.ParseDuration(r.URL.Path[1:])
				require.NoError(t, err)
				time.Sleep(late)
				if running {
					return canned.Response(200, "text/plain", http.NoBody), nil
				}
				resp := canned.Response(502, "text/plain", http.NoBody)
				resp.Header.Set("X-Vercel-Error", "SANDBOX_NOT_LISTENING")
				return resp, nil
			}),
			Start: func(context.Context, *sandbox.Sandbox) error { starts.Add(1); return nil },
		})}
		var visitors sync.WaitGroup
		for i := range 5 {
			visitors.Go(func() {
				resp, err := visits.Get(fmt.Sprintf("http://app/%ds", 3*i))
				if assert.NoError(t, err) {
					assert.NoError(t, resp.Body.Close())
				}
			})
		}
		visitors.Wait()
		assert.EqualValues(t, 1, starts.Load())
	})
}

// TestTransportBelievesTheEdge: the transport distinguishes errors of the edge from responses
// of the server.
func TestTransportBelievesTheEdge(t *testing.T) {
	header := func(code string) http.Header { return http.Header{"X-Vercel-Error": {code}} }
	for _, test := range []struct {
		name   string
		status int
		header http.Header
		body   string
		again  bool
	}{
		{"header", 410, header("SANDBOX_STOPPED"), "<html>", true},
		{"JSON", 422, nil, `{"error":{"code":"SANDBOX_STOPPING","message":"m"}}`, true},
		{"text", 502, nil, "Nothing listens.\n\nSANDBOX_NOT_LISTENING\n\niad1::x", true},
		{"other code", 502, header("ROUTER_EXTERNAL_TARGET_ERROR"), "SANDBOX_NOT_LISTENING", false},
		{"status alone", 410, nil, "gone", false},
		{"part of a message", 422, nil, `{"message":"SANDBOX_STOPPED is no name"}`, false},
		{"a word of a text", 410, nil, "This page explains SANDBOX_STOPPED and what to do", false},
		{"a word of the first line", 502, nil, "SANDBOX_NOT_LISTENING is what the platform says\n", false},
		{"the beginning of a line", 404, nil, "SANDBOX_NOT_FOUND: no such page\n", false},
		{"another place of the JSON", 410, nil, `{"code":"SANDBOX_STOPPED","error":{"message":"SANDBOX_STOPPED"}}`, false},
		{"a JSON string", 410, nil, `"SANDBOX_STOPPED"`, false},
		{"a code within a code", 422, nil, `{"error":{"code":"NOT SANDBOX_STOPPING"}}`, false},
		{"a list in the header", 410, header("SANDBOX_STOPPED, x"), "", false},
		{"another case", 410, nil, "sandbox_stopped", false},
		{"other status", 500, header("SANDBOX_STOPPED"), "", false},
		{"success", 200, header("SANDBOX_STOPPED"), "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var bodies []string
				client, _ := clientOfEdge(t, func(r *http.Request) (*http.Response, error) {
					assert.Empty(t, r.Header.Get("Authorization"))
					assert.Equal(t, "https://a-3000.example.com/x?y=1", r.URL.String())
					data, err := io.ReadAll(r.Body)
					assert.NoError(t, errors.Join(err, r.Body.Close()))
					bodies = append(bodies, string(data))
					if len(bodies) == 1 {
						resp := canned.Response(test.status, "text/plain", strings.NewReader(test.body))
						resp.Header = test.header.Clone()
						if resp.Header == nil {
							resp.Header = http.Header{}
						}
						return resp, nil
					}
					return canned.Response(201, "text/plain", strings.NewReader("done")), nil
				})
				// Without GetBody, as in a reverse proxy.
				resp, err := client.Post("http://app/x?y=1", "text/plain", io.MultiReader(strings.NewReader("bo"), strings.NewReader("dy")))
				require.NoError(t, err)
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, errors.Join(err, resp.Body.Close()))
				if test.again {
					assert.Equal(t, 201, resp.StatusCode)
					assert.Equal(t, []string{"body", "body"}, bodies)
				} else {
					assert.Equal(t, test.status, resp.StatusCode)
					assert.Equal(t, test.body, string(text), "as the server sent it")
					assert.Equal(t, []string{"body"}, bodies)
				}
			})
		})
	}
}

// TestForgedEdge: a server that imitates the edge can't make the caller believe that
// the sandbox is gone. Its visitors cause few requests to the API.
func TestForgedEdge(t *testing.T) {
	for code, status := range map[string]int{"SANDBOX_NOT_FOUND": 404, "SANDBOX_STOPPED": 410} {
		t.Run(code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, resumes := clientOfEdge(t, func(*http.Request) (*http.Response, error) {
					resp := canned.Response(status, "text/plain", http.NoBody)
					resp.Header.Set("X-Vercel-Error", code)
					return resp, nil
				})
				var visitors sync.WaitGroup
				for i := range 20 {
					visitors.Go(func() {
						time.Sleep(time.Duration(i) * 77 * time.Millisecond)
						resp, err := client.Get("http://app/")
						if assert.NotErrorIs(t, err, sandbox.ErrNotFound); !assert.ErrorContains(t, err, code+" for 1m0s") && err == nil {
							_ = resp.Body.Close()
						}
					})
				}
				visitors.Wait()
				assert.LessOrEqual(t, *resumes, 40)
				assert.GreaterOrEqual(t, *resumes, 10, "the API is asked")
			})
		})
	}
}

// TestTransportLargeBody: a request is not retried if more than maxReplay of its body was
// read. If the edge has read none of it, the body may have any size.
func TestTransportLargeBody(t *testing.T) {
	const size = 3 << 20
	for _, read := range []int64{0, 1 << 20, 1<<20 + 1, size} {
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			client, resumes := clientOfEdge(t, func(r *http.Request) (*http.Response, error) {
				defer r.Body.Close()
				if attempts++; attempts == 1 {
					_, err := io.CopyN(io.Discard, r.Body, read)
					assert.NoError(t, err)
					resp := canned.Response(410, "text/plain", http.NoBody)
					resp.Header.Set("X-Vercel-Error", "SANDBOX_STOPPED")
					return resp, nil
				}
				n, err := io.Copy(io.Discard, r.Body)
				assert.NoError(t, err)
				assert.EqualValues(t, size, n)
				return canned.Response(200, "text/plain", http.NoBody), nil
			})
			source := &closeCounter{Reader: io.LimitReader(bytes.NewReader(make([]byte, size)), size)}
			resp, err := client.Post("http://app/", "text/plain", source)
			if read > 1<<20 {
				assert.ErrorIs(t, err, sandbox.ErrStopped)
				assert.ErrorContains(t, err, "too large to be sent again")
				assert.Zero(t, *resumes)
			} else if assert.NoError(t, err) {
				assert.NoError(t, resp.Body.Close())
				assert.Equal(t, 1, *resumes)
			}
			assert.Equal(t, 1, source.closed)
		})
	}
}

// TestTransportSlowBody: while the visitor still sends the body, the response arrives and
// a refused request is retried.
func TestTransportSlowBody(t *testing.T) {
	for _, status := range []int{200, 410} {
		synctest.Test(t, func(t *testing.T) {
			visitor, sends := io.Pipe()
			attempts := 0
			var texts [2][]byte
			var readers sync.WaitGroup
			client, resumes := clientOfEdge(t, func(r *http.Request) (*http.Response, error) {
				attempt := attempts
				attempts++
				readers.Go(func() { // like net/http, which does not wait for it either
					texts[attempt], _ = io.ReadAll(r.Body)
					_ = r.Body.Close()
				})
				synctest.Wait()
				resp := canned.Response(200, "text/plain", http.NoBody)
				if attempt == 0 {
					resp = canned.Response(status, "text/plain", http.NoBody)
					resp.Header.Set("X-Vercel-Error", "SANDBOX_STOPPED")
				}
				return resp, nil
			})
			rest := time.AfterFunc(time.Hour, func() { _, _ = sends.Write([]byte("late")); _ = sends.Close() })
			resp, err := client.Post("http://app/", "text/plain", visitor)
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
			ended := rest.Stop()
			assert.True(t, ended, "waited for the body")
			if ended {
				_, err = sends.Write([]byte("late"))
				assert.NoError(t, err)
				assert.NoError(t, sends.Close())
			}
			readers.Wait()
			assert.Equal(t, "late", string(texts[attempts-1]))
			assert.Equal(t, attempts-1, *resumes)
		})
	}
}

type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error { c.closed++; return nil }

// TestTransportKeepsAlive: with Idle, the session is extended while a response streams
// and for Idle after it.
func TestTransportKeepsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var extended []time.Duration
		end := began.Add(5 * time.Minute)
		api := canned.API(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/extend-timeout") {
				extended = append(extended, time.Since(began))
				end = end.Add(5 * time.Minute)
			}
			return canned.JSON(200, fmt.Sprintf(`{"session":{"id":"sess_1","status":"running","startedAt":%d,"timeout":%d},
				"sandbox":{"name":"box","currentSessionId":"sess_1"},"routes":[{"url":"https://a.example.com","subdomain":"a","port":3000}]}`,
				began.UnixMilli(), end.Sub(began).Milliseconds())), nil
		}).Client(t)
		sb, err := api.Get(t.Context(), "box", nil)
		require.NoError(t, err)
		streaming, finish := io.Pipe()
		client := &http.Client{Transport: preview.Transport(sb, 3000, &preview.Options{Idle: 10 * time.Minute, Base: canned.RoundTripper(
			func(*http.Request) (*http.Response, error) {
				return canned.Response(200, "text/plain", streaming), nil
			})})}
		resp, err := client.Get("http://app/")
		require.NoError(t, err)
		time.Sleep(30 * time.Minute)
		require.NoError(t, errors.Join(finish.Close(), resp.Body.Close()))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.NotEmpty(t, extended)
		assert.Greater(t, extended[len(extended)-1], 30*time.Minute)
		assert.Less(t, extended[len(extended)-1], 40*time.Minute)
	})
}

// TestTruncatedResponse: a response that breaks off within the bytes that the transport
// inspects does not look complete.
func TestTruncatedResponse(t *testing.T) {
	t.Parallel()
	cut := errors.New("cut")
	client, _ := clientOfEdge(t, func(*http.Request) (*http.Response, error) {
		return canned.Response(http.StatusNotFound, "text/html", io.MultiReader(strings.NewReader("<h1>no"), iotest.ErrReader(cut))), nil
	})
	resp, err := client.Get("http://app/")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.Equal(t, "<h1>no", string(text))
	assert.ErrorIs(t, err, cut)
}
