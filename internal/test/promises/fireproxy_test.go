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

// fireEnv is the number of commands of TestCommandsUnderFire, from which the
// sizes of the other tests under fire follow.
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

// fire is a proxy between a client and the emulator. Its connections break
// after a random number of bytes, requests are held back and delivered late,
// and sessions end around them. What happens to the requests of a call follows
// from the seed and the number of the call; how much a connection carries, from
// the seed and its number.
type fire struct {
	srv    *sandboxtest.Server
	seed   uint64
	target *url.URL
	back   http.RoundTripper
	pass   *httputil.ReverseProxy
	boxes  []*fireBox
	calls  sync.Map // of *fireCall, by the header of their requests
	least  int64    // the minimum of bytes on a connection, and the maximum above that
	most   int64
	calm   atomic.Bool

	conns, cuts, requests, late, stops, expiries, slow, left atomic.Int64
}

// fireBox is a sandbox, reached through the proxy and directly.
type fireBox struct {
	*sandbox.Sandbox
	direct *sandbox.Sandbox
	ending atomic.Int64 // stops of its sessions that have begun
	ended  atomic.Int64 // stops that are complete
}

type trouble int

const (
	none   trouble = iota
	held           // a request is held back
	stop           // another client stops the session
	expiry         // all sessions of the server reach their time limit
)

// fireCall is a call, and what happens to one of its requests.
type fireCall struct {
	n      int
	rng    *rand.Rand // for this call alone
	box    *fireBox
	began  time.Time
	before int64 // ends of the session before the call; -1 if one was under way

	mu      sync.Mutex
	what    trouble
	skip    int  // requests before it that are left alone
	within  int  // bytes of the response before the session ends; negative for before the request
	breaks  bool // the response breaks off there as well
	due     int  // requests before what was held back is delivered; 0 for after the call
	early   bool // before the last of these instead of after it
	half    bool // of an upload that is held back, only half is ever delivered
	deliver func()
	struck  bool
	over    bool
	late    bool // what was held back was delivered
	since   int  // requests that came after that
	trail   []string
}

type fireKey struct{}

const (
	fireHeader = "X-Fire-Call"
	// fireSession is how long sessions last.
	fireSession = 30 * time.Minute
	// fireTime is the time limit of a call: one that takes longer hangs.
	fireTime = 3 * time.Minute
)

var errHangs = fmt.Errorf("not done after %v", fireTime)

// newFire returns a proxy with sandboxes behind it.
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

// begin returns call number n, and a context that marks its requests.
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

// wasHeld reports whether one of its requests was held back.
func (c *fireCall) wasHeld() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.what == held && c.struck
}

// wasTooLate reports whether it was delivered after the call's last lookup.
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

// hold delays a request and breaks its connection.
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
			resp.Body.Close() // the caller has given up
			c.mu.Lock()
			defer c.mu.Unlock()
			c.late = true
		}
	}
}

// end ends the session of the call's sandbox, or those of all.
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

// endingWriter ends the session after a number of bytes of the response.
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

// fireListener has connections that break.
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

// fireConn is a connection that breaks after a number of bytes that it has sent or
// received; negative means never.
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

// cut breaks the connection by a reset, its end, or an end towards the client.
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
