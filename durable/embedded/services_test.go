package embedded_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/durable/embedded"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// held is a script that counts to n, and from the sixth number on only when it is
// released.
func held(file string, n int) string {
	return fmt.Sprintf(`for i in $(seq %d); do echo $i; [ $i != 5 ] || until [ -e %s ]; do sleep 0.05; done; sleep 0.02; done`, n, file)
}

// release lets a script of held in a session go on.
func release(t *testing.T, emulator *sandboxtest.Server, session, file string) {
	t.Helper()
	sb, err := emulator.Client().Get(t.Context(), "durable-"+session, nil)
	require.NoError(t, err)
	done, err := sb.RunCommand(t.Context(), "touch", []string{file}, nil)
	require.NoError(t, err)
	require.Zero(t, done.ExitCode)
}

// TestTwoServices: two processes share a server. One is killed while it follows a
// command; the other takes over, and a viewer goes on there at its cursor.
func TestTwoServices(t *testing.T) {
	emulator, config := startEmulator(t)
	srv, err := embedded.Start(t.Context(), nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, srv.Close()) }()
	config.Temporal, config.Key = srv.Address(), srv.Key()
	first, one := startService(t, config)
	resp, err := http.Post(one+"/start", "application/json", nil)
	require.NoError(t, err)
	id := resp.Header.Get("X-Workflow-Run-Id")
	resp.Body.Close()
	at := one
	var mu sync.Mutex
	base := func() string {
		mu.Lock()
		defer mu.Unlock()
		return at
	}
	v := view(t.Context(), base, id)
	post(t, base, "/command", map[string]any{"runId": id, "command": held("a", 30), "key": "a"})
	require.Eventually(t, func() bool { return strings.Contains(v.wrote("cmd-1"), "5\n") }, 5*time.Minute, 20*time.Millisecond)
	_, two := startService(t, config)
	mu.Lock()
	at = two
	mu.Unlock()
	killed := time.Now()
	require.NoError(t, first.Process.Kill())
	release(t, emulator, id, "a")
	require.Eventually(t, func() bool { return v.done() == 1 }, 5*time.Minute, 20*time.Millisecond)
	t.Logf("the end was seen %v after the kill", time.Since(killed).Round(10*time.Millisecond))
	var want strings.Builder
	for i := range 30 {
		fmt.Fprintln(&want, i+1)
	}
	assert.Equal(t, want.String(), v.output["cmd-1"])
	post(t, base, "/destroy", map[string]any{"runId": id})
	<-v.over
}
