package embedded_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox/durable/embedded"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestCluster: the example's processes share a Temporal server, which is a process
// of its own. One is killed and one is told to stop while they follow a command;
// the others go on with it, with the viewer at its cursor.
func TestCluster(t *testing.T) {
	emulator := sandboxtest.New(t, nil)
	server := exec.Command(os.Args[0])
	folder := t.TempDir()
	server.Env = append(os.Environ(), envServer+"="+folder)
	address := startProcess(t, server)
	dir, key := t.TempDir(), filepath.Join(folder, embedded.KeyFile)
	program := filepath.Join(dir, "cluster")
	out, err := exec.Command("go", "build", "-o", program, "github.com/go-vercel/sandbox/durable/examples/cluster").CombinedOutput()
	require.NoError(t, err, "%s", out)
	start := func() (*exec.Cmd, string) {
		cmd := exec.Command(program, "-addr", "127.0.0.1:0", "-output", filepath.Join(dir, "output"))
		cmd.Env = append(append(os.Environ(), emulator.Environ()...), "TOKEN=secret", "TEMPORAL_ADDRESS="+address,
			"TEMPORAL_TLS_CLIENT_CERT_PATH="+key, "TEMPORAL_TLS_CLIENT_KEY_PATH="+key, "TEMPORAL_TLS_SERVER_CA_CERT_PATH="+key)
		return cmd, strings.TrimSuffix(startProcess(t, cmd), "/")
	}
	http.DefaultClient.Transport = bearer("secret")
	t.Cleanup(func() { http.DefaultClient.Transport = nil })
	one, at := start()
	var base atomic.Value // where the viewer and the user are
	base.Store(at)
	get := func() string { return base.Load().(string) }
	resp, err := http.Post(get()+"/start", "application/json", nil)
	require.NoError(t, err)
	id := resp.Header.Get("X-Workflow-Run-Id")
	resp.Body.Close()
	v := view(t.Context(), get, id)

	var want strings.Builder
	for i := range 40 {
		fmt.Fprintln(&want, i+1)
	}
	// During runs a command, and calls end while it is followed by the one process
	// that there is; then there is another one, and the rest of the command.
	during := func(n int, end func()) {
		command := fmt.Sprintf("cmd-%d", n)
		post(t, get, "/command", map[string]any{"runId": id, "command": held(command, 40), "key": command})
		require.Eventually(t, func() bool { return strings.Contains(v.wrote(command), "5\n") }, 5*time.Minute, 20*time.Millisecond)
		cmd, next := start()
		base.Store(next)
		began := time.Now()
		end()
		release(t, emulator, id, command)
		require.Eventually(t, func() bool { return v.done() == n }, 5*time.Minute, 20*time.Millisecond)
		t.Logf("%s: the end was seen %v after the process was ended", command, time.Since(began).Round(10*time.Millisecond))
		assert.Equal(t, want.String(), v.wrote(command))
		one = cmd
	}
	during(1, func() { require.NoError(t, one.Process.Kill()) })
	during(2, func() {
		require.NoError(t, one.Process.Signal(syscall.SIGTERM))
		assert.NoError(t, one.Wait(), "it ends as it should")
	})
	post(t, get, "/destroy", map[string]any{"runId": id})
	<-v.over

	// The processes have made one schedule for what is abandoned, which has run
	// once, and once more for each quarter of an hour that has passed meanwhile.
	pem, err := os.ReadFile(key)
	require.NoError(t, err)
	secure, err := embedded.TLS(pem)
	require.NoError(t, err)
	c, err := client.DialContext(t.Context(), client.Options{
		HostPort: address, Logger: quiet, ConnectionOptions: client.ConnectionOptions{TLS: secure, GetSystemInfoTimeout: time.Minute},
	})
	require.NoError(t, err)
	defer c.Close()
	var atOnce int
	require.Eventually(t, func() bool {
		d, err := c.ScheduleClient().GetHandle(t.Context(), "sandbox-sweep").Describe(t.Context())
		if err != nil || len(d.Info.RunningWorkflows) > 0 {
			return false // the server may be busy
		}
		atOnce = 0
		for _, action := range d.Info.RecentActions {
			if at := action.ScheduleTime; !at.Equal(at.Truncate(15 * time.Minute)) {
				atOnce++
			}
		}
		return atOnce > 0
	}, 5*time.Minute, 100*time.Millisecond)
	assert.Equal(t, 1, atOnce)
	for _, r := range emulator.Requests() {
		if r.Operation == sandboxtest.ListSandboxes {
			return
		}
	}
	assert.Fail(t, "nothing was swept")
}

// bearer is a transport whose requests have a token.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
