package pool_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/pool"
	"github.com/go-vercel/sandbox/sandboxtest"
)

const (
	// workerEnv turns the test binary into a process that takes sandboxes.
	workerEnv = "SANDBOX_POOL_WORKER"
	// versionEnv is the version of that process's pool.
	versionEnv = "SANDBOX_POOL_VERSION"
	// sizeEnv is the size of that process's pool.
	sizeEnv = "SANDBOX_POOL_SIZE"
	// takesEnv is the total number of takes in TestKilledPools.
	takesEnv = "SANDBOX_POOL_TAKES"
)

// lease is longer than any delay of a busy machine.
const lease = 16 * time.Second

// sharedOptions returns the options of all processes' pools. Reset removes the record of
// takes.
func sharedOptions(stopped bool, version string, size int) pool.Options {
	return pool.Options{
		Name: "shared", Version: version, Size: size,
		Warm: func(ctx context.Context, sb *sandbox.Sandbox) error {
			return sb.FS().WriteFile(ctx, "version", []byte(version), 0o644)
		}, Lease: lease, Stopped: stopped,
		Reset: func(ctx context.Context, sb *sandbox.Sandbox) error { return sb.FS().Remove(ctx, "takes") },
	}
}

// worker takes sandboxes until its input ends, in one goroutine more than the pool has
// sandboxes ready. Each take adds a line to a record in the sandbox, which shows whether
// it is the only one. worker prints a line for each take, with its number of requests.
func worker() int {
	c, err := sandbox.NewClient(&sandbox.ClientOptions{HTTPClient: &http.Client{Transport: countingTransport{http.DefaultTransport}}})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	version := os.Getenv(versionEnv)
	size, err := strconv.Atoi(os.Getenv(sizeEnv))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	p, err := pool.New(context.Background(), c, sharedOptions(os.Getenv(workerEnv) == "stopped", version, size))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var all sync.WaitGroup
	for i := range size + 1 {
		all.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				takeOnce(ctx, p, version, n%2 == 0)
			}
		})
	}
	all.Wait()
	if err := p.Close(context.Background()); err != nil {
		fmt.Println("error", err)
	}
	return 0
}

func takeOnce(ctx context.Context, p *pool.Pool, version string, reuse bool) {
	counted, n := withCounter(ctx)
	box, err := p.Take(counted, "worker")
	if err != nil {
		if ctx.Err() == nil {
			fmt.Println("error take:", err)
		}
		return
	}
	requests := n.Load()
	ctx = context.WithoutCancel(ctx)
	record := func(what string) {
		done, err := box.CurrentSession().RunCommand(ctx, "sh", []string{"-c", what + "; wc -l < takes; cat version"}, nil)
		if err != nil {
			fmt.Println("error record:", err)
			return
		}
		if out, err := done.Stdout(ctx); err != nil || strings.Join(strings.Fields(out), " ") != "1 "+version {
			fmt.Println("taken twice, or of another version", box.Name(), strings.TrimSpace(out), err)
		}
	}
	record("echo taken >> takes")
	record("true")
	fmt.Println("taken", requests)
	if reuse {
		err = box.Return(ctx)
	} else {
		err = box.Delete(ctx)
	}
	if err != nil {
		fmt.Println("error release:", err)
	}
}

// TestKilledPools: three processes with several goroutines each take sandboxes. Now and
// then, if there were takes, one process is killed and replaced; every third kill
// deploys another version. The records in the sandboxes show that none is taken twice or
// by another version. None remains at the end, and the median take needs at most two
// requests.
func TestKilledPools(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	needed, size, pause := 100, 6, time.Second
	if !needs.Slow() {
		needed, size, pause = 8, 1, 200*time.Millisecond
	}
	if v := os.Getenv(takesEnv); v != "" {
		var err error
		needed, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	for name, stopped := range map[string]bool{"running": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if stopped {
				needs.Long(t, "each take starts and saves a machine")
			}
			srv := emulator(t)
			var mu sync.Mutex
			var requests []int
			var wrong []string
			enough := make(chan struct{})
			listen := func(out io.Reader) {
				for lines := bufio.NewScanner(out); lines.Scan(); {
					mu.Lock()
					if n, ok := strings.CutPrefix(lines.Text(), "taken "); ok {
						if v, err := strconv.Atoi(n); err == nil {
							requests = append(requests, v)
						}
						if len(requests) == needed {
							close(enough)
						}
					} else {
						wrong = append(wrong, lines.Text())
					}
					mu.Unlock()
				}
			}
			workers := make([]*process, 3)
			for i := range workers {
				workers[i] = startWorker(t, srv, name, 0, size, listen)
			}
			kills, seen := 0, 0
			for kill := time.NewTicker(pause); ; {
				select {
				case <-enough:
				case <-kill.C:
					mu.Lock()
					taken := len(requests)
					mu.Unlock()
					if taken < seen+len(workers) {
						continue // a busy machine: let the processes take some first
					}
					seen = taken
					i := kills % len(workers)
					kills++
					workers[i].kill(t)
					workers[i] = startWorker(t, srv, name, (kills+2)/len(workers), size, listen)
					continue
				}
				kill.Stop()
				break
			}
			for _, w := range workers {
				w.closeInput(t)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			began := time.Now()
			srv.Advance(lease) // what killed processes had taken times out
			p, err := pool.New(ctx, srv.Client(), sharedOptions(stopped, "drains", size))
			require.NoError(t, err)
			require.NoError(t, p.Drain(ctx))
			left, err := sandbox.Collect(srv.Client().List(ctx, nil))
			require.NoError(t, err)
			assert.Empty(t, left)
			assert.Empty(t, wrong)
			slices.Sort(requests)
			median := requests[len(requests)/2]
			assert.LessOrEqual(t, median, 2)
			t.Logf("%d takes, %d created, %d kills, median %d requests, most %d; drained in %v", len(requests),
				testkit.Count(srv, sandboxtest.CreateSandbox), kills, median, requests[len(requests)-1], time.Since(began).Round(time.Millisecond))
		})
	}
}

// process is a worker process.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	read chan struct{} // closed when its output has been read
}

func startWorker(t *testing.T, srv *sandboxtest.Server, mode string, version, size int, listen func(io.Reader)) *process {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), srv.Environ()...), workerEnv+"="+mode, versionEnv+"="+strconv.Itoa(version), sizeEnv+"="+strconv.Itoa(size))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	w := &process{cmd, in, make(chan struct{})}
	go func() {
		defer close(w.read)
		listen(out)
	}()
	return w
}

func (w *process) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, w.cmd.Process.Kill())
	<-w.read
	_ = w.cmd.Wait()
}

func (w *process) closeInput(t *testing.T) {
	t.Helper()
	require.NoError(t, w.in.Close())
	<-w.read
	require.NoError(t, w.cmd.Wait())
}
