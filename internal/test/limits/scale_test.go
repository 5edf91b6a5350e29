package limits_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/canned"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/api"
)

// TestScale follows the commands of many sandboxes at once. The memory for a sandbox does
// not grow with their number. It includes the memory of the server, which runs in this
// process and needs as much as the client. tools/perf measures many more sandboxes.
//
// It does not run in parallel with other tests, because it counts their goroutines, too.
func TestScale(t *testing.T) {
	few, many := followCommands(t, 20), followCommands(t, 220)
	goroutines := (many.goroutines - few.goroutines) / 200
	memory := (many.memory - few.memory) / 200
	t.Logf("for each sandbox: %d goroutines, %.1f KB; %d connections in all", goroutines, float64(memory)/1024, many.connections)
	assert.LessOrEqual(t, goroutines, 5)
	assert.Less(t, memory, 64<<10)
	assert.Less(t, many.connections, int64(20))
}

// resources are the figures that followCommands measures.
type resources struct {
	goroutines, memory int
	connections        int64
}

// followCommands follows n commands. It returns the resources in use after each has printed its
// first line.
func followCommands(t *testing.T, n int) (f resources) {
	const line = `{"data":"a line\n","stream":"stdout"}` + "\n"
	var connections atomic.Int64
	proceed := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/logs"):
			w.Header().Set("Content-Type", "application/x-ndjson")
			_, _ = io.WriteString(w, line)
			w.(http.Flusher).Flush()
			select {
			case <-proceed:
			case <-r.Context().Done():
			}
			_, _ = io.WriteString(w, line)
		case strings.HasSuffix(r.URL.Path, "/cmd"):
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, canned.Command, "null")
		case strings.Contains(r.URL.Path, "/cmd/"):
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, canned.Command, "0")
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"sandbox":`+canned.Sandbox+`,"session":`+canned.Session+`,"routes":[]}`, 0)
		}
	}))
	srv.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		connections.Add(1)
		return ctx
	}
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	tr := api.DefaultTransport()
	tr.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	defer tr.CloseIdleConnections()
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: srv.URL, HTTPClient: &http.Client{Transport: tr},
		Credentials: auth.Static(auth.Credentials{Token: "any", TeamID: "team", ProjectID: "project"}),
	})
	require.NoError(t, err)

	var first, all sync.WaitGroup
	first.Add(n)
	for range n {
		sb, err := c.Create(t.Context(), nil)
		require.NoError(t, err)
		cmd, err := sb.StartCommand(t.Context(), "print", nil, nil)
		require.NoError(t, err)
		all.Go(func() {
			once := sync.OnceFunc(first.Done)
			defer once()
			lines := 0
			for entry, err := range cmd.Logs(t.Context()) {
				if !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, "a line\n", entry.Data)
				lines++
				once()
			}
			assert.Equal(t, 2, lines)
		})
	}
	first.Wait()
	f.goroutines = runtime.NumGoroutine()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f.memory, f.connections = int(m.HeapAlloc+m.StackInuse), connections.Load()
	close(proceed)
	all.Wait()
	return f
}
