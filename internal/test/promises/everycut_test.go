package promises_test

import (
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// cutsEnv names the variable with the number of places at which TestCutResponses cuts each
// response, in each framing. Without it, the test cuts each response once, in a random
// framing.
const cutsEnv = "SANDBOX_CUTS"

// cutFraming is how a proxy frames a response whose body it cuts.
type cutFraming struct {
	name            string
	http2, measured bool
	clean           bool // the response ends as if it were complete
}

var cutFramings = []cutFraming{
	{name: "with its length", measured: true},
	{name: "in chunks"},
	{name: "in chunks, and ends", clean: true},
	{name: "over HTTP2, reset", http2: true},
	{name: "over HTTP2, and ends", http2: true, clean: true},
}

// cutProxy is a proxy that cuts the body of one response. It forwards each piece of a
// stream when it arrives.
type cutProxy struct {
	cutFraming
	next   http.RoundTripper
	target *url.URL
	client *sandbox.Client // a client that uses the proxy

	mu    sync.Mutex
	match func(*http.Request) bool // reports whether to cut the response to a request
	at    float64                  // the place, as a fraction of the body or of a stream's first record
	armed bool
	said  string
}

func (p *cutProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := r.Clone(r.Context())
	out.RequestURI, out.URL.Scheme, out.URL.Host = "", p.target.Scheme, p.target.Host
	resp, err := p.next.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	p.mu.Lock()
	cuts := p.armed && p.match(r)
	p.armed = p.armed && !cuts
	p.mu.Unlock()
	for name, values := range resp.Header {
		if name != "Content-Length" && name != "Transfer-Encoding" {
			w.Header()[name] = values
		}
	}
	control := http.NewResponseController(w)
	stream := resp.Header.Get("Content-Type") == "application/x-ndjson"
	body := make([]byte, 64<<10)
	if stream && cuts {
		n, _ := resp.Body.Read(body)
		body = body[:n]
	} else if !stream {
		if body, err = io.ReadAll(resp.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		if p.measured {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		}
	}
	w.WriteHeader(resp.StatusCode)
	switch {
	case cuts:
		at := int(p.at * float64(len(body)))
		p.mu.Lock()
		p.said = fmt.Sprintf("cut at %d of %d: %d %q", at, len(body), resp.StatusCode, body[:at])
		p.mu.Unlock()
		_, _ = w.Write(body[:at])
		_ = control.Flush()
		if !p.clean {
			panic(http.ErrAbortHandler)
		}
	case stream:
		for {
			n, err := resp.Body.Read(body)
			_, _ = w.Write(body[:n])
			_ = control.Flush()
			if err != nil {
				return
			}
		}
	default:
		_, _ = w.Write(body)
	}
}

// newCutProxy starts a proxy in front of the server.
func newCutProxy(t *testing.T, srv *sandboxtest.Server, f cutFraming) *cutProxy {
	t.Helper()
	target, err := url.Parse(srv.URL)
	require.NoError(t, err)
	p := &cutProxy{cutFraming: f, next: testkit.Transport(t), target: target}
	front := httptest.NewUnstartedServer(p)
	front.Config.ErrorLog = log.New(io.Discard, "", 0)
	tr := api.DefaultTransport()
	if f.http2 {
		front.EnableHTTP2 = true
		front.StartTLS()
		tr.TLSClientConfig = front.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	} else {
		front.Start()
	}
	t.Cleanup(front.Close)
	t.Cleanup(tr.CloseIdleConnections)
	p.client, err = sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: front.URL + target.Path, Credentials: testkit.Credentials(srv), HTTPClient: &http.Client{Transport: tr},
		RetryWait: time.Millisecond, Reattach: &sandbox.ReattachOptions{Wait: time.Millisecond},
	})
	require.NoError(t, err)
	return p
}

// TestCutResponses calls each operation of api.Table through a real proxy, which cuts the
// response at a random place of its body, in one of five framings. As if no response had
// arrived, the client retries the operation, looks up its result, or returns
// ErrOutcomeUnknown. All rows use the same world, one after another.
func TestCutResponses(t *testing.T) {
	t.Parallel()
	rows, rng, each := lostResponses(), rand.New(rand.NewPCG(testkit.Seed(t), 0)), 0
	if text := os.Getenv(cutsEnv); text != "" {
		var err error
		each, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	for n := range max(1, each*len(cutFramings)) {
		srv := testkit.LightServer(t)
		w, proxies := newLostWorld(t, srv), map[cutFraming]*cutProxy{}
		for _, op := range inOrder() {
			row, ok := rows[op]
			require.True(t, ok, "%s %s has no row", op.Method, op.Path)
			f, at := cutFramings[n%len(cutFramings)], rng.Float64()
			if each == 0 {
				f = cutFramings[rng.IntN(len(cutFramings))]
			}
			if proxies[f] == nil {
				proxies[f] = newCutProxy(t, srv, f)
			}
			t.Run(fmt.Sprintf("%s %s %s %.3f", op.Name, op.Path, f.name, at), func(t *testing.T) {
				cutResponse(t, srv, w, op, row, proxies[f], at)
			})
		}
	}
}

func cutResponse(t *testing.T, srv *sandboxtest.Server, w *lostWorld, op *api.Op, row lostResponse, p *cutProxy, at float64) {
	w.c = p.client
	w.c.Bind(w.sb)
	w.c.Bind(w.cmd)
	w.c.Bind(w.drive)
	before := testkit.Count(srv, row.op)
	p.mu.Lock()
	p.match, p.at, p.armed = isOp(op), at, true
	p.mu.Unlock()
	err := row.call(t.Context(), w)
	sent := testkit.Count(srv, row.op) - before
	if undo := undos()[op]; undo != nil {
		defer func() { assert.NoError(t, undo(t.Context(), w)) }() // runs after p.mu is unlocked
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	require.False(t, p.armed, "the proxy cut no response")
	switch {
	case row.unknown:
		require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, p.said)
	case op == api.ReadFile: // the caller has read a part already, so the client can't retry
		require.Error(t, err, p.said)
		return
	default:
		require.NoError(t, err, p.said)
	}
	if op == api.CommandLogs { // the first record may have arrived whole
		assert.LessOrEqual(t, sent, row.sent, p.said)
		return
	}
	assert.Equal(t, row.sent, sent, "requests; %s", p.said)
}
