package proxy_test

import (
	"bufio"
	"bytes"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/proxy"
	"github.com/go-vercel/sandbox/proxy/proxytest"
)

const (
	planted       = "s3cr3t-value-8c1f"
	plantedAudit  = "https://p.example/hook"
	plainResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
)

// rawServer records the bytes that it receives and responds with chosen bytes,
// once on each connection.
type rawServer struct {
	listener net.Listener
	mu       sync.Mutex
	got      bytes.Buffer
}

func newRawServer(t *testing.T, respond func(request string) string) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &rawServer{listener: l}
	var conns sync.WaitGroup
	t.Cleanup(func() { l.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { s.serve(c, respond) })
		}
	})
	return s
}

func (s *rawServer) serve(c net.Conn, respond func(string) string) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	var mine bytes.Buffer
	buf := make([]byte, 64<<10)
	responded := false
	for {
		n, err := c.Read(buf)
		mine.Write(buf[:n])
		s.mu.Lock()
		s.got.Write(buf[:n])
		s.mu.Unlock()
		if !responded && bytes.Contains(mine.Bytes(), []byte("\r\n\r\n")) {
			responded = true
			_, _ = io.WriteString(c, respond(mine.String()))
			_ = c.(*net.TCPConn).CloseWrite()
		}
		if err != nil {
			return
		}
	}
}

func (s *rawServer) url() *url.URL {
	return &url.URL{Scheme: "http", Host: s.listener.Addr().String()}
}

// takeReceived returns the bytes that were received since the last call.
func (s *rawServer) takeReceived() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.got.Reset()
	return s.got.String()
}

// service is a server with a handler and a forwarder, for requests in raw bytes.
type service struct {
	*httptest.Server
	log, errors syncBuffer
}

func newService(t *testing.T, opts proxy.ForwarderOptions) *service {
	t.Helper()
	s := &service{}
	opts.AllowPrivate = loopback
	opts.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
	forwarder, err := proxy.NewForwarder(&opts)
	require.NoError(t, err)
	s.Server = httptest.NewUnstartedServer(proxy.Handler(forwarder, &proxy.Options{
		HTTPClient: authority().Client(), Audience: []string{plantedAudit}, Logger: opts.Logger,
	}))
	s.Config.ErrorLog = log.New(&s.errors, "", 0)
	s.Start()
	t.Cleanup(forwarder.CloseIdleConnections)
	t.Cleanup(s.Close)
	return s
}

// stop stops the service and returns its log.
func (s *service) stop() string {
	s.Close()
	return s.log.String()
}

// head returns the beginning of a forwarded request to a server.
func head(t *testing.T, method string, to *url.URL, path string, extra ...string) string {
	t.Helper()
	token, err := authority().Token(proxytest.Claims{Audience: plantedAudit})
	require.NoError(t, err)
	lines := append([]string{
		method + " /hook" + path + " HTTP/1.1", "Host: p.example",
		"vercel-forwarded-host: " + to.Hostname(), "vercel-forwarded-scheme: " + to.Scheme,
		"vercel-forwarded-port: " + to.Port(), "vercel-forwarded-path: " + path, "vercel-sandbox-oidc-token: " + token,
	}, extra...)
	return strings.Join(lines, "\r\n") + "\r\n"
}

// raw sends bytes to the service and returns the bytes of the response.
func (s *service) raw(t *testing.T, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	// Write in the background: a service that refuses a request might not read all of it.
	go func() { _, _ = io.WriteString(c, request) }()
	b, err := io.ReadAll(c)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the service does not end its response")
	return string(b)
}

func statusLine(response string) string { line, _, _ := strings.Cut(response, "\r\n"); return line }

func plantedRules(to *url.URL) []proxy.Rule {
	host := []string{to.Host}
	return []proxy.Rule{
		{Hosts: host, AllowHTTP: true, Header: "Authorization", Placeholder: "PLACEHOLDER", Secret: proxy.StaticSecret(planted)},
		{Hosts: host, AllowHTTP: true, Header: "X-Api-Key", Secret: proxy.StaticSecret(planted + "-key")},
		{Hosts: host, AllowHTTP: true, Header: "X-Remove"},
	}
}

// TestResponsesArePrivate: no header that a shared cache obeys allows it to store a response.
func TestResponsesArePrivate(t *testing.T) {
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for line := range strings.SplitSeq(r.Header.Get("X-Say"), ";;") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				w.Header().Add(name, value)
			}
		}
		switch r.URL.Path {
		case "/flush":
			w.(http.Flusher).Flush()
		case "/copy":
			_, _ = io.Copy(w, strings.NewReader("x"))
		case "/status":
			w.WriteHeader(418)
		case "/hints":
			w.WriteHeader(103)
			w.WriteHeader(200)
		case "/write":
			_, _ = io.WriteString(w, "x")
		}
	})
	h := proxy.Handler(inner, &proxy.Options{HTTPClient: authority().Client()})
	srv := httptest.NewServer(h)
	defer srv.Close()
	sandbox := &http.Client{Transport: &proxytest.Firewall{Authority: authority(), ForwardURL: srv.URL + "/hook"}}
	for name, c := range map[string]struct{ say, want string }{
		"nothing":          {"", "private"},
		"public":           {"Cache-Control: public, max-age=60", "private, max-age=60"},
		"shared":           {"Cache-Control: S-MaxAge=86400 , stale-while-revalidate=1", "private, stale-while-revalidate=1"},
		"not kept":         {"Cache-Control: no-store", "private, no-store"},
		"private by field": {`Cache-Control: private="set-cookie", s-maxage=9`, "private, no-cache"},
		"twice":            {"Cache-Control: public;;Cache-Control: s-maxage=5, immutable", "private, immutable"},
		"by CDN headers": {"CDN-Cache-Control: max-age=9;;Vercel-CDN-Cache-Control: max-age=9;;Surrogate-Control: max-age=9;;" +
			"X-Accel-Expires: 9;;Cloudflare-CDN-Cache-Control: max-age=9;;Edge-Control: max-age=9", "private"},
		"Vary": {"Vary: Accept", "private"},
	} {
		for _, path := range []string{"/", "/flush", "/copy", "/status", "/hints", "/write"} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://api.example.com"+path, nil)
			require.NoError(t, err)
			r.Header.Set("X-Say", c.say)
			resp, err := sandbox.Do(r)
			require.NoError(t, err, name)
			resp.Body.Close()
			assert.Equal(t, c.want, resp.Header.Get("Cache-Control"), "%s %s", name, path)
			assert.Contains(t, resp.Header["Vary"], "Vercel-Sandbox-Oidc-Token", name)
			assert.Contains(t, resp.Header["Vary"], "Vercel-Forwarded-Host", name)
			for header := range resp.Header {
				assert.NotRegexp(t, `(?i)cdn|surrogate|accel|edge`, header)
			}
		}
	}
	refused, err := http.Get(srv.URL + "/hook/x")
	require.NoError(t, err)
	refused.Body.Close()
	assert.Equal(t, "private", refused.Header.Get("Cache-Control"), "refusals are private too")
}

// TestPlaceholdersAreBounded: a header full of placeholders is refused before it is expanded.
func TestPlaceholdersAreBounded(t *testing.T) {
	up := newRawServer(t, func(string) string { return plainResponse })
	long := strings.Repeat("k", 2000)
	s := newService(t, proxy.ForwarderOptions{Rules: []proxy.Rule{
		{Hosts: []string{up.url().Host}, AllowHTTP: true, Header: "Authorization", Placeholder: "TOKEN", Secret: proxy.StaticSecret(long)},
	}})
	for name, c := range map[string]struct {
		header string
		want   string
	}{
		"one":           {"Bearer TOKEN", "200 OK"},
		"eight":         {strings.Repeat("TOKEN", 8), "200 OK"},
		"nine":          {strings.Repeat("TOKEN", 9), "431 Request Header Fields Too Large"},
		"many":          {strings.Repeat("TOKEN", 150_000), "431 Request Header Fields Too Large"},
		"a large value": {"TOKEN" + strings.Repeat("x", 63<<10), "431 Request Header Fields Too Large"},
	} {
		request := head(t, "GET", up.url(), "/p", "Authorization: "+c.header, "Connection: close") + "\r\n"
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		response := s.raw(t, request)
		runtime.ReadMemStats(&after)
		assert.Equal(t, "HTTP/1.1 "+c.want, statusLine(response), name)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20), name)
		assert.Equal(t, strings.HasPrefix(c.want, "200"), strings.Contains(up.takeReceived(), long[:100]), name)
	}
}

// TestLogOmitsResponses: the log contains no secret, although servers echo requests and errors of the
// transport quote responses.
func TestLogOmitsResponses(t *testing.T) {
	secretOf := func(request string) string {
		_, after, _ := strings.Cut(request, "Authorization: ")
		value, _, _ := strings.Cut(after, "\r\n")
		return value
	}
	for name, response := range map[string]func(string) string{
		"an echo":             func(s string) string { return s },
		"a header line":       func(s string) string { return "HTTP/1.1 200 OK\r\n" + secretOf(s) + "\r\n\r\n" },
		"a status":            func(s string) string { return "HTTP/1.1 " + secretOf(s) + "\r\n\r\n" },
		"a length":            func(s string) string { return "HTTP/1.1 200 OK\r\nContent-Length: " + secretOf(s) + "\r\n\r\n" },
		"a transfer encoding": func(s string) string { return "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + secretOf(s) + "\r\n\r\n" },
		"a chunk size": func(s string) string {
			return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + secretOf(s) + "\r\n"
		},
		"an upgrade": func(s string) string {
			return "HTTP/1.1 101 " + secretOf(s) + "\r\nUpgrade: " + secretOf(s) + "\r\nConnection: upgrade\r\n\r\n"
		},
		"a megabyte":  func(string) string { return "HTTP/1.1 200 OK\r\n" + strings.Repeat("A", 1<<20-2000) + "\r\n\r\n" },
		"nothing":     func(string) string { return "" },
		"a long name": func(string) string { return "HTTP/1.1 200 OK\r\n" + strings.Repeat("A", 1<<21) + ": x\r\n\r\n" },
	} {
		t.Run(name, func(t *testing.T) {
			up := newRawServer(t, response)
			s := newService(t, proxy.ForwarderOptions{Rules: plantedRules(up.url())})
			page := s.raw(t, head(t, "GET", up.url(), "/v1/things?token=QUERYSECRET", "Authorization: Bearer PLACEHOLDER", "Connection: close")+"\r\n")
			lines := s.stop()
			assert.Contains(t, lines, "error=")
			for _, secret := range []string{planted, "QUERYSECRET", "/v1/things", "AAAAAAAA"} {
				assert.NotContains(t, lines, secret)
				assert.NotContains(t, page, secret)
			}
			assert.Less(t, len(lines), 2000)
		})
	}
	up := newRawServer(t, func(string) string { return plainResponse })
	s := newService(t, proxy.ForwarderOptions{})
	s.raw(t, head(t, strings.Repeat("M", 100_000), up.url(), "/", "Connection: close")+"\r\n")
	assert.Less(t, len(s.stop()), 2000, "the log cuts the method, which the sandbox chooses")
}

// TestOddStatuses: no status makes the server panic.
func TestOddStatuses(t *testing.T) {
	for code, want := range map[string]string{
		"000": "502", "099": "502", "1000": "502", "-1": "502", "101": "502",
		"200": "200", "418": "418", "599": "599", "999": "999",
	} {
		up := newRawServer(t, func(string) string {
			return "HTTP/1.1 " + code + " X\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
		})
		s := newService(t, proxy.ForwarderOptions{})
		line := statusLine(s.raw(t, head(t, "GET", up.url(), "/p", "Connection: close")+"\r\n"))
		assert.True(t, strings.HasPrefix(line, "HTTP/1.1 "+want), "%s: %q", code, line)
		log := s.stop()
		assert.Empty(t, s.errors.String(), code)
		assert.NotContains(t, log, "went away", code)
	}
}

// TestUnrequestedUpgrade: if a server switches to a protocol that was not requested, the response
// is 502 and the connection is closed.
func TestUnrequestedUpgrade(t *testing.T) {
	for name, asked := range map[string][]string{
		"none requested":     {"Connection: close"},
		"another protocol":   {"Connection: Upgrade, close", "Upgrade: websocket"},
		"not forwarded: h2c": {"Connection: Upgrade, close", "Upgrade: h2c"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			closed := make(chan error, 1)
			go func() {
				c, err := l.Accept()
				if err != nil {
					closed <- err
					return
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				_, _ = http.ReadRequest(bufio.NewReader(c))
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: mine\r\n\r\n")
				_, err = io.Copy(io.Discard, c)
				closed <- err
			}()
			to := &url.URL{Scheme: "http", Host: l.Addr().String()}
			s := newService(t, proxy.ForwarderOptions{})
			line := statusLine(s.raw(t, head(t, "GET", to, "/p", asked...)+"\r\n"))
			assert.Equal(t, "HTTP/1.1 502 Bad Gateway", line)
			require.NoError(t, l.Close())
			assert.NoError(t, <-closed, "the connection stays open")
		})
	}
}

// TestTrailersAreDropped: trailers are not forwarded, announced or not, because rules don't change
// them.
func TestTrailersAreDropped(t *testing.T) {
	var got http.Header
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got = r.Trailer.Clone()
	}))
	defer api.Close()
	to, _ := url.Parse(api.URL)
	s := newService(t, proxy.ForwarderOptions{Rules: plantedRules(to)})
	const body = "2\r\nhi\r\n0\r\nAuthorization: mine\r\nX-Sum: mine\r\nX-Unannounced: mine\r\n"
	response := s.raw(t, head(t, "POST", to, "/p", "Transfer-Encoding: chunked", "Connection: close", "Trailer: X-Sum, Authorization")+"\r\n"+body+"\r\n")
	assert.Equal(t, "HTTP/1.1 200 OK", statusLine(response))
	assert.Empty(t, got)
}

// TestHeaderTricks sends requests that servers interpret differently. The server gets a request
// with the rules applied, or none.
func TestHeaderTricks(t *testing.T) {
	up := newRawServer(t, func(string) string { return plainResponse })
	s := newService(t, proxy.ForwarderOptions{Rules: plantedRules(up.url())})
	smuggled := "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, c := range map[string]struct {
		extra []string
		body  string
	}{
		"underscores":                 {[]string{"Vercel_Forwarded_Host: evil.example"}, ""},
		"one underscore":              {[]string{"Vercel-Forwarded_Host: evil.example"}, ""},
		"a second host":               {[]string{"Vercel-Forwarded-Host: evil.example"}, ""},
		"a second host, in capitals":  {[]string{"VERCEL-FORWARDED-HOST: evil.example"}, ""},
		"a space before the colon":    {[]string{"Vercel-Forwarded-Host : evil.example"}, ""},
		"a tab before the colon":      {[]string{"Vercel-Forwarded-Host\t: evil.example"}, ""},
		"folded":                      {[]string{"X-A: b", " Vercel-Forwarded-Host: other.example"}, ""},
		"a NUL in a name":             {[]string{"Vercel-Forwarded-Host\x00: evil.example"}, ""},
		"a NUL in a value":            {[]string{"X-A: evil\x00b"}, ""},
		"a bare CR":                   {[]string{"X-A: a\rVercel-Forwarded-Host: evil"}, ""},
		"a bare LF":                   {[]string{"X-A: a\nVercel-Forwarded-Host: evil"}, ""},
		"no colon":                    {[]string{"evil"}, ""},
		"no name":                     {[]string{": evil"}, ""},
		"length, then chunks":         {[]string{"Content-Length: 5", "Transfer-Encoding: chunked"}, smuggled},
		"chunks, then length":         {[]string{"Transfer-Encoding: chunked", "Content-Length: 5"}, smuggled},
		"identity and chunks":         {[]string{"Transfer-Encoding: identity, chunked"}, smuggled},
		"nearly chunks":               {[]string{"Transfer-Encoding: xchunked"}, smuggled},
		"chunks twice":                {[]string{"Transfer-Encoding: chunked", "Transfer-Encoding: chunked"}, smuggled},
		"chunks behind a VT":          {[]string{"Transfer-Encoding: \x0bchunked"}, smuggled},
		"chunks before a space":       {[]string{"Transfer-Encoding : chunked"}, smuggled},
		"two lengths":                 {[]string{"Content-Length: 5", "Content-Length: 6"}, "evil!!"},
		"a length with a sign":        {[]string{"Content-Length: +5"}, "evil!"},
		"a negative length":           {[]string{"Content-Length: -1"}, "evil!"},
		"a chunk size that overflows": {[]string{"Transfer-Encoding: chunked"}, "10000000000000005\r\nevil!\r\n0\r\n\r\n"},
		"a chunk size in C":           {[]string{"Transfer-Encoding: chunked"}, "0x5\r\nevil!\r\n0\r\n\r\n"},
		"an upgrade to HTTP/2":        {[]string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: evil-h2c", "HTTP2-Settings: evil"}, ""},
		"of the platform": {[]string{"X-Vercel-Oidc-Token: evil", "X-Vercel-Sc-Headers: evil", "X_Vercel_Proxy_Signature: evil",
			"X-Vercel-Internal-Foo: evil", "X-Forwarded-For: evil", "Forwarded: for=evil", "X-Forwarded-Host: evil"}, ""},
		"look-alikes of rules": {[]string{"X-Remove: evil", "X_Remove: evil", "x_api_key: evil", "X-Api_Key: evil"}, ""},
		"hop by hop":           {[]string{"Connection: X-Evil, X-Api-Key", "X-Evil: evil", "Proxy-Authorization: evil", "Keep-Alive: evil"}, ""},
	} {
		response := s.raw(t, head(t, "POST", up.url(), "/p", append(c.extra, "Connection: close")...)+"\r\n"+c.body)
		saw := up.takeReceived()
		assert.NotContains(t, strings.ToLower(saw), "evil", name)
		assert.NotContains(t, saw, "smuggled", name)
		assert.NotContains(t, strings.ToLower(saw), "\nvercel-", name)
		if saw != "" {
			assert.Contains(t, saw, "X-Api-Key: "+planted+"-key\r\n", name)
		} else {
			assert.Regexp(t, `^HTTP/1\.1 (400|403|501|502) `, statusLine(response), name)
		}
	}
}

// TestAccelHeaders: a server that the sandbox chooses can't make a web server in front of the
// service serve its files.
func TestAccelHeaders(t *testing.T) {
	up := newRawServer(t, func(string) string {
		return "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /etc/passwd\r\nX-Sendfile: /etc/passwd\r\nX-Lighttpd-Send-File: /etc/passwd\r\nX-Ok: 1\r\nContent-Length: 0\r\n\r\n"
	})
	response := newService(t, proxy.ForwarderOptions{}).raw(t, head(t, "GET", up.url(), "/", "Connection: close")+"\r\n")
	assert.Contains(t, response, "X-Ok: 1")
	assert.NotContains(t, response, "passwd")
}

func TestMethodsThatEcho(t *testing.T) {
	up := newRawServer(t, func(string) string { return plainResponse })
	s := newService(t, proxy.ForwarderOptions{Rules: plantedRules(up.url())})
	for _, method := range []string{"TRACE", "trace", "Trace", "TRACK", "track", "CONNECT", "connect"} {
		response := s.raw(t, head(t, method, up.url(), "/p", "Authorization: Bearer PLACEHOLDER", "Connection: close")+"\r\n")
		assert.Regexp(t, "^HTTP/1.1 40[05] ", statusLine(response), method)
		assert.Empty(t, up.takeReceived(), method)
	}
	s.raw(t, head(t, "PROPFIND", up.url(), "/p", "Connection: close")+"\r\n")
	assert.Contains(t, up.takeReceived(), "PROPFIND /p ")
}

// TestSecretsStayUnderTheirPath: a path that a server may resolve to one outside of PathPrefix
// gets no secret.
func TestSecretsStayUnderTheirPath(t *testing.T) {
	up := newRawServer(t, func(string) string { return plainResponse })
	s := newService(t, proxy.ForwarderOptions{Rules: []proxy.Rule{
		{Hosts: []string{up.url().Host}, PathPrefix: "/v1", AllowHTTP: true, Header: "X-Key", Secret: proxy.StaticSecret(planted)},
	}})
	for path, want := range map[string]bool{
		"/v1": true, "/v1/": true, "/v1/x": true, "/v1/x%20y": true, "/v1/...": true, "/v1?../x": true,
		"/v10": false, "/V1/x": false, "/v1%2fx": false, "/v1/..%2fadmin": false, "/v1/%2e%2e/admin": false, "/v1/..;/admin": false,
		"/v1/..%5cadmin": false, "/v1/.%2e/admin": false, "/v1/..%00/admin": false, "/v1/..%20/admin": false, "/v1/..%09/admin": false,
		"/v1/.%20/admin": false, "/v1/%0d%0ax": false, "//v1": false, "/v1;x/../admin": false, "/x/../v1": false,
	} {
		s.raw(t, head(t, "GET", up.url(), path, "Connection: close")+"\r\n")
		assert.Equal(t, want, strings.Contains(up.takeReceived(), planted), path)
	}
}

// TestMaxDuration: MaxDuration ends WebSockets and streams.
func TestMaxDuration(t *testing.T) {
	for name, response := range map[string]string{
		"websocket": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello",
		"stream":    "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				r := bufio.NewReader(c)
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				_, _ = io.WriteString(c, response)
				_, _ = io.Copy(io.Discard, r) // until the other side is gone
			}()
			s := newService(t, proxy.ForwarderOptions{MaxDuration: 300 * time.Millisecond})
			got := s.raw(t, head(t, "GET", &url.URL{Scheme: "http", Host: l.Addr().String()}, "/", "Connection: Upgrade, close", "Upgrade: websocket")+"\r\n")
			assert.True(t, strings.HasSuffix(got, "hello"), got)
			<-closed
		})
	}
}

// TestNoAudience: an unset variable is not a valid forward URL.
func TestNoAudience(t *testing.T) {
	for _, audience := range []string{"", "/", "//"} {
		r := forwardedTo(t, plantedAudit, "GET", "https://api.example.com/x", "")
		token, err := authority().Token(proxytest.Claims{Audience: audience})
		require.NoError(t, err)
		r.Header.Set("Vercel-Sandbox-Oidc-Token", token)
		w := httptest.NewRecorder()
		proxy.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("accepted") }), &proxy.Options{
			HTTPClient: authority().Client(), Audience: []string{audience},
		}).ServeHTTP(w, r)
		assert.Equal(t, 403, w.Code)
	}
}
