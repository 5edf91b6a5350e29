package devserver_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestCluster: the example's processes share a Temporal server that runs in another
// process. One is killed and one is told to stop while they follow a command. The others
// continue the command, and the viewer continues at its cursor.
func TestCluster(t *testing.T) {
	emulator := sandboxtest.New(t, nil)
	_, temporal := startServer(t, serverConfig{Dir: t.TempDir()})
	dir := t.TempDir()
	program := build(t, "examples/cluster")
	start := func() (*exec.Cmd, string) {
		cmd := exec.Command(program, "-addr", "127.0.0.1:0", "-output", filepath.Join(dir, "output"))
		cmd.Env = slices.Concat(os.Environ(), emulator.Environ(), temporal, []string{"TOKEN=secret"})
		return cmd, strings.TrimSuffix(startProcess(t, cmd), "/")
	}
	authorize(t, "secret")
	one, at := start()
	var base atomic.Value // the address that the viewer and the user connect to
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
	// during runs a command, calls end while a single process follows the command, and
	// starts another process for the rest.
	during := func(n int, end func()) {
		command := fmt.Sprintf("cmd-%d", n)
		post(t, get, "/command", map[string]any{"runId": id, "command": heldScript(command, 40), "key": command})
		require.Eventually(t, func() bool { return strings.Contains(v.wrote(command), "5\n") }, 5*time.Minute, 20*time.Millisecond)
		cmd, next := start()
		base.Store(next)
		began := time.Now()
		end()
		release(t, emulator, id, command)
		require.Eventually(t, func() bool { return v.endedCommands() == n }, 5*time.Minute, 20*time.Millisecond)
		t.Logf("%s: the end was seen %v after the process was ended", command, time.Since(began).Round(10*time.Millisecond))
		assert.Equal(t, want.String(), v.wrote(command))
		one = cmd
	}
	during(1, func() { require.NoError(t, one.Process.Kill()) })
	during(2, func() {
		require.NoError(t, one.Process.Signal(syscall.SIGTERM))
		assert.NoError(t, one.Wait(), "the process ends without an error")
	})
	post(t, get, "/destroy", map[string]any{"runId": id})
	<-v.over

	// The processes have made one schedule for sweeping. It has run once, and once for each
	// quarter of an hour that has passed.
	c, err := temporal.dial(t.Context())
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

// heldScript returns a script that counts to n, but waits for release after five.
func heldScript(file string, n int) string {
	return fmt.Sprintf(`for i in $(seq %d); do echo $i; [ $i != 5 ] || until [ -e %s ]; do sleep 0.05; done; sleep 0.02; done`, n, file)
}

// release lets a script of heldScript continue.
func release(t *testing.T, emulator *sandboxtest.Server, session, file string) {
	t.Helper()
	sb, err := emulator.Client().Get(t.Context(), "durable-"+session, nil)
	require.NoError(t, err)
	done, err := sb.RunCommand(t.Context(), "touch", []string{file}, nil)
	require.NoError(t, err)
	require.Zero(t, done.ExitCode)
}

// build builds a program of module durable.
func build(t *testing.T, pkg string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), filepath.Base(pkg))
	out, err := exec.Command("go", "build", "-o", file, "github.com/go-vercel/sandbox/durable/"+pkg).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return file
}

// authorize sends a token with all requests of http.DefaultClient until the test ends.
func authorize(t *testing.T, token string) {
	http.DefaultClient.Transport = bearer(token)
	t.Cleanup(func() { http.DefaultClient.Transport = nil })
}

// bearer is a transport that adds a token to its requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
