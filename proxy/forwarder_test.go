package proxy_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/proxy"
	"github.com/go-vercel/sandbox/proxy/proxytest"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// syncBuffer is a log that a server's goroutines may write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// testChain is an upstream server, a forwarder, and an HTTP client in the place of the sandbox.
type testChain struct {
	upstream *httptest.Server
	host     string           // of the upstream
	service  *httptest.Server // the forwarder, behind a Handler
	sandbox  *http.Client
	log      *syncBuffer
}

// newTestChain starts a testChain whose upstream speaks TLS (with HTTP/2).
func newTestChain(t testing.TB, upstream http.Handler, opts proxy.ForwarderOptions) *testChain {
	t.Helper()
	g := &testChain{log: &syncBuffer{}}
	g.upstream = httptest.NewUnstartedServer(upstream)
	g.upstream.EnableHTTP2 = true
	g.upstream.StartTLS()
	t.Cleanup(g.upstream.Close)
	g.host = strings.TrimPrefix(g.upstream.URL, "https://")

	roots := x509.NewCertPool()
	roots.AddCert(g.upstream.Certificate())
	opts.TLSConfig = &tls.Config{RootCAs: roots}
	opts.Logger = slog.New(slog.NewTextHandler(g.log, nil))
	for i := range opts.Rules {
		for j, host := range opts.Rules[i].Hosts {
			opts.Rules[i].Hosts[j] = strings.ReplaceAll(host, "UPSTREAM", g.host)
		}
	}
	forwarder, err := proxy.NewForwarder(&opts)
	require.NoError(t, err)
	t.Cleanup(forwarder.CloseIdleConnections)
	g.service = httptest.NewServer(proxy.Handler(forwarder, &proxy.Options{HTTPClient: authority().Client()}))
	t.Cleanup(g.service.Close)

	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	g.sandbox = &http.Client{Transport: &proxytest.Firewall{
		Authority: authority(), ForwardURL: g.service.URL + "/hook", Transport: transport,
	}}
	return g
}

func (g *testChain) do(t testing.TB, method, url string, header http.Header, body io.Reader) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	if header != nil {
		r.Header = header
	}
	resp, err := g.sandbox.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(b)
}

// echoHeader responds with a header of the request.
func echoHeader(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q", r.Header[http.CanonicalHeaderKey(name)])
	})
}

func TestForwarderBrokersCredentials(t *testing.T) {
	rule := proxy.Rule{
		Hosts: []string{"UPSTREAM"}, Header: "authorization",
		Placeholder: "PLACEHOLDER", Secret: proxy.StaticSecret("s3cret"),
	}
	for name, c := range map[string]struct {
		change     func(*proxy.Rule)
		path       string
		sent, want []string
	}{
		"replaced":              {nil, "/", []string{"Bearer PLACEHOLDER"}, []string{"Bearer s3cret"}},
		"in every value":        {nil, "/", []string{"PLACEHOLDER", "x", "PLACEHOLDER,PLACEHOLDER"}, []string{"s3cret", "x", "s3cret,s3cret"}},
		"other credentials":     {nil, "/", []string{"Bearer own"}, []string{"Bearer own"}},
		"nothing sent":          {nil, "/", nil, nil},
		"set":                   {func(r *proxy.Rule) { r.Placeholder = "" }, "/", []string{"own"}, []string{"s3cret"}},
		"removed":               {func(r *proxy.Rule) { r.Placeholder, r.Secret = "", nil }, "/", []string{"own"}, nil},
		"another host":          {func(r *proxy.Rule) { r.Hosts = []string{"example.com"} }, "/", []string{"PLACEHOLDER"}, []string{"PLACEHOLDER"}},
		"another port":          {func(r *proxy.Rule) { r.Hosts = []string{"127.0.0.1"} }, "/", []string{"PLACEHOLDER"}, []string{"PLACEHOLDER"}},
		"secret of the sandbox": {func(r *proxy.Rule) { r.Secret = secretOfSandbox }, "/", []string{"PLACEHOLDER"}, []string{"sbx_test/sandbox-test"}},
	} {
		t.Run(name, func(t *testing.T) {
			rule := rule
			rule.Hosts = []string{"UPSTREAM"}
			if c.change != nil {
				c.change(&rule)
			}
			g := newTestChain(t, echoHeader("authorization"), proxy.ForwarderOptions{AllowPrivate: loopback, Rules: []proxy.Rule{rule}})
			resp, body := g.do(t, "GET", g.upstream.URL+c.path, http.Header{"Authorization": c.sent}, nil)
			assert.Equal(t, 200, resp.StatusCode, g.log)
			assert.Equal(t, fmt.Sprintf("%q", c.want), body)
			assert.NotContains(t, g.log.String(), "s3cret")
		})
	}
}

func secretOfSandbox(_ context.Context, m proxy.Meta) (string, error) {
	return m.SandboxID + "/" + m.SandboxName, nil
}

func TestForwarderSecretErrors(t *testing.T) {
	for name, secret := range map[string]proxy.Secret{
		"fails":      func(context.Context, proxy.Meta) (string, error) { return "", errors.New("vault is\nsealed") },
		"smuggles":   proxy.StaticSecret("s3cret\r\nX-Evil: 1"),
		"has a NUL":  proxy.StaticSecret("s3cret\x00"),
		"is too odd": proxy.StaticSecret("s3cret\x7f"),
	} {
		t.Run(name, func(t *testing.T) {
			g := newTestChain(t, http.NotFoundHandler(), proxy.ForwarderOptions{AllowPrivate: loopback, Rules: []proxy.Rule{
				{Hosts: []string{"UPSTREAM"}, Header: "X-Key", Secret: secret},
			}})
			resp, body := g.do(t, "GET", g.upstream.URL, nil, nil)
			assert.Equal(t, 502, resp.StatusCode)
			assert.Equal(t, "Bad Gateway\n", body)
			assert.NotContains(t, g.log.String(), "s3cret")
			assert.Contains(t, g.log.String(), "X-Key")
			if name == "fails" {
				assert.Contains(t, g.log.String(), "level=WARN")
				assert.Contains(t, g.log.String(), `vault is\\nsealed`)
			} else {
				assert.Contains(t, g.log.String(), "the secret for X-Key can't be sent in a header", "the log tells its reader what to fix")
			}
		})
	}
}

// TestForwarderDialer: with DialContext, a test can direct a public name to its own server, with
// rules and TLS.
func TestForwarderDialer(t *testing.T) {
	var asked []string
	var server string
	g := newTestChain(t, echoHeader("X-Key"), proxy.ForwarderOptions{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			asked = append(asked, address)
			return (&net.Dialer{}).DialContext(ctx, network, server)
		},
		Rules: []proxy.Rule{{Hosts: []string{"example.com"}, Header: "X-Key", Secret: proxy.StaticSecret("s3cret")}},
	})
	server = g.host // its certificate is for example.com, too
	resp, body := g.do(t, "GET", "https://example.com/x", nil, nil)
	assert.Equal(t, 200, resp.StatusCode)
	assert.Equal(t, `["s3cret"]`, body)
	assert.Equal(t, []string{"example.com:443"}, asked)
}

func TestForwarderSendsNoSecretInTheClear(t *testing.T) {
	upstream := httptest.NewServer(echoHeader("x-key"))
	defer upstream.Close()
	host := strings.TrimPrefix(upstream.URL, "http://")
	for _, allow := range []bool{false, true} {
		g := newTestChain(t, http.NotFoundHandler(), proxy.ForwarderOptions{AllowPrivate: loopback, Rules: []proxy.Rule{
			{Hosts: []string{host}, AllowHTTP: allow, Header: "X-Key", Placeholder: "P", Secret: proxy.StaticSecret("s3cret")},
		}})
		_, body := g.do(t, "GET", upstream.URL, http.Header{"X-Key": {"P"}}, nil)
		assert.Equal(t, map[bool]string{false: `["P"]`, true: `["s3cret"]`}[allow], body)
	}
}

func TestNewForwarderChecksItsOptions(t *testing.T) {
	secret := proxy.StaticSecret("s3cret")
	rule := func(change func(*proxy.Rule)) proxy.ForwarderOptions {
		good := proxy.Rule{Hosts: []string{"a.example"}, Header: "X", Secret: secret}
		bad := good
		change(&bad)
		return proxy.ForwarderOptions{Rules: []proxy.Rule{good, bad}}
	}
	hosts := func(hosts ...string) proxy.ForwarderOptions { return rule(func(r *proxy.Rule) { r.Hosts = hosts }) }
	for message, o := range map[string]proxy.ForwarderOptions{
		"Rules[1]: option Hosts is empty: list the hosts that may get the header":                        hosts(),
		`Rules[1]: option Hosts: "*" is not a host name, an address, or "*." and a host name`:            hosts("*"),
		`Rules[1]: option Hosts: "a.*.example" is not a host name, an address, or "*." and a host name`:  hosts("a.*.example"),
		`Rules[1]: option Hosts: an entry is a URL: give its host alone, "a.example"`:                    hosts("https://u:hidden@a.example"),
		"Rules[1]: option Hosts: an entry is a URL: give its host alone":                                 hosts("https://u:hidden@a.example:x"),
		`Rules[1]: option Hosts: the port of "a.example:0" is not from 1 to 65535`:                       hosts("a.example:0"),
		"Rules[1]: option Header is empty: name the header to set":                                       rule(func(r *proxy.Rule) { r.Header = "" }),
		`Rules[1]: option Header: "X: y" is not the name of a header`:                                    rule(func(r *proxy.Rule) { r.Header = "X: y" }),
		"Rules[1]: option Header: Content-Length belongs to the connection, which a rule can't change":   rule(func(r *proxy.Rule) { r.Header = "content-length" }),
		"Rules[1]: option Placeholder needs a Secret to replace it with":                                 rule(func(r *proxy.Rule) { r.Placeholder, r.Secret = "P", nil }),
		`Rules[1]: PathPrefix: "v1" must begin with a slash and have no characters that a URL escapes`:   rule(func(r *proxy.Rule) { r.PathPrefix = "v1" }),
		`Rules[1]: PathPrefix: "/a b" must begin with a slash and have no characters that a URL escapes`: rule(func(r *proxy.Rule) { r.PathPrefix = "/a b" }),
		`option Hosts: "" is not a host name, an address, or "*." and a host name`:                       {Hosts: []string{""}},
		"MaxResponseBody is negative: use 0 for no limit":                                                {MaxResponseBody: -1},
		"MaxDuration is negative: use 0 for no limit":                                                    {MaxDuration: -1},
	} {
		_, err := proxy.NewForwarder(&o)
		assert.EqualError(t, err, "proxy: "+message)
	}
	_, err := proxy.NewForwarder(nil)
	assert.NoError(t, err)
	for _, format := range []string{"%v", "%+v", "%#v"} {
		assert.NotContains(t, fmt.Sprintf(format, proxy.Rule{Secret: secret}), "s3cret")
	}
}

func TestForwarderRefusesPrivateAddresses(t *testing.T) {
	reached := false
	g := newTestChain(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }), proxy.ForwarderOptions{})
	port := g.host[strings.LastIndexByte(g.host, ':'):]
	for _, target := range []string{
		g.upstream.URL, "https://localhost" + port, "https://[::1]" + port, "https://[::ffff:127.0.0.1]" + port,
		"http://169.254.169.254/latest/meta-data/", "http://0.0.0.0" + port, "http://10.0.0.1",
	} {
		resp, body := g.do(t, "GET", target, nil, nil)
		want := 403
		if strings.Contains(target, "localhost") {
			want = 502 // like a name that does not exist
		}
		assert.Equal(t, want, resp.StatusCode, target)
		assert.Equal(t, http.StatusText(want)+"\n", body)
	}
	assert.False(t, reached)
	assert.Contains(t, g.log.String(), "the address is not a public one, and not in AllowPrivate")
}

func TestForwarderHosts(t *testing.T) {
	g := newTestChain(t, http.NotFoundHandler(), proxy.ForwarderOptions{AllowPrivate: loopback, Hosts: []string{"api.example.com"}})
	resp, _ := g.do(t, "GET", g.upstream.URL, nil, nil)
	assert.Equal(t, 403, resp.StatusCode)
	assert.Contains(t, g.log.String(), "the host is not in ForwarderOptions.Hosts")
}

func TestForwarderIsNoOpenProxy(t *testing.T) {
	f, err := proxy.NewForwarder(&proxy.ForwarderOptions{AllowPrivate: loopback})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1:1/", nil))
	assert.Equal(t, 403, w.Code)
}

func TestForwarderKeepsTheRequest(t *testing.T) {
	var got *http.Request
	g := newTestChain(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		got = r
		w.Header().Set("Location", "https://elsewhere.example/")
		w.WriteHeader(302)
	}), proxy.ForwarderOptions{AllowPrivate: loopback})
	g.sandbox.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r, err := http.NewRequest("PUT", g.upstream.URL+"/a%2Fb//c?x=1;y=%zz&z", strings.NewReader("body"))
	require.NoError(t, err)
	r.Header = http.Header{"User-Agent": {""}, "Cookie": {"a=b"}}
	r.ContentLength = -1
	resp, err := g.sandbox.Do(r)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, 302, resp.StatusCode, "redirects are the sandbox's to follow")
	assert.Equal(t, "/a%2Fb//c?x=1;y=%zz&z", got.RequestURI)
	assert.Equal(t, g.host, got.Host)
	assert.NotContains(t, got.Header, "User-Agent")
	assert.Equal(t, "a=b", got.Header.Get("Cookie"))
}

func TestForwarderLimits(t *testing.T) {
	g := newTestChain(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/announced":
			io.WriteString(w, "123456789")
		case "/streamed":
			io.WriteString(w, "1234")
			http.NewResponseController(w).Flush()
			io.WriteString(w, "56789")
		case "/fits":
			io.WriteString(w, "12345678")
		}
	}), proxy.ForwarderOptions{AllowPrivate: loopback, MaxResponseBody: 8})
	g.service.Config.Handler = http.MaxBytesHandler(g.service.Config.Handler, 8)

	resp, _ := g.do(t, "POST", g.upstream.URL, nil, strings.NewReader("12345678"))
	assert.Equal(t, 200, resp.StatusCode)
	resp, _ = g.do(t, "POST", g.upstream.URL, nil, strings.NewReader("123456789"))
	assert.Equal(t, 413, resp.StatusCode, "with a Content-Length")
	resp, _ = g.do(t, "POST", g.upstream.URL, nil, io.MultiReader(strings.NewReader("123456789")))
	assert.Equal(t, 413, resp.StatusCode, "without a Content-Length")

	resp, body := g.do(t, "GET", g.upstream.URL+"/fits", nil, nil)
	assert.Equal(t, 200, resp.StatusCode)
	assert.Equal(t, "12345678", body)
	resp, _ = g.do(t, "GET", g.upstream.URL+"/announced", nil, nil)
	assert.Equal(t, 502, resp.StatusCode)
	resp, _ = g.do(t, "HEAD", g.upstream.URL+"/announced", nil, nil)
	assert.Equal(t, 200, resp.StatusCode)

	resp, err := g.sandbox.Get(g.upstream.URL + "/streamed")
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	assert.Error(t, err, "a response that is too large does not look whole")
	assert.Equal(t, "12345678"[:len(b)], string(b))
}

func TestForwarderLogsOneLine(t *testing.T) {
	g := newTestChain(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		http.Error(w, "no", 418)
	}), proxy.ForwarderOptions{AllowPrivate: loopback, Rules: []proxy.Rule{
		{Hosts: []string{"UPSTREAM"}, Header: "Authorization", Placeholder: "P", Secret: proxy.StaticSecret("s3cret")},
	}})
	g.do(t, "POST", g.upstream.URL+"/hooks/s3cret-path?key=s3cret-query",
		http.Header{"Authorization": {"Bearer P"}, "Cookie": {"s3cret-cookie"}}, strings.NewReader("s3cret-body"))
	g.upstream.Close()
	g.do(t, "GET", g.upstream.URL+"/s3cret", nil, nil)

	lines := strings.Split(strings.TrimSpace(g.log.String()), "\n")
	require.Len(t, lines, 2, g.log)
	for _, want := range []string{"method=POST", "scheme=https", "host=" + g.host, "status=418", "sent=11", "received=3",
		"duration=", "team=team_test", "project=prj_test", "sandbox=sbx_test", "name=sandbox-test", "rules=[Authorization]"} {
		assert.Contains(t, lines[0], want)
	}
	assert.NotContains(t, lines[0], "error=")
	assert.Contains(t, lines[1], "status=502")
	assert.Contains(t, lines[1], "error=")
	assert.NotContains(t, g.log.String(), "s3cret")
}

// TestForwarderCancels: if the sandbox cancels a request, the server sees it.
func TestForwarderCancels(t *testing.T) {
	started := make(chan struct{})
	g := newTestChain(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	}), proxy.ForwarderOptions{AllowPrivate: loopback})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	r, err := http.NewRequestWithContext(ctx, "GET", g.upstream.URL, nil)
	require.NoError(t, err)
	_, err = g.sandbox.Do(r)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestForwarderHTTPProxyForProcesses(t *testing.T) {
	upstream := httptest.NewServer(echoHeader("x-key"))
	defer upstream.Close()
	g := newTestChain(t, http.NotFoundHandler(), proxy.ForwarderOptions{AllowPrivate: loopback, Rules: []proxy.Rule{
		{Hosts: []string{strings.TrimPrefix(upstream.URL, "http://")}, AllowHTTP: true, Header: "X-Key", Secret: proxy.StaticSecret("s3cret")},
	}})
	through := httptest.NewServer(g.sandbox.Transport.(*proxytest.Firewall).Proxy())
	defer through.Close()
	address, err := url.Parse(through.URL)
	require.NoError(t, err)
	transport := &http.Transport{Proxy: http.ProxyURL(address)}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(upstream.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, `["s3cret"]`, string(b))
	resp, err = http.Get(through.URL)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, 400, resp.StatusCode)
}
