package preview_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/preview"
)

// visit is the result of one request.
type visit struct {
	refused  int  // attempts that the edge refused
	passedOn bool // the last attempt may have reached the server
	answered bool // the server's whole response arrived
}

// visitors make requests one after another and record them.
type visitors struct {
	t        *testing.T
	client   *http.Client
	base     http.RoundTripper
	mu       sync.Mutex
	visits   map[string]*visit
	answered atomic.Int64
}

// RoundTrip makes an attempt. It must not follow one that may have reached the server.
func (v *visitors) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := v.base.RoundTrip(r)
	v.mu.Lock()
	defer v.mu.Unlock()
	this := v.visits[r.Header.Get("X-Visit")]
	assert.False(v.t, this.passedOn, "retried although it may have arrived")
	if err == nil && strings.HasPrefix(resp.Header.Get("X-Vercel-Error"), "SANDBOX_") {
		this.refused++
	} else {
		this.passedOn = true
	}
	return resp, err
}

func (v *visitors) visit(ctx context.Context, id, body string) {
	this := &visit{}
	v.mu.Lock()
	v.visits[id] = this
	v.mu.Unlock()
	// Without GetBody, as in a reverse proxy.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://app/200", io.LimitReader(strings.NewReader(body), int64(len(body))))
	if !assert.NoError(v.t, err) {
		return
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("X-Visit", id)
	resp, err := v.client.Do(req)
	if err != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		assert.True(v.t, this.passedOn, "failed although it could be retried: %v", err)
		return
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // already read
	if err == nil && resp.StatusCode == http.StatusOK && string(text) == fmt.Sprintf("the app's own %d", len(body)) {
		v.mu.Lock()
		this.answered = true
		v.mu.Unlock()
		v.answered.Add(1)
	}
}

// TestTransportSleeps: while this handle and others stop the sandbox repeatedly, each
// request arrives at most once, and requests that the edge has refused arrive.
// SANDBOX_TRANSPORT_SLEEPS is the number of stops.
func TestTransportSleeps(t *testing.T) {
	t.Parallel()
	sleeps, workers := 3, 8
	if !needs.Slow() {
		sleeps, workers = 1, 3
	}
	if text := os.Getenv("SANDBOX_TRANSPORT_SLEEPS"); text != "" {
		var err error
		sleeps, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	srv, sb, app, port := portSandbox(t)
	v := &visitors{t: t, base: testkit.Transport(t), visits: map[string]*visit{}}
	v.client = &http.Client{Transport: preview.Transport(sb, port, &preview.Options{Base: v, MaxWait: testkit.Patience})}

	var enough atomic.Bool
	var group sync.WaitGroup
	defer group.Wait()
	defer enough.Store(true)
	for worker := range workers {
		group.Go(func() {
			for n := 0; !enough.Load(); n++ {
				id := fmt.Sprintf("%d.%d", worker, n)
				v.visit(t.Context(), id, id+" "+strings.Repeat("x", n%5*30_000))
			}
		})
	}
	for i := range sleeps {
		session, answered := sb.CurrentSession().ID(), v.answered.Load()
		if i%2 == 0 {
			testkit.StopElsewhere(t, srv, sb)
		} else {
			_, err := sb.Stop(t.Context(), nil)
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool {
			return sb.CurrentSession().ID() != session && v.answered.Load() > answered+int64(workers)
		}, testkit.Patience, 10*time.Millisecond)
	}
	enough.Store(true)
	group.Wait()

	arrived := map[string]int{}
	for _, line := range app.bodies() {
		id, _, _ := strings.Cut(line, " ")
		arrived[id]++
	}
	refused, unknown := 0, 0
	for id, visit := range v.visits {
		refused += visit.refused
		switch {
		case visit.answered:
			assert.Equal(t, 1, arrived[id], "visit %s had a response", id)
		default:
			unknown++
			assert.LessOrEqual(t, arrived[id], 1, "visit %s had no response", id)
		}
	}
	assert.GreaterOrEqual(t, refused, sleeps)
	t.Logf("%d sleeps, %d visits, %d refusals, %d without a response", sleeps, len(v.visits), refused, unknown)
}

// signInApp shows its page to signed-in visitors and redirects others to a form, with
// addresses and cookies that contain its own host. The page loads a script that changes
// it.
const signInApp = `
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    def respond(self, status, text="", kind="text/html", **headers):
        self.send_response(status)
        for name, value in headers.items(): self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())
    def do_GET(self):
        host = "http://" + self.headers["Host"]
        if self.path == "/app.js":
            self.respond(200, 'document.getElementById("p").textContent = "awake at " + location.host', "text/javascript")
        elif self.path == "/login":
            self.respond(200, '<form id=f method=post action=/login><input name=user value=ann></form><script>document.getElementById("f").submit()</script>')
        elif "user=ann" in self.headers.get("Cookie", ""):
            self.respond(200, '<!doctype html><title>home</title><h1>ann</h1><p id=p>nothing</p><script src="/app.js"></script>')
        else:
            self.respond(302, Location=host + "/login")
    def do_POST(self):
        host = "http://" + self.headers["Host"]
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.headers["Origin"] != host: return self.respond(403, "another origin: %s" % self.headers["Origin"])
        self.respond(303, Location=host + "/home", Set_Cookie=form + "; Domain=" + self.headers["Host"].split(":")[0] + "; Path=/; HttpOnly")
http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), H).serve_forever()
`

// TestBrowserWakes: Chromium visits a stopped sandbox, is redirected to a form, signs
// in, and loads a page and its script.
func TestBrowserWakes(t *testing.T) {
	needs.Long(t, "starts a browser")
	t.Parallel()
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && browser == "" {
			browser = path
		}
	}
	if browser == "" {
		needs.Missing(t, "Chromium in PATH")
	}
	needs.Programs(t, "python3")
	port := needs.Port(t)
	_, sb := testkit.Start(t, &sandbox.CreateOptions{Ports: []int{port}, OnResume: func(ctx context.Context, sb *sandbox.Sandbox) error {
		_, err := sb.EnsureCommand(ctx, "web", "python3", []string{"app.py", strconv.Itoa(port)}, nil)
		return err
	}})
	require.NoError(t, sb.FS().WriteFile(t.Context(), "app.py", []byte(signInApp), 0o644))
	_, err := sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	front := httptest.NewServer(preview.ReverseProxy(sb, port, &preview.Options{MaxWait: testkit.Patience}))
	defer front.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	profile := filepath.Join(t.TempDir(), "profile")
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--user-data-dir="+profile, "--virtual-time-budget=10000", "--dump-dom", front.URL)
	cmd.Env = append(os.Environ(), "HOME="+profile)
	page, err := cmd.Output()
	// Chromium's child processes may write a moment longer.
	require.Eventually(t, func() bool { return os.RemoveAll(profile) == nil }, testkit.Patience, 50*time.Millisecond)
	require.NoError(t, err)
	assert.Contains(t, string(page), `<h1>ann</h1><p id="p">awake at `+front.Listener.Addr().String()+`</p>`, "it stays with the proxy")
}
