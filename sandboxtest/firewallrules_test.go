package sandboxtest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/proxy"
	"github.com/go-vercel/sandbox/sandboxtest"
)

const brokered = "the-secret-that-no-sandbox-sees"

// startNamed starts a server whose sandboxes reach servers of the test by name.
func startNamed(t *testing.T, opts sandboxtest.Options) *raw {
	t.Helper()
	srv, c := start(t, &opts)
	testkit.Policies(t, srv)
	return c
}

// echo describes the request that it received.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // the body received is reported
	fmt.Fprintf(w, "%s %s host=%s auth=%q extra=%q body=%q", r.Method, r.URL.RequestURI(), r.Host, r.Header.Get("Authorization"), r.Header["X-Extra"], body)
}

func transform(headers obj) []obj { return []obj{{"headers": headers}} }

// TestFirewallRules: the effect of rules on requests of curl.
func TestFirewallRules(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "curl")
	server := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(server.Close)
	c := startNamed(t, sandboxtest.Options{Names: map[string]string{"api.example.com": server.URL, "www.example.com": server.URL}})
	sess := c.create(obj{"networkPolicy": obj{"allow": obj{
		"api.example.com": []obj{
			{"match": obj{"path": obj{"startsWith": "/v1/"}, "method": []string{"GET", "PUT"}}, "transform": transform(obj{"authorization": "Bearer one", "x-extra": "1"})},
			{"match": obj{"path": obj{"exact": "/v1/post"}}, "transform": transform(obj{"authorization": "Bearer two"})},
			{"match": obj{"queryString": []obj{{"key": obj{"exact": "a"}, "value": obj{"startsWith": "x"}}, {"key": obj{"exact": "b"}}}}, "transform": transform(obj{"authorization": "query"})},
			{"match": obj{"headers": []obj{{"key": obj{"exact": "X-Key"}, "value": obj{"regex": "^k[0-9]+$"}}}}, "transform": transform(obj{"authorization": "header"})},
			{"match": obj{"path": obj{"exact": "/blocked"}}, "response": obj{"statusCode": 451, "headers": obj{"x-why": "policy"}, "body": "not from here", "contentType": "text/plain"}},
		},
		"*.example.com": []obj{{"transform": transform(obj{"authorization": "wildcard"})}},
		"*":             []obj{},
	}}}).Session.ID
	curl := func(args ...string) string {
		t.Helper()
		res := c.run(sess, obj{"command": "curl", "args": append([]string{"-sS"}, args...)})
		return res.stdout + strings.TrimSpace(res.stderr)
	}
	rows := []struct {
		args []string
		want string
	}{
		{[]string{"/v1/get"}, `GET /v1/get host=api.example.com auth="Bearer one" extra=["1"] body=""`},
		{[]string{"/v1/get", "-H", "Authorization: mine", "-H", "X-Extra: mine"}, `GET /v1/get host=api.example.com auth="Bearer one" extra=["1"] body=""`},
		{[]string{"/v1/put", "-X", "PUT", "-d", "data"}, `PUT /v1/put host=api.example.com auth="Bearer one" extra=["1"] body="data"`},
		{[]string{"/v1/post", "-X", "GET"}, `GET /v1/post host=api.example.com auth="Bearer one" extra=["1"] body=""`},    // the first that matches
		{[]string{"/v1/post", "-d", "data"}, `POST /v1/post host=api.example.com auth="Bearer two" extra=[] body="data"`}, // the method does not match the first
		{[]string{"/v1/other", "-d", "data"}, `POST /v1/other host=api.example.com auth="" extra=[] body="data"`},         // no rule matches; the request is sent unchanged
		{[]string{"/v2?a=xy&b="}, `GET /v2?a=xy&b= host=api.example.com auth="query" extra=[] body=""`},                   // both parameters
		{[]string{"/v2?a=xy"}, `GET /v2?a=xy host=api.example.com auth="" extra=[] body=""`},                              // one of them
		{[]string{"/v2", "-H", "x-key: k12"}, `GET /v2 host=api.example.com auth="header" extra=[] body=""`},              // header names are case-insensitive
		{[]string{"/v2", "-H", "x-key: k"}, `GET /v2 host=api.example.com auth="" extra=[] body=""`},                      // the value does not match
		{[]string{"/blocked"}, "not from here"}, //
		{[]string{"/v1/get", "--http1.1"}, `GET /v1/get host=api.example.com auth="Bearer one" extra=["1"] body=""`},                          //
		{[]string{"/a%2Fb/%20?q=%2F", "-H", "Authorization: mine"}, `GET /a%2Fb/%20?q=%2F host=api.example.com auth="mine" extra=[] body=""`}, // the path is kept as written
		{[]string{"/v2?q=100%&a=1;b=%zz"}, `GET /v2?q=100%&a=1;b=%zz host=api.example.com auth="" extra=[] body=""`},                          // so is an invalid query
	}
	var all []string
	for _, x := range rows {
		all = append(append(all, "--next", "-sS", "-w", "\n", "https://api.example.com"+x.args[0]), x.args[1:]...)
	}
	responses := strings.Split(curl(all...), "\n")
	require.Len(t, responses, len(rows)+1)
	for i, x := range rows {
		assert.Equal(t, x.want, responses[i], "%v", x.args)
	}
	out := curl("-i", "-w", "%{http_code} %{content_type} %{http_version}", "https://api.example.com/blocked", "--next", "-sS", "https://www.example.com/")
	for _, want := range []string{"x-why: policy", "451 text/plain 2", `auth="wildcard"`} {
		assert.Contains(t, out, want)
	}

	// A policy with only headers, in the older form, set while the session runs.
	c.call("POST", session(sess)+"/network-policy", obj{"mode": "custom", "allowedDomains": []string{"api.example.com"},
		"injectionRules": []obj{{"domain": "api.example.com", "headers": obj{"Authorization": "injected"}}}}, 200, nil)
	assert.Contains(t, curl("https://api.example.com/v1/get"), `auth="injected" extra=[]`)
	assert.NotContains(t, curl("https://www.example.com/"), "auth")

	// Later sessions have the policy, too, with the header values.
	c.stop(sess)
	sess = c.get(c.sandboxOf(sess), "&resume=true", 200).Session.ID
	assert.Contains(t, curl("https://api.example.com/v1/get"), `auth="injected" extra=[]`)
}

// sandboxOf returns the name of the sandbox of a session.
func (c *raw) sandboxOf(sess string) string {
	c.t.Helper()
	var out struct {
		Session struct {
			SourceSandboxName string `json:"sourceSandboxName"`
		} `json:"session"`
	}
	c.call("GET", session(sess), nil, 200, &out)
	return out.Session.SourceSandboxName
}

// TestCredentialsAreBrokered covers the whole path: a program in a sandbox, the policy,
// our handler at the forward URL, our forwarder, and the server.
func TestCredentialsAreBrokered(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "curl")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+brokered {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Header.Set("Authorization", "(right)")
		echo(w, r)
	}))
	t.Cleanup(server.Close)
	// The forwarder finds the server by a name that this machine resolves.
	api := fmt.Sprint("localhost:", port(t, server.URL))
	tlsConfig := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	tlsConfig.ServerName = "example.com" // the name in its certificate
	forwarder, err := proxy.NewForwarder(&proxy.ForwarderOptions{
		Rules: []proxy.Rule{{
			Hosts: []string{api}, Header: "Authorization", Placeholder: "PLACEHOLDER", Secret: proxy.StaticSecret(brokered),
		}},
		AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128")},
		TLSConfig:    tlsConfig,
	})
	require.NoError(t, err)
	t.Cleanup(forwarder.CloseIdleConnections)

	const forwardURL = "https://broker.example.net/hook"
	var handler http.Handler
	broker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(broker.Close)
	c := startNamed(t, sandboxtest.Options{Names: map[string]string{"broker.example.net": broker.URL}})
	authority, err := c.srv.Authority()
	require.NoError(t, err)
	metas := make(chan proxy.Meta, 10)
	handler = proxy.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		meta, _ := proxy.FromContext(r.Context())
		metas <- meta
		forwarder.ServeHTTP(w, r)
	}), &proxy.Options{HTTPClient: authority.Client(), Audience: []string{forwardURL}})

	policy := func(url string) obj {
		return obj{"allow": obj{"localhost": []obj{{"match": obj{"path": obj{"startsWith": "/secure/"}}, "forwardURL": url}}}}
	}
	made := c.create(obj{"name": "agent", "projectId": "prj", "networkPolicy": policy(forwardURL)})
	sess := made.Session.ID
	curl := func(token string) string {
		res := c.run(sess, obj{"command": "curl", "args": []string{"-sS", "-w", "%{http_code}", "--connect-to", "::192.0.2.1:", "-H", "Authorization: Bearer " + token,
			"-d", "data", "https://" + api + "/secure/thing?x=1"}})
		return res.stdout + res.stderr
	}
	assert.Equal(t, fmt.Sprintf(`POST /secure/thing?x=1 host=%s auth="(right)" extra=[] body="data"200`, api), curl("PLACEHOLDER"))
	meta := <-metas
	assert.Equal(t, sess, meta.SandboxID)
	assert.Equal(t, "agent", meta.SandboxName)
	assert.Equal(t, "prj", meta.ProjectID)
	assert.Equal(t, "401", curl("a guess"))
	<-metas
	assert.NotContains(t, c.sh(sess, "env; cat /proc/self/environ; ls -R /run/sandbox; cat /run/sandbox/ca.pem"), brokered)

	// The broker serves only the firewall, and accepts no token for another
	// URL.
	resp, err := http.Post(broker.URL+"/hook/secure/thing", "text/plain", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 403, resp.StatusCode)
	c.call("POST", session(sess)+"/network-policy", policy("https://broker.example.net/other"), 200, nil)
	assert.Equal(t, "Forbidden403", strings.ReplaceAll(curl("PLACEHOLDER"), "\n", ""))
	assert.Empty(t, metas)
}

// getEnv contains the URL for TestGoClient.
const getEnv = "SANDBOXTEST_GET"

// TestGoClient is a Go program that runs in a sandbox.
func TestGoClient(t *testing.T) {
	t.Parallel()
	url := os.Getenv(getEnv)
	if url == "" {
		return
	}
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	fmt.Printf("%s\n", body)
	http.DefaultClient.CloseIdleConnections()
}

// TestFirewallClients: common programs trust the firewall's certificate when it
// terminates TLS.
func TestFirewallClients(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /npm/left-pad", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"name":"left-pad","dist-tags":{"latest":"9.8.7"},"versions":{"9.8.7":{"name":"left-pad","version":"9.8.7","dist":{"tarball":"https://registry.example.com/x.tgz"}}}}`)
	})
	mux.HandleFunc("GET /simple/left-pad/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!DOCTYPE html><html><body><a href="left_pad-9.8.7-py3-none-any.whl">left_pad-9.8.7-py3-none-any.whl</a></body></html>`)
	})
	mux.HandleFunc("GET /redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://evil.test/", http.StatusFound)
	})
	mux.HandleFunc("GET /socket", func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		kind, data, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		_ = conn.Write(r.Context(), kind, append([]byte("echo "), data...))
		_ = conn.Close(websocket.StatusNormalClosure, "")
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "auth "+r.Header.Get("Authorization"))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	names := map[string]string{"registry.example.com": server.URL, "evil.test": server.URL}
	if needs.Slow() {
		names["git.example.com"], _ = gitServer(t, "127.0.0.1")
	}
	c := startNamed(t, sandboxtest.Options{Names: names})
	rule := []obj{{"transform": transform(obj{"authorization": "Bearer " + brokered})}}
	sess := c.create(obj{"networkPolicy": obj{"allow": obj{
		"registry.example.com": rule, "git.example.com": []obj{{"transform": transform(obj{"x-extra": "1"})}},
	}}}).Session.ID
	const want = "auth Bearer " + brokered
	rows := []struct{ program, script, want string }{
		{"python3", `python3 -c 'import urllib.request as u; print(u.urlopen("https://registry.example.com/").read().decode())'`, want},
		{"node", `node -e 'fetch("https://registry.example.com/").then((r) => r.text()).then(console.log)'`, want},
		{"curl", "curl -sS https://registry.example.com/", want},
		{"curl", "curl -sS --http2 -w ' over %{http_version}' https://registry.example.com/", want + " over 2"},
		{"curl", "curl -sSL https://registry.example.com/redirect 2>&1 | grep -o 'Could not resolve host: evil.test'", "Could not resolve host: evil.test"},
		{"wget", "wget -qO- https://registry.example.com/", want},
		{"openssl", "openssl s_client -connect registry.example.com:443 -servername registry.example.com -verify_return_error </dev/null 2>/dev/null | grep -o 'Verify return code: 0' | head -1", "Verify return code: 0"},
		{"python3", `env -u SSL_CERT_FILE python3 -c 'import urllib.request as u; print(u.urlopen("https://registry.example.com/").read().decode())'`, want},
		{"npm", "npm view left-pad version --registry https://registry.example.com/npm/ --cache /tmp/npm --no-update-notifier 2>/dev/null", "9.8.7"},
		{"pip", "python3 -m pip --disable-pip-version-check index versions left-pad --index-url https://registry.example.com/simple 2>/dev/null | head -1", "left-pad (9.8.7)"},
		{"git", "git clone -q https://git.example.com/repo/.git cloned && cat cloned/file", "second"},
		{"/tmp/go-client", getEnv + "=https://registry.example.com/ /tmp/go-client -test.run='^TestGoClient$' | head -1", want},
		{"node", `node --input-type=module -e '
			import http2 from "node:http2";
			const session = http2.connect("https://registry.example.com");
			for (const authority of ["registry.example.com", "evil.test", "git.example.com"])
				await new Promise((done) => session.request({ ":path": "/", ":authority": authority }).on("response", (h) => console.log(authority, h[":status"])).on("close", done).resume());
			session.close();'`, "registry.example.com 200\nevil.test 421\ngit.example.com 421"},
		{"node", `node --input-type=module -e '
			import tls from "node:tls";
			const s = tls.connect({ host: "registry.example.com", port: 443, servername: "registry.example.com", ALPNProtocols: ["http/1.1"] }, () => {
				s.write("GET /socket HTTP/1.1\r\nHost: registry.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
			});
			let all = Buffer.alloc(0), sent = false;
			s.on("data", (d) => {
				all = Buffer.concat([all, d]);
				if (!sent && all.includes("\r\n\r\n")) { sent = true; s.write(Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69])); }
				const at = all.indexOf("echo hi");
				if (at >= 0) { console.log(all.subarray(at, at + 7).toString()); s.destroy(); }
			});'`, "echo hi"},
	}
	if needs.Slow() {
		self, err := os.ReadFile(os.Args[0])
		require.NoError(t, err)
		var archive bytes.Buffer
		zw, err := gzip.NewWriterLevel(&archive, gzip.NoCompression)
		require.NoError(t, err)
		_, err = zw.Write(tarball(t, entry{name: "tmp/go-client", content: string(self), mode: 0o755}))
		require.NoError(t, err)
		require.NoError(t, zw.Close())
		status, body := c.upload(sess, "/", &archive)
		require.Equal(t, 200, status, body)
	} else {
		rows = rows[:2] // programs that find the certificate by their own variables
	}
	for _, x := range rows {
		if res := c.run(sess, obj{"command": "sh", "args": []string{"-c", "command -v " + x.program}}); res.code != 0 {
			t.Logf("no %s", x.program)
			continue
		}
		res := c.run(sess, obj{"command": "sh", "args": []string{"-c", x.script}})
		assert.Equal(t, x.want, strings.TrimSpace(res.stdout), "%s: %s", x.script, res.stderr)
	}
}

// TestSecretsOfPoliciesAreKept: header values, which no response contains, are
// saved with the state, whose file only its owner can read.
func TestSecretsOfPoliciesAreKept(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "curl")
	server := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(server.Close)
	opts := sandboxtest.Options{Dir: filepath.Join(t.TempDir(), "state"), Names: map[string]string{"api.example.com": server.URL}}
	srv, err := sandboxtest.NewServer(&opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, srv.Close()) })
	testkit.Policies(t, srv)
	c := newRaw(t, srv)
	made := c.create(obj{"name": "one", "networkPolicy": obj{"allow": obj{"api.example.com": []obj{{"transform": transform(obj{"authorization": brokered})}}}}})
	response, err := json.Marshal(made)
	require.NoError(t, err)
	assert.NotContains(t, string(response), brokered)
	c.stop(made.Session.ID)
	require.NoError(t, srv.Close())
	info, err := os.Stat(filepath.Join(opts.Dir, "authority.pem"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	c = startNamed(t, opts)
	res := c.run(c.get("one", "&resume=true", 200).Session.ID, obj{"command": "curl", "args": []string{"-sS", "https://api.example.com/"}})
	assert.Contains(t, res.stdout, fmt.Sprintf("auth=%q", brokered), res.stderr)
}
