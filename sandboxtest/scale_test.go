package sandboxtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// leftovers returns the mounts of emulators, and their folders in temp.
func leftovers(t *testing.T, temp string) (out []string) {
	for _, pattern := range []string{"sandbox-host-*", "sandbox-logs-*"} {
		found, err := filepath.Glob(filepath.Join(temp, pattern))
		require.NoError(t, err)
		out = append(out, found...)
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err == nil {
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, "sandbox-host-") {
				out = append(out, line)
			}
		}
	}
	return out
}

// sandboxesEnv is the number of sandboxes that TestManySandboxes runs at once.
const sandboxesEnv = "SANDBOXTEST_SANDBOXES"

func TestManySandboxes(t *testing.T) {
	needs.Long(t, "500 sandboxes take a while")
	n := 500
	if text := os.Getenv(sandboxesEnv); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	require.Empty(t, leftovers(t, temp))
	srv, err := sandboxtest.NewServer(nil)
	require.NoError(t, err)
	t.Logf("%s mode", srv.Mode())
	c := newRaw(t, srv)
	sessions := make([]string, n)
	each := func(f func(i int)) {
		var wg sync.WaitGroup
		slots := make(chan struct{}, 16)
		for i := range n {
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				f(i)
			})
		}
		wg.Wait()
	}
	mark := func(i int) string { return fmt.Sprintf("%d%d.5", 70_000+i, os.Getpid()) }
	begin := time.Now()
	each(func(i int) {
		sessions[i] = c.create(obj{"name": fmt.Sprintf("box-%d", i)}).Session.ID
		c.sh(sessions[i], "echo "+strconv.Itoa(i)+" > file")
		c.detach(sessions[i], obj{"command": "sleep", "args": []string{mark(i)}})
	})
	t.Logf("%d sandboxes, each with a file and a process, after %v", n, time.Since(begin))
	// All are running at once, each with its own files.
	each(func(i int) {
		assert.Equal(t, strconv.Itoa(i)+"\n", c.sh(sessions[i], "cat file"))
	})
	if runtime.GOOS == "linux" {
		for _, i := range []int{0, n / 2, n - 1} {
			assertRuns(t, mark(i))
		}
	}
	each(func(i int) {
		if i%5 == 0 {
			assert.NotNil(t, c.stop(sessions[i]).Snapshot)
		}
	})
	require.NoError(t, srv.Close())
	assert.Empty(t, leftovers(t, temp))
	if runtime.GOOS == "linux" {
		for i := range n {
			if !assert.False(t, alive(t, mark(i))) {
				break
			}
		}
	}
}

// BenchmarkSnapshot should take about as long for either size in namespace
// mode.
func BenchmarkSnapshot(b *testing.B) {
	for _, size := range []int{1, 1024} {
		b.Run(fmt.Sprintf("%dMB", size), func(b *testing.B) {
			srv, c := start(b, nil)
			if srv.Mode() != sandboxtest.Namespace {
				needs.Other(b, "snapshots are copies in folder mode")
			}
			c.create(obj{"name": "one"})
			for b.Loop() {
				b.StopTimer()
				sess := c.get("one", "&resume=true", 200).Session.ID
				c.sh(sess, fmt.Sprintf("head -c %dM /dev/zero > file", size))
				b.StartTimer()
				c.stop(sess)
			}
		})
	}
}

// BenchmarkChange measures a change that is saved before its response. Each save writes the
// state of all sandboxes.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			_, c := start(b, &sandboxtest.Options{Mode: sandboxtest.Folder, Dir: b.TempDir()})
			var makers sync.WaitGroup
			for first := range 10 {
				makers.Go(func() {
					for i := first; i < n; i += 10 {
						c.create(obj{"name": fmt.Sprintf("box-%d", i)})
					}
				})
			}
			makers.Wait()
			for i := 0; b.Loop(); i++ {
				c.call("PATCH", "/v2/sandboxes/box-0?projectId=prj", obj{"tags": obj{"n": strconv.Itoa(i)}}, 200, nil)
			}
		})
	}
}
