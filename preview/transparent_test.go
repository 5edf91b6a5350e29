package preview_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/preview"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// differences lists the programs of TestReverseProxyTransparent that can tell the proxy
// from the server, each with its reason.
var differences = map[string]string{
	"headers of proxies":     "the edge sets X-Forwarded-For and its kind, and the proxy X-Original-For and its kind",
	"redirect, absolute":     "the server's own address is not the visitor's: the address loses its origin",
	"content location":       "as above",
	"cookie, its own domain": "a cookie is for the visitor's host alone",
	"transport security":     "a browser would keep it for the preview's host",
	"X-Accel-Redirect":       "a web server in front would serve a file of its own",
	"alternative service":    "it would lead past the proxy",
	"reason phrase":          "package http has its own, which HTTP/2 has not at all",
	"malformed response":     "502 in place of a broken connection",
	"OPTIONS *":              "a server of package http responds itself, unless DisableGeneralOptionsHandler is set",
	"absolute target":        "the server has a host of its own, by which the platform finds it",
}

// visitor is a client of a server, directly or through the proxy.
type visitor struct {
	t         *testing.T
	url       string // the site
	raw       string // host and port of a server that sends raw bytes
	client    *http.Client
	h2        *http.Client
	h2url     string
	normalize *strings.Replacer // replaces all addresses by one
}

// do sends a request and describes the result.
func (v *visitor) do(client *http.Client, method, address string, body io.Reader, header ...string) string {
	req, err := http.NewRequestWithContext(v.t.Context(), method, address, body)
	require.NoError(v.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return v.send(client, req)
}

func (v *visitor) send(client *http.Client, req *http.Request) string {
	resp, err := client.Do(req)
	if err != nil {
		return "error"
	}
	return v.describe(resp)
}

func (v *visitor) describe(resp *http.Response) string {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if len(resp.Trailer) > 0 { // a response over HTTP/1 has no length then
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d %v %v\n", resp.StatusCode, resp.ContentLength, resp.Uncompressed, err != nil)
	resp.Header.Del("Date")
	writeHeader(&b, resp.Header)
	body = []byte(v.normalize.Replace(string(body)))
	if len(body) > 4096 {
		fmt.Fprintf(&b, "%d bytes %x\n", len(body), sha256.Sum256(body))
	} else {
		b.Write(body)
	}
	writeHeader(&b, resp.Trailer)
	return v.normalize.Replace(b.String())
}

func writeHeader(w io.Writer, h http.Header) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		fmt.Fprintf(w, "%s: %q\n", name, h[name])
	}
}

// get is do without a body, for a path of the site.
func (v *visitor) get(path string, header ...string) string {
	return v.do(v.client, http.MethodGet, v.url+path, nil, header...)
}

// exchange sends bytes to a server and returns the response.
func (v *visitor) exchange(address, text string) string {
	conn, err := net.Dial("tcp", address)
	require.NoError(v.t, err)
	defer conn.Close()
	require.NoError(v.t, conn.SetDeadline(time.Now().Add(testkit.Patience)))
	_, err = io.WriteString(conn, text)
	require.NoError(v.t, err)
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return "error"
	}
	return v.describe(resp)
}

func (v *visitor) site() string { return strings.TrimPrefix(v.url, "http://") }

// duplex sends each line after the previous one has come back. The last line is longer
// than any buffer in between.
func (v *visitor) duplex(client *http.Client, address string) string {
	ctx, cancel := context.WithTimeout(v.t.Context(), testkit.Patience)
	defer cancel()
	body, in := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/duplex", body)
	require.NoError(v.t, err)
	defer in.Close()
	resp, err := client.Do(req)
	if err != nil {
		return "error"
	}
	defer resp.Body.Close()
	r, seen := bufio.NewReader(resp.Body), resp.Proto
	for _, line := range []string{"one\n", "two\n", strings.Repeat("0123456789abcdef", 200_000) + "\n"} {
		go func() { _, _ = io.WriteString(in, line) }()
		got, err := r.ReadString('\n')
		seen += fmt.Sprint(got == line, err)
	}
	_ = in.Close() // always nil
	rest, err := io.ReadAll(r)
	return seen + fmt.Sprint(len(rest), err)
}

// uri returns the request target as it arrives.
func (v *visitor) uri(target string) string {
	return v.exchange(v.raw, "GET "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

// header returns one header of the response to a path.
func (v *visitor) header(path, name string, header ...string) string {
	_, after, _ := strings.Cut(v.get(path, header...), "\n"+name+": ")
	line, _, _ := strings.Cut(after, "\n")
	return line
}

// visits are the programs of TestReverseProxyTransparent.
func visits() map[string]func(v *visitor) string {
	allBytes := func(from, to int) string {
		var b strings.Builder
		for c := from; c < to; c++ {
			if !strings.ContainsRune(" ?%", rune(c)) && c != 0x7f {
				b.WriteByte(byte(c))
			}
		}
		return b.String()
	}
	big := strings.Repeat("0123456789abcdef", 200_000)
	get := func(path string, header ...string) func(v *visitor) string {
		return func(v *visitor) string { return v.get(path, header...) }
	}
	do := func(method, path, body string, header ...string) func(v *visitor) string {
		return func(v *visitor) string {
			return v.do(v.client, method, v.url+path, strings.NewReader(body), header...)
		}
	}
	uri := func(target string) func(v *visitor) string { return func(v *visitor) string { return v.uri(target) } }
	raw := func(path string) func(v *visitor) string {
		return func(v *visitor) string {
			return v.exchange(v.raw, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		}
	}
	return map[string]func(v *visitor) string{
		"get":                get("/echo?a=1"),
		"head":               do(http.MethodHead, "/file", ""),
		"post":               do(http.MethodPost, "/echo", "body", "Content-Type", "text/x"),
		"post, empty":        do(http.MethodPost, "/echo", ""),
		"put, large":         do(http.MethodPut, "/echo", big),
		"delete with a body": do(http.MethodDelete, "/echo", "body"),
		"method of its own":  do("PROPFIND", "/echo", "<x/>", "Depth", "1"),
		"OPTIONS":            do(http.MethodOptions, "/echo", ""),
		"host":               get("/host"),
		"headers of proxies": get("/all", "X-Forwarded-For", "1.2.3.4", "X-Original-Host", "forged"),
		"many values":        get("/echo", "X-A", "1", "X-A", "2", "X-B", "", "X-C", "\xe4,\t;\""),
		"long header":        get("/echo", "X-Long", strings.Repeat("x", 20_000)),
		"cookies sent":       get("/echo", "Cookie", `a=1; b="2,3"; c`),
		"authorization":      get("/echo", "Authorization", "Basic dTpw"),
		"no user agent":      get("/echo", "User-Agent", ""),
		"hop by hop":         get("/echo", "TE", "trailers", "Cache-Control", "no-cache", "Max-Forwards", "0", "Via", "1.1 x"),
		"no compression asked for": func(v *visitor) string {
			return v.exchange(v.site(), "GET /gzip HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		},
		"gzip":     get("/gzip", "Accept-Encoding", "gzip"),
		"identity": get("/gzip", "Accept-Encoding", "identity"),

		"every byte in a path":  uri("/" + allBytes(0x21, 0x100)),
		"every byte in a query": uri("/?" + allBytes(0x21, 0x100)),
		"every byte escaped":    func(v *visitor) string { return v.uri("/" + allEscapes() + "?" + allEscapes()) },
		"controls in a path": func(v *visitor) string {
			return fmt.Sprint(v.exchange(v.site(), "GET /\x01 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
		},
		"query, stray percent": uri("/?q=100%&x=%zz"),
		"query, semicolons":    uri("/?a=1;b=2&c=3;"),
		"query, empty":         uri("/?"),
		"query, odd":           uri("/?&&=?/?+&%00"),
		"path, dots":           uri("/a/../b/./c//d/"),
		"path, slashes":        uri("//a//b"),
		"path, escaped slash":  uri("/a%2Fb%2f"),
		"path, small escapes":  uri("/%e4%C3%a4"),
		"path, brackets":       uri("/[a]{b}|c^`\"<>\\"),
		"path, fragment":       uri("/a#b"),
		"absolute target": func(v *visitor) string {
			return v.exchange(v.site(), "GET http://elsewhere/echo?x HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\n\r\n")
		},
		"OPTIONS *": func(v *visitor) string {
			return v.exchange(v.raw, "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		},
		"HTTP/1.0": func(v *visitor) string { return v.exchange(v.site(), "GET /file HTTP/1.0\r\n\r\n") },

		"redirect, absolute": func(v *visitor) string {
			return v.header("/redirect?to=abs", "Location") + v.header("/redirect?to=port", "Location")
		},
		"redirect, relative":     func(v *visitor) string { return v.header("/redirect?to=rel", "Location") },
		"redirect, elsewhere":    func(v *visitor) string { return v.header("/redirect?to=other", "Location") },
		"redirect, followed":     func(v *visitor) string { v.client.CheckRedirect = nil; return v.get("/redirect?to=abs") },
		"redirect, double slash": func(v *visitor) string { v.client.CheckRedirect = nil; return v.get("/redirect?to=slashes") },
		"redirect of a post": func(v *visitor) string {
			v.client.CheckRedirect = nil
			return v.do(v.client, http.MethodPost, v.url+"/redirect?to=abs", strings.NewReader("again"))
		},
		"content location":       func(v *visitor) string { return v.header("/redirect?to=abs", "Content-Location") },
		"cookie, its own domain": get("/cookie?domain=own"),
		"cookies":                get("/cookie"),
		"cookies, kept": func(v *visitor) string {
			v.client.Jar, _ = cookiejar.New(nil)
			v.get("/cookie?domain=own")
			return v.get("/echo")
		},
		"origin of its own":   func(v *visitor) string { return v.get("/origin", "Origin", v.url, "Referer", v.url+"/page?x") },
		"origin, another":     get("/origin", "Origin", "http://evil.example", "Referer", "http://evil.example/"),
		"X-Accel-Redirect":    get("/accel"),
		"alternative service": get("/alt"),
		"transport security":  get("/kept"),

		"range":                       get("/file", "Range", "bytes=5-9"),
		"ranges":                      func(v *visitor) string { s := v.get("/file", "Range", "bytes=0-1,5-9"); return s[:8] },
		"range, suffix":               get("/file", "Range", "bytes=-3"),
		"range, impossible":           get("/file", "Range", "bytes=900000-"),
		"not modified":                get("/file", "If-None-Match", `"etag"`),
		"conditional":                 get("/file", "If-Match", `"other"`),
		"no content":                  get("/status?204"),
		"odd status":                  get("/status?599"),
		"retry after":                 get("/status?503"),
		"gone":                        get("/status?410"),
		"unauthorized":                get("/status?401"),
		"trailers":                    get("/trailers", "TE", "trailers"),
		"upload, answered as it goes": func(v *visitor) string { return v.duplex(v.client, v.url) },
		"trailers sent": func(v *visitor) string {
			pr, pw := io.Pipe()
			req, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.url+"/echo", pr)
			require.NoError(v.t, err)
			req.Trailer = http.Header{"X-Sum": nil}
			go func() {
				_, _ = io.WriteString(pw, "body")
				req.Trailer.Set("X-Sum", "7")
				_ = pw.Close()
			}()
			return v.send(v.client, req)
		},
		"chunked upload": func(v *visitor) string {
			return v.do(v.client, http.MethodPost, v.url+"/echo", io.MultiReader(strings.NewReader("a"), strings.NewReader(big)))
		},
		"form with files": func(v *visitor) string {
			var b bytes.Buffer
			w := multipart.NewWriter(&b)
			require.NoError(v.t, w.SetBoundary("boundary"))
			part, err := w.CreateFormFile("file", "ä\".txt")
			require.NoError(v.t, err)
			_, err = part.Write([]byte(big))
			require.NoError(v.t, errors.Join(err, w.Close()))
			return v.do(v.client, http.MethodPost, v.url+"/form", &b, "Content-Type", w.FormDataContentType())
		},
		"early hints": func(v *visitor) string {
			var early strings.Builder
			ctx := httptrace.WithClientTrace(v.t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				fmt.Fprintln(&early, code, h)
				return nil
			}})
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+"/early", nil)
			require.NoError(v.t, err)
			return v.send(v.client, req) + early.String()
		},
		"expect": do(http.MethodPost, "/echo", "body", "Expect", "100-continue"),
		"expect, refused": func(v *visitor) string {
			return v.exchange(v.site(), "POST /status?417 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		},
		"broken response": get("/broken"),
		"server-sent events": func(v *visitor) string {
			req, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, v.url+"/events", nil)
			require.NoError(v.t, err)
			resp, err := v.client.Do(req)
			require.NoError(v.t, err)
			defer resp.Body.Close()
			r, seen := bufio.NewReader(resp.Body), resp.Header.Get("Content-Type")
			for range 3 { // the server waits for the client
				line, err := r.ReadString('\n')
				seen += fmt.Sprint(line, err)
				v.get("/next")
			}
			return seen
		},
		"visitor leaves": func(v *visitor) string {
			ctx, cancel := context.WithCancel(v.t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+"/forever", nil)
			require.NoError(v.t, err)
			resp, err := v.client.Do(req)
			require.NoError(v.t, err)
			cancel()
			_ = resp.Body.Close()
			return v.get("/left")
		},
		"websocket": func(v *visitor) string {
			conn, err := net.Dial("tcp", v.site())
			require.NoError(v.t, err)
			defer conn.Close()
			require.NoError(v.t, conn.SetDeadline(time.Now().Add(testkit.Patience)))
			fmt.Fprintf(conn, "GET /socket HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n", v.site(), v.url)
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			require.NoError(v.t, err)
			var b strings.Builder
			fmt.Fprintln(&b, resp.StatusCode)
			resp.Header.Del("Date")
			writeHeader(&b, resp.Header)
			for _, line := range []string{"\x00\xff\n", big + "\n"} {
				go func() { _, _ = io.WriteString(conn, line) }()
				got, err := r.ReadString('\n')
				fmt.Fprintln(&b, got == line, err)
			}
			return b.String()
		},
		"websocket, refused": get("/socket", "Connection", "Upgrade", "Upgrade", "websocket", "Origin", "http://evil.example"),

		"no content type":    raw("/noct"),
		"close-delimited":    raw("/old"),
		"reason phrase":      func(v *visitor) string { return v.status("/reason") },
		"repeated headers":   raw("/dup"),
		"chunk extensions":   raw("/ext"),
		"header in Latin-1":  raw("/latin"),
		"malformed response": raw("/malformed"),
		"unasked-for 100":    raw("/hundred"),
		"length and no body": func(v *visitor) string {
			return v.exchange(v.raw, "HEAD /length HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		},

		"HTTP/2": func(v *visitor) string {
			return v.do(v.h2, http.MethodGet, v.h2url+"/echo?a=1;b=%", nil, "Cookie", "a=1", "Cookie", "b=2")
		},
		"HTTP/2, post":                        func(v *visitor) string { return v.do(v.h2, http.MethodPost, v.h2url+"/echo", strings.NewReader(big)) },
		"HTTP/2, upload, answered as it goes": func(v *visitor) string { return v.duplex(v.h2, v.h2url) },
		"HTTP/2, trailers":                    func(v *visitor) string { return v.do(v.h2, http.MethodGet, v.h2url+"/trailers", nil) },
	}
}

func allEscapes() string {
	var b strings.Builder
	for c := range 256 {
		fmt.Fprintf(&b, "%%%02x", c)
	}
	return b.String()
}

// status returns a response's status with its reason.
func (v *visitor) status(path string) string {
	conn, err := net.Dial("tcp", v.raw)
	require.NoError(v.t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	require.NoError(v.t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(v.t, err)
	return line
}

// TestReverseProxyTransparent: programs see the same through the proxy and the emulated
// edge as from the server itself, except for the listed differences.
func TestReverseProxyTransparent(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder}) // shares the test's network
	site, own := listen(t, showSite())
	bytes, raw := listenRaw(t)
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Create(t.Context(), testkit.Lasting(&sandbox.CreateOptions{Ports: []int{site, bytes}}))
	require.NoError(t, err)
	quiet := log.New(io.Discard, "", 0)
	proxy := func(port int) http.Handler {
		p := preview.ReverseProxy(sb, port, nil)
		p.ErrorLog = quiet
		t.Cleanup(func() { p.Transport.(interface{ CloseIdleConnections() }).CloseIdleConnections() })
		return p
	}
	start := func(h http.Handler, h2 bool) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.Config.ErrorLog = quiet
		if s.EnableHTTP2 = h2; h2 {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		return s
	}
	front, rawFront, front2, direct2 := start(proxy(site), false), start(proxy(bytes), false), start(proxy(site), true), start(showSite(), true)
	addresses := []string{own, raw}
	for _, s := range []*httptest.Server{front, rawFront, front2, direct2} {
		addresses = append(addresses, s.Listener.Addr().String())
	}
	for _, port := range []int{site, bytes} {
		address, err := sb.URL(port)
		require.NoError(t, err)
		addresses = append(addresses, strings.TrimPrefix(address, "http://"))
	}
	var same []string
	for _, a := range addresses {
		same = append(same, a, "HOST")
	}
	visit := func(t *testing.T, direct bool, program func(*visitor) string) string {
		tr := testkit.Transport(t)
		tr2 := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // a test's own server
		defer tr2.CloseIdleConnections()
		tr.DisableCompression = true
		noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		v := &visitor{
			t: t, url: front.URL, raw: rawFront.Listener.Addr().String(), h2url: front2.URL, normalize: strings.NewReplacer(same...),
			client: &http.Client{Transport: tr, CheckRedirect: noRedirect}, h2: &http.Client{Transport: tr2, CheckRedirect: noRedirect},
		}
		if direct {
			v.url, v.raw, v.h2url = "http://"+own, raw, direct2.URL
		}
		return program(v)
	}
	programs := visits()
	require.LessOrEqual(t, len(differences), 12)
	require.GreaterOrEqual(t, len(programs), 60)
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		t.Run(name, func(t *testing.T) {
			without, with := visit(t, true, programs[name]), visit(t, false, programs[name])
			if differences[name] == "" {
				assert.Equal(t, without, with)
			} else {
				assert.NotEqual(t, without, with, "it is listed as a difference, but there is none")
			}
		})
	}
}

// listen serves a handler on all interfaces, as the edge requires.
func listen(t *testing.T, h http.Handler) (port int, address string) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	port = l.Addr().(*net.TCPAddr).Port
	s := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)} //nolint:gosec // a test's own visitors
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return port, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// showSite is a web application.
func showSite() http.Handler {
	mux := http.NewServeMux()
	next, left := make(chan struct{}), make(chan struct{}, 2)
	echo := func(w http.ResponseWriter, r *http.Request, all bool) {
		body, err := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintln(w, r.Method, r.RequestURI, r.Host, r.ContentLength, r.TransferEncoding, err)
		for name := range r.Header {
			if !all && (strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Original-") || strings.HasPrefix(name, "X-Vercel-") || name == "X-Real-Ip") {
				r.Header.Del(name)
			}
		}
		r.Header.Del("Connection") // of this hop
		writeHeader(w, r.Header)
		fmt.Fprintf(w, "%d %x\n", len(body), sha256.Sum256(body))
		writeHeader(w, r.Trailer)
	}
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { echo(w, r, false) })
	mux.HandleFunc("/all", func(w http.ResponseWriter, r *http.Request) { echo(w, r, true) })
	mux.HandleFunc("/host", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) })
	mux.HandleFunc("/landed", func(w http.ResponseWriter, r *http.Request) { echo(w, r, false) })
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		_, port, _ := net.SplitHostPort(r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
		to := map[string]string{
			"abs": "http://" + r.Host + "/landed?x=1#y", "rel": "landed?x", "other": "https://elsewhere.example/x",
			"slashes": "http://" + r.Host + "//landed", "port": "http://127.0.0.1:" + port + "/landed",
		}[r.URL.Query().Get("to")]
		w.Header().Set("Location", to)
		w.Header().Set("Content-Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/cookie", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("domain") == "own" {
			host, _, _ := net.SplitHostPort(r.Host)
			w.Header().Add("Set-Cookie", "domain=x; domain = "+host+"; Path=/; HttpOnly")
		}
		w.Header().Add("Set-Cookie", `a="1,2"; Path=/; SameSite=Lax; Max-Age=100`)
		w.Header().Add("Set-Cookie", "b=; Expires=Thu, 01 Jan 1970 00:00:00 GMT")
	})
	mux.HandleFunc("/origin", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "http://"+r.Host || !strings.HasPrefix(r.Referer(), "http://"+r.Host+"/") {
			http.Error(w, "not this page's", http.StatusForbidden)
		}
	})
	mux.HandleFunc("/accel", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Accel-Redirect", "/internal")
		w.Header().Set("X-Sendfile", "/etc/passwd")
	})
	mux.HandleFunc("/alt", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Alt-Svc", `h3=":443"`) })
	mux.HandleFunc("/kept", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=63072000; includeSubDomains")
		w.Header().Set("Clear-Site-Data", `"*"`)
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"etag"`)
		http.ServeContent(w, r, "a.txt", time.Unix(1e9, 0), strings.NewReader("0123456789abc"))
	})
	mux.HandleFunc("/gzip", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			_, _ = io.WriteString(w, "plain "+r.Header.Get("Accept-Encoding"))
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, "compressed")
		_ = z.Close()
	})
	mux.HandleFunc("/status", func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.RawQuery)
		w.Header().Set("Retry-After", "7")
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(status)
	})
	mux.HandleFunc("/trailers", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Announced")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Announced", "1")
		w.Header().Set(http.TrailerPrefix+"X-Late", "2")
	})
	mux.HandleFunc("/duplex", func(w http.ResponseWriter, r *http.Request) {
		c, buf := http.NewResponseController(w), make([]byte, 32<<10)
		_ = c.EnableFullDuplex() // for HTTP/1; HTTP/2 always allows it
		for err := c.Flush(); err == nil; {
			var n int
			n, err = r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = c.Flush()
		}
	})
	mux.HandleFunc("/form", func(w http.ResponseWriter, r *http.Request) {
		_, h, err := r.FormFile("file")
		if err == nil {
			fmt.Fprintln(w, h.Filename, h.Size)
			_ = r.MultipartForm.RemoveAll()
		}
	})
	mux.HandleFunc("/early", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("X-Final", "1")
		_, _ = io.WriteString(w, "done")
	})
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n", i)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
			}
		}
	})
	mux.HandleFunc("/next", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case next <- struct{}{}:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/forever", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		left <- struct{}{}
	})
	mux.HandleFunc("/left", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-left:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/socket", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "http://"+r.Host {
			http.Error(w, "another origin", http.StatusForbidden)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { echo(w, r, false) })
	// Don't serve with the mux itself, which redirects paths that are not clean.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, pattern := mux.Handler(&http.Request{Method: r.Method, Host: r.Host, URL: &url.URL{Path: r.URL.Path}}); pattern != "/" {
			h.ServeHTTP(w, r)
			return
		}
		echo(w, r, false)
	})
}

// listenRaw serves malformed responses, chosen by the request target. For other targets it
// responds with the first line of the request.
func listenRaw(t *testing.T) (port int, address string) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	port = l.Addr().(*net.TCPAddr).Port
	t.Cleanup(func() { _ = l.Close() })
	responses := map[string]string{
		"/noct":      "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
		"/old":       "HTTP/1.0 200 OK\r\nContent-Type: a/b\r\n\r\nuntil the end",
		"/reason":    "HTTP/1.1 200 Fine\r\nContent-Type: a/b\r\nContent-Length: 0\r\n\r\n",
		"/dup":       "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nx-a: 1\r\nX-A: 2\r\nX-B:\r\nVary: a\r\nVary: b\r\nContent-Length: 0\r\n\r\n",
		"/ext":       "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n",
		"/latin":     "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nX-Name: \xe4\xff\r\nContent-Length: 0\r\n\r\n",
		"/malformed": "NONSENSE\r\n\r\n",
		"/hundred":   "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 2\r\n\r\nok",
		"/length":    "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 12345\r\n\r\n",
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				line, err := r.ReadString('\n')
				for head := line; err == nil && head != "\r\n"; {
					head, err = r.ReadString('\n')
				}
				target := strings.TrimSuffix(strings.TrimSpace(line), " HTTP/1.1")
				_, target, _ = strings.Cut(target, " ")
				response := responses[target]
				if response == "" {
					response = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(line), line)
				}
				_, _ = io.WriteString(conn, response)
			}()
		}
	}()
	return port, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
