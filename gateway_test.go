package sandbox_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/require"
)

// gateway is a transport that a test puts between a client and the emulator. Its
// function may answer by itself, and is nil for none.
type gateway struct {
	next http.RoundTripper
	mu   sync.Mutex
	via  func(req *http.Request, next http.RoundTripper) (*http.Response, error)
}

func (g *gateway) RoundTrip(req *http.Request) (*http.Response, error) {
	g.mu.Lock()
	via := g.via
	g.mu.Unlock()
	if via == nil {
		return g.next.RoundTrip(req)
	}
	return via(req, g.next)
}

func (g *gateway) set(via func(*http.Request, http.RoundTripper) (*http.Response, error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.via = via
}

// behind returns a sandbox whose client goes through a gateway, and the same one
// reached directly.
func behind(t *testing.T, opts sandbox.ClientOptions, create *sandbox.CreateOptions) (*sandboxtest.Server, *gateway, *sandbox.Sandbox, *sandbox.Sandbox) {
	t.Helper()
	srv := sandboxtest.New(t, nil)
	gate := &gateway{next: transport(t)}
	opts.HTTPClient = &http.Client{Transport: gate}
	sb, err := clientOf(t, srv, opts).Create(t.Context(), create)
	require.NoError(t, err)
	direct, err := clientOf(t, srv, sandbox.ClientOptions{}).Get(t.Context(), sb.Name(), &sandbox.GetOptions{Resume: new(false)})
	require.NoError(t, err)
	return srv, gate, sb, direct
}

func isRun(req *http.Request) bool {
	return req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/cmd")
}
func isLogs(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/logs") }
func isLook(req *http.Request) bool {
	_, id, ok := strings.Cut(req.URL.Path, "/cmd/")
	return req.Method == http.MethodGet && ok && !strings.Contains(id, "/")
}

// fetch is a command's output by a handle that nothing stands before.
func fetch(t *testing.T, sb *sandbox.Sandbox, name string, args ...string) string {
	t.Helper()
	done, err := sb.RunCommand(t.Context(), name, args, nil)
	require.NoError(t, err)
	out, err := done.Output(t.Context())
	require.NoError(t, err)
	return out
}

// cleanCut is a body that ends without an error behind so many bytes.
func cleanCut(body io.ReadCloser, after int64) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(body, after), body}
}

// firstRecord is a body that ends without an error behind its first record.
func firstRecord(body io.ReadCloser) io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		line, err := bufio.NewReader(body).ReadString('\n')
		if err == nil {
			_, err = io.WriteString(pw, line)
		}
		pw.CloseWithError(err) // nil is io.EOF
		body.Close()
	}()
	return pr
}

const manyLines = `i=0; while [ $i -lt 600 ]; do echo "line $i"; i=$((i+1)); done`

func manyLinesText() string {
	var b strings.Builder
	for i := range 600 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// broken is a body that breaks.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
