package promises_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// fireEnv names the variable with the number of commands of TestCommandsUnderFire. The
// other tests under fire derive their sizes from it.
const fireEnv = "SANDBOX_FIRE_COMMANDS"

// fireSize returns the number of commands.
func fireSize(t *testing.T) int {
	if text := os.Getenv(fireEnv); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	if !needs.Slow() {
		return 42
	}
	return 600
}

// fire is a proxy between a client and the emulator. It breaks its connections after a
// random number of bytes, holds some requests back and delivers them late, and ends
// sessions during calls. The seed and the number of a call determine the trouble of the
// call. The seed and the number of a connection determine after how many bytes it breaks.
type fire struct {
	srv    *sandboxtest.Server
	seed   uint64
	target *url.URL
	back   http.RoundTripper
	pass   *httputil.ReverseProxy
	boxes  []*fireBox
	calls  sync.Map // the *fireCall for each value of fireHeader
	least  int64    // the minimum number of bytes on a connection
	most   int64    // the maximum number of bytes in addition to least
	calm   atomic.Bool

	conns, cuts, requests, late, stops, expiries, slow, left atomic.Int64
}

// fireBox is a sandbox with two handles: one that uses the proxy, and one that does not.
type fireBox struct {
	*sandbox.Sandbox
	direct *sandbox.Sandbox
	ending atomic.Int64 // how many stops of its sessions have begun
	ended  atomic.Int64 // how many of these are complete
}

// trouble is the fault that the proxy causes during a call.
type trouble int

const (
	none   trouble = iota
	held           // the proxy holds a request back
	stop           // another client stops the session
	expiry         // all sessions of the server reach their time limit
)

// fireCall is a call of the client, with the trouble that the proxy causes.
type fireCall struct {
	n      int
	rng    *rand.Rand // used only by this call
	box    *fireBox
	began  time.Time
	before int64 // box.ended before the call; -1 if a session was just ending

	mu      sync.Mutex
	what    trouble
	skip    int    // the number of requests before the trouble
	within  int    // the session ends after this many bytes of the response; if negative, before the request
	breaks  bool   // the response breaks off when the session ends
	due     int    // the held request is delivered after this many requests; if 0, after the call
	early   bool   // the held request is delivered before the last of these
	half    bool   // if the held request is an upload, only half of it is delivered
	deliver func() // delivers the held request
	struck  bool   // the trouble has occurred
	over    bool   // the call has returned
	late    bool   // the held request was delivered
	since   int    // the number of requests after that
	trail   []string
}

type fireKey struct{}

const (
	fireHeader = "X-Fire-Call"
	// fireSession is how long sessions last.
	fireSession = 30 * time.Minute
	// fireTime is the time limit of a call. A call that takes longer hangs.
	fireTime = 3 * time.Minute
)

var errHangs = fmt.Errorf("the call has not returned after %v", fireTime)

// newFire starts an emulator with sandboxes, and a proxy in front of it.
func newFire(t *testing.T, http2 bool, boxes int, least, most int64) *fire {
	t.Helper()
	f := &fire{srv: testkit.LightServer(t), seed: testkit.Seed(t), least: least, most: most}
	var err error
	f.target, err = url.Parse(f.srv.URL)
	require.NoError(t, err)
	quiet := log.New(io.Discard, "", 0) // broken connections are the purpose of this test
	f.back = testkit.Transport(t)
	f.pass = &httputil.ReverseProxy{Rewrite: f.rewrite, Transport: f.back, FlushInterval: -1, ErrorLog: quiet, ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
		panic(http.ErrAbortHandler)
	}}
	front := httptest.NewUnstartedServer(f)
	front.Config.ErrorLog = quiet
	front.Listener = &fireListener{front.Listener, f}
	tr := api.DefaultTransport()
	if http2 {
		front.EnableHTTP2 = true
		front.StartTLS()
		tr.TLSClientConfig = front.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		tr.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	} else {
		front.Start()
	}
	t.Cleanup(front.Close)
	t.Cleanup(tr.CloseIdleConnections)
	f.calm.Store(true)
	defer f.calm.Store(false)
	client := testkit.Client(t, f.srv, sandbox.ClientOptions{})
	faulty, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: front.URL + f.target.Path, Credentials: testkit.Credentials(f.srv), HTTPClient: &http.Client{Transport: canned.RoundTripper(func(req *http.Request) (*http.Response, error) {
			c, ok := req.Context().Value(fireKey{}).(*fireCall)
			if !ok {
				return tr.RoundTrip(req)
			}
			req = req.Clone(req.Context())
			req.Header.Set(fireHeader, strconv.Itoa(c.n))
			resp, err := tr.RoundTrip(req)
			c.note(req, resp, err)
			return resp, err
		})},
		MaxRetries: 8, RetryWait: time.Millisecond, Reattach: &sandbox.ReattachOptions{Wait: time.Millisecond, Attempts: 200},
	})
	require.NoError(t, err)
	for range boxes {
		b := &fireBox{}
		b.direct, err = client.Create(t.Context(), &sandbox.CreateOptions{Timeout: fireSession})
		require.NoError(t, err)
		b.Sandbox, err = faulty.Get(t.Context(), b.direct.Name(), nil)
		require.NoError(t, err)
		f.boxes = append(f.boxes, b)
	}
	tr.CloseIdleConnections()
	return f
}

func (f *fire) rewrite(p *httputil.ProxyRequest) {
	p.SetURL(&url.URL{Scheme: f.target.Scheme, Host: f.target.Host})
}

// begin creates call number n. It returns a context that marks the requests of the call,
// and a function to call after it has returned.
func (f *fire) begin(ctx context.Context, n int) (context.Context, *fireCall, func()) {
	rng := rand.New(rand.NewPCG(f.seed, uint64(n)))
	c := &fireCall{n: n, rng: rng, box: f.boxes[n%len(f.boxes)], began: time.Now(), before: -1}
	switch p := rng.IntN(1000); {
	case p < 60:
		c.what = held
	case p < 120:
		c.what = stop
	case p < 122:
		c.what = expiry
	}
	c.skip, c.within, c.breaks, c.due, c.early = rng.IntN(3)*rng.IntN(2), rng.IntN(4000)-500, rng.IntN(2) == 0, rng.IntN(5), rng.IntN(2) == 0
	c.half = rng.IntN(2) == 0
	if c.what == held {
		c.skip = 0
	}
	if n := c.box.ended.Load(); n == c.box.ending.Load() {
		c.before = n
	}
	f.calls.Store(strconv.Itoa(n), c)
	ctx, cancel := context.WithTimeoutCause(context.WithValue(ctx, fireKey{}, c), fireTime, errHangs)
	return ctx, c, func() {
		cancel()
		c.mu.Lock()
		deliver := c.deliver
		c.deliver, c.over = nil, true
		c.mu.Unlock()
		if deliver != nil {
			deliver()
		}
		f.calls.Delete(strconv.Itoa(n))
	}
}

// note records the response to a request, to help find the cause of a failure.
func (c *fireCall) note(req *http.Request, resp *http.Response, err error) {
	what := fmt.Sprint(err)
	if err == nil {
		what = resp.Status
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trail = append(c.trail, fmt.Sprintf("%v %s %s: %s", time.Since(c.began).Round(time.Millisecond), req.Method, req.URL.Path, what))
}

func (c *fireCall) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("trouble %d, behind %d requests and %d bytes\n%s", c.what, c.skip, c.within, strings.Join(c.trail, "\n"))
}

// disturbed reports whether a session of the sandbox has ended during the call.
func (c *fireCall) disturbed() bool { return c.before != c.box.ending.Load() }

// wasHeld reports whether the proxy has held back a request of the call.
func (c *fireCall) wasHeld() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.what == held && c.struck
}

// wasTooLate reports whether the held request was delivered after the call's last request.
func (c *fireCall) wasTooLate() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late && c.since == 0
}

func (f *fire) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.requests.Add(1)
	known, _ := f.calls.Load(r.Header.Get(fireHeader))
	r.Header.Del(fireHeader)
	c, ok := known.(*fireCall)
	if !ok {
		f.pass.ServeHTTP(w, r)
		return
	}
	c.mu.Lock()
	var deliver func()
	if c.deliver != nil && c.due > 0 {
		if c.due--; c.due == 0 {
			deliver, c.deliver = c.deliver, nil
		}
	}
	struck := false
	if c.late || deliver != nil && c.early {
		c.since++
	}
	if !c.struck && !c.over && c.what != none && (c.what != held || r.Method != http.MethodGet) {
		struck = c.skip == 0
		c.skip, c.struck = max(c.skip-1, 0), struck
	}
	c.mu.Unlock()
	switch {
	case deliver != nil && c.early:
		deliver()
	case deliver != nil:
		defer deliver()
	}
	switch {
	case struck && c.what == held:
		f.hold(c, r)
		panic(http.ErrAbortHandler)
	case struck && c.within < 0:
		f.end(c)
	case struck:
		w = &endingWriter{ResponseWriter: w, left: c.within, event: func() { f.end(c) }, breaks: c.breaks}
	}
	f.pass.ServeHTTP(w, r)
}

// hold keeps a request for later and breaks its connection.
func (f *fire) hold(c *fireCall, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the connection broke before the whole request had arrived
	}
	if c.half && strings.HasSuffix(r.URL.Path, "/fs/write") {
		body = body[:len(body)/2]
	}
	again := r.Clone(context.WithoutCancel(r.Context()))
	again.RequestURI, again.URL.Scheme, again.URL.Host = "", f.target.Scheme, f.target.Host
	again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliver = func() {
		if resp, err := f.back.RoundTrip(again); err == nil {
			f.late.Add(1)
			resp.Body.Close() // no caller waits for this response
			c.mu.Lock()
			defer c.mu.Unlock()
			c.late = true
		}
	}
}

// end ends the session of the call's sandbox, or all sessions if the trouble is expiry.
func (f *fire) end(c *fireCall) {
	boxes := []*fireBox{c.box}
	if c.what == expiry {
		boxes = f.boxes
	}
	for _, b := range boxes {
		b.ending.Add(1)
		defer b.ended.Add(1)
	}
	if c.what == expiry {
		f.srv.Advance(fireSession + time.Minute)
		f.expiries.Add(int64(len(boxes)))
		return
	}
	err := c.box.direct.Refresh(context.Background())
	if err == nil {
		_, err = c.box.direct.Stop(context.Background(), nil)
	}
	if err == nil {
		f.stops.Add(1)
	}
}

// endingWriter calls event after a number of bytes of the response.
type endingWriter struct {
	http.ResponseWriter
	left   int
	event  func()
	breaks bool
}

func (w *endingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *endingWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	if w.event == nil || err != nil {
		return n, err
	}
	if w.left -= n; w.left <= 0 {
		event := w.event
		w.event = nil
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		event()
		if w.breaks {
			return n, errReset // the proxy aborts
		}
	}
	return n, nil
}

// fireListener is a listener whose connections break.
type fireListener struct {
	net.Listener
	fire *fire
}

func (l *fireListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	f := l.fire
	rng := rand.New(rand.NewPCG(f.seed, 1<<63|uint64(f.conns.Add(1))))
	c := &fireConn{Conn: conn, fire: f, down: -1, up: -1, way: rng.IntN(3)}
	switch {
	case f.calm.Load():
	case rng.IntN(6) == 0:
		c.up = f.least + rng.Int64N(f.most/8)
	case rng.IntN(2) == 0:
		c.down = f.least + rng.Int64N(f.most/16)
	default:
		c.down = f.least + rng.Int64N(f.most)
	}
	return c, nil
}

// fireConn is a connection that breaks after a number of sent and received bytes, or never
// if the number is negative.
type fireConn struct {
	net.Conn
	fire     *fire
	down, up int64
	way      int
	once     sync.Once
}

func (c *fireConn) Read(p []byte) (int, error) {
	if c.up < 0 {
		return c.Conn.Read(p)
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.up)])
	if c.up -= int64(n); c.up == 0 && n == 0 {
		return 0, c.cut()
	}
	return n, err
}

func (c *fireConn) Write(p []byte) (int, error) {
	if c.down < 0 || int64(len(p)) <= c.down {
		if c.down >= 0 {
			c.down -= int64(len(p))
		}
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:c.down])
	c.down = 0
	return n, c.cut()
}

// cut breaks the connection: it resets it, closes it, or closes only the direction to the client.
func (c *fireConn) cut() error {
	c.once.Do(func() {
		c.fire.cuts.Add(1)
		tcp := c.Conn.(*net.TCPConn)
		switch c.way {
		case 0:
			_ = tcp.SetLinger(0)
			tcp.Close()
		case 1:
			tcp.Close()
		case 2:
			_ = tcp.CloseWrite()
		}
	})
	return net.ErrClosed
}
