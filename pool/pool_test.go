package pool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/pool"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(worker()) // a process that a test kills
	}
	testkit.Main(m)
}

// patience is how long a test waits before it fails.
const patience = 2 * time.Minute

func emulator(t *testing.T) *sandboxtest.Server {
	t.Helper()
	return sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
}

// openPool starts a pool and drains it at the end of the test. No sandbox may remain
// then.
func openPool(t *testing.T, c *sandbox.Client, opts pool.Options) *pool.Pool {
	t.Helper()
	p, err := pool.New(t.Context(), c, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		assert.NoError(t, p.Drain(ctx))
		left, err := sandbox.Collect(c.List(ctx, nil))
		assert.NoError(t, err)
		assert.Empty(t, left)
	})
	return p
}

func waitReady(t *testing.T, p *pool.Pool, n int) {
	t.Helper()
	require.Eventually(t, func() bool { s := p.Stats(); return s.Ready == n && s.Making == 0 }, patience, 5*time.Millisecond, "%d ready", n)
}

// countingTransport counts requests in the counter of their context.
type countingTransport struct{ next http.RoundTripper }

type counterKey struct{}

func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if n, ok := r.Context().Value(counterKey{}).(*atomic.Int64); ok {
		n.Add(1)
	}
	return c.next.RoundTrip(r)
}

func withCounter(ctx context.Context) (context.Context, *atomic.Int64) {
	n := new(atomic.Int64)
	return context.WithValue(ctx, counterKey{}, n), n
}

// TestTake: Take needs one request for a running sandbox and two for a stopped one. The
// files of Warm are there, and the pool is refilled.
func TestTake(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	for name, stopped := range map[string]bool{"running": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := emulator(t)
			events := &testkit.Events{}
			c := testkit.Client(t, srv, sandbox.ClientOptions{Observer: events, HTTPClient: &http.Client{Transport: countingTransport{testkit.Transport(t)}}})
			p := openPool(t, c, pool.Options{
				Name: "ready", Version: "1", Size: 2, Stopped: stopped,
				Warm: func(ctx context.Context, sb *sandbox.Sandbox) error {
					return sb.WriteFiles(ctx, []sandbox.File{{Path: "tool", Content: []byte("warm")}}, nil)
				},
			})
			waitReady(t, p, 2)
			seen := map[string]bool{}
			for range 2 {
				ctx, n := withCounter(t.Context())
				box, err := p.Take(ctx, "key")
				require.NoError(t, err)
				requests := int64(1)
				if stopped {
					requests = 2
				}
				assert.Equal(t, requests, n.Load())
				assert.Equal(t, "key", box.Key)
				assert.False(t, seen[box.Name()], "taken twice")
				seen[box.Name()] = true
				content, err := box.FS().ReadFile(t.Context(), "tool")
				require.NoError(t, err)
				assert.Equal(t, "warm", string(content))
				assert.Equal(t, 1, p.Stats().Taken)
				require.NoError(t, box.Delete(t.Context()))
				require.Error(t, box.Delete(t.Context()), "already deleted")
				waitReady(t, p, 2)
			}
			counts := map[string]int{}
			for _, e := range events.Ended("pool") {
				if seen[e.Sandbox] {
					counts[e.Operation+" "+e.Outcome]++
				}
			}
			assert.Equal(t, map[string]int{"made ok": 2, "taken ok": 2, "deleted ok": 2}, counts)
		})
	}
}

// TestMax: Take creates a sandbox if none is ready. At Max it waits until one is returned.
func TestMax(t *testing.T) {
	t.Parallel()
	srv := emulator(t)
	resets := 0
	p := openPool(t, srv.Client(), pool.Options{
		Name: "demand", Version: "1", Max: 2,
		Reset: func(context.Context, *sandbox.Sandbox) error { resets++; return nil },
	})
	var boxes []*pool.Box
	for range 2 {
		box, err := p.Take(t.Context(), "")
		require.NoError(t, err)
		boxes = append(boxes, box)
	}
	got := make(chan *pool.Box, 1)
	go func() {
		box, err := p.Take(t.Context(), "")
		assert.NoError(t, err)
		got <- box
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Take(ctx, "")
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, `pool "demand": 0 ready, 2 taken, 0 making, and Options.Max is 2`)
	assert.Empty(t, got, "more than Max")
	require.NoError(t, boxes[0].Return(t.Context()))
	third := <-got
	assert.Equal(t, boxes[0].Name(), third.Name(), "Take returns the sandbox that was returned to the pool")
	assert.Equal(t, 1, resets)
	assert.Equal(t, 2, testkit.Count(srv, sandboxtest.CreateSandbox))
	require.NoError(t, third.Delete(t.Context()))
	require.NoError(t, boxes[1].Delete(t.Context()))
}

// TestUnusable: Take skips sandboxes that fail Check or have stopped, and a sandbox that
// fails Warm is deleted. The pool continues.
func TestUnusable(t *testing.T) {
	t.Parallel()
	srv := emulator(t)
	var mu sync.Mutex
	bad, failed := "", false
	p := openPool(t, srv.Client(), pool.Options{
		Name: "unfit", Version: "1", Size: 3,
		Warm: func(context.Context, *sandbox.Sandbox) error {
			mu.Lock()
			defer mu.Unlock()
			if !failed {
				failed = true
				return errors.New("not this time")
			}
			return nil
		},
		Check: func(_ context.Context, sb *sandbox.Sandbox) error {
			mu.Lock()
			defer mu.Unlock()
			if bad == "" {
				bad = sb.Name()
				return errors.New("unfit")
			}
			return nil
		},
	})
	waitReady(t, p, 3)
	for info, err := range srv.Client().List(t.Context(), nil) {
		require.NoError(t, err)
		sb, err := srv.Client().Get(t.Context(), info.Name, nil)
		require.NoError(t, err)
		_, err = sb.Stop(t.Context(), nil)
		require.NoError(t, err)
		break
	}
	var all []*pool.Box
	for range 2 {
		box, err := p.Take(t.Context(), "")
		require.NoError(t, err)
		assert.NotEqual(t, bad, box.Name())
		assert.Equal(t, "here\n", testkit.Output(t, box.Sandbox, "echo", "here"))
		all = append(all, box)
	}
	for _, box := range all {
		require.NoError(t, box.Delete(t.Context()))
	}
	never := openPool(t, emulator(t).Client(), pool.Options{Name: "never", Check: func(context.Context, *sandbox.Sandbox) error { return errors.New("unfit") }})
	_, err := never.Take(t.Context(), "")
	assert.ErrorContains(t, err, `pool: Check of "never-`)
	assert.ErrorContains(t, err, ": unfit")
	assert.Zero(t, never.Stats().Taken)
}

// relayedRequest is a request from a testing/synctest bubble. A goroutine outside of the
// bubble sends it.
type relayedRequest struct {
	req     *http.Request
	elapsed time.Duration // in the bubble
	resp    *http.Response
	err     error
	sent    chan struct{}
	done    chan struct{}
}

// inBubble runs a test in a testing/synctest bubble, with an emulator and a transport. The
// bubble's time stands still while a request is in flight. The emulator's clock follows that
// time, so that everything that expires before a request is gone when the request arrives.
func inBubble(t *testing.T, test func(t *testing.T, srv *sandboxtest.Server, network http.RoundTripper)) {
	t.Helper()
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Start: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)})
	var mu sync.Mutex
	var advanced time.Duration
	next := testkit.Transport(t)
	free := make(chan *relayedRequest, 16)
	for range cap(free) {
		c := &relayedRequest{sent: make(chan struct{}), done: make(chan struct{})}
		free <- c
		go func() {
			for range c.sent {
				mu.Lock()
				srv.Advance(c.elapsed - advanced)
				advanced = max(advanced, c.elapsed)
				mu.Unlock()
				var body []byte
				if c.resp, c.err = next.RoundTrip(c.req); c.err == nil {
					body, c.err = io.ReadAll(c.resp.Body)
					c.resp.Body.Close()
					c.resp.Body = io.NopCloser(bytes.NewReader(body))
				}
				c.done <- struct{}{}
			}
		}()
	}
	t.Cleanup(func() {
		for range cap(free) {
			close((<-free).sent)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		test(t, srv, canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
			body, err := readBody(r)
			if err != nil {
				return nil, err
			}
			req := r.Clone(context.Background())
			req.Body = io.NopCloser(bytes.NewReader(body))
			c := <-free
			defer func() { free <- c }()
			c.req, c.elapsed = req, time.Since(began)
			c.sent <- struct{}{}
			<-c.done
			if c.resp != nil {
				c.resp.Request = r
			}
			return c.resp, c.err
		}))
	})
}

// readBody returns the body of a request, and replaces it so that the request can still be
// sent.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// clientOver returns a client of srv that uses network.
func clientOver(t *testing.T, srv *sandboxtest.Server, network http.RoundTripper) *sandbox.Client {
	t.Helper()
	return testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: network}})
}

// TestHostileSandbox: a sandbox whose programs never exit is neither handed out nor kept,
// and does not delay others.
func TestHostileSandbox(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"running": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, srv *sandboxtest.Server, network http.RoundTripper) {
				var hostile atomic.Value // its name, which the pool's commands contain
				hostile.Store("none")
				c := clientOver(t, srv, canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
					body, err := readBody(r)
					if err == nil && testkit.IsRun(r) && bytes.Contains(body, []byte(hostile.Load().(string))) {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					return network.RoundTrip(r)
				}))
				p := openPool(t, c, pool.Options{
					Name: "hostile", Version: "1", Stopped: stopped,
					Reset: func(context.Context, *sandbox.Sandbox) error { return nil },
				})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				box, err := p.Take(ctx, "")
				require.NoError(t, err)
				require.NoError(t, box.Return(ctx))
				hostile.Store(box.Name())
				for range 2 {
					other, err := p.Take(ctx, "")
					require.NoError(t, err)
					assert.NotEqual(t, box.Name(), other.Name())
					require.NoError(t, other.Delete(ctx))
				}
				other, err := p.Take(ctx, "")
				require.NoError(t, err)
				hostile.Store(other.Name())
				require.ErrorIs(t, other.Return(ctx), context.DeadlineExceeded)
				assert.NoError(t, ctx.Err(), "Return has its own time limit")
			})
		})
	}
}

// TestKeptAlive: a sandbox that is ready, taken or being created outlives its lease. The
// pool does not delete a sandbox that has left it.
func TestKeptAlive(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, srv *sandboxtest.Server, network http.RoundTripper) {
		const lease = 5 * time.Minute
		slow := make(chan struct{})
		p := openPool(t, clientOver(t, srv, network), pool.Options{
			Name: "alive", Version: "1", Lease: lease, Create: sandbox.CreateOptions{Tags: map[string]string{"mine": "stays"}},
			Warm: func(ctx context.Context, _ *sandbox.Sandbox) error {
				select {
				case <-slow:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
		})
		time.Sleep(2 * lease) // one is being created
		close(slow)
		waitReady(t, p, 1)
		assert.Equal(t, 1, testkit.Count(srv, sandboxtest.CreateSandbox))
		box, err := p.Take(t.Context(), "")
		require.NoError(t, err)
		first := box.CurrentSession().ID()
		waitReady(t, p, 1)
		time.Sleep(2 * lease) // one is taken, one is ready
		assert.Equal(t, 2, testkit.Count(srv, sandboxtest.CreateSandbox))
		assert.Equal(t, "here\n", testkit.Output(t, box.Sandbox, "echo", "here"))
		require.NoError(t, box.Refresh(t.Context()))
		assert.Equal(t, first, box.CurrentSession().ID(), "never stopped")
		require.NoError(t, box.Keep(t.Context()))
		assert.Equal(t, map[string]string{"mine": "stays"}, box.Info().Tags)
		assert.Zero(t, p.Stats().Taken)
		require.NoError(t, box.Sandbox.Delete(t.Context(), nil))
	})
}

// TestMaxAgeByServiceClock: a ready sandbox is replaced at MaxAge by the service's clock.
func TestMaxAgeByServiceClock(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Start: time.Now().AddDate(0, 0, -2)})
	p := openPool(t, srv.Client(), pool.Options{Name: "ages", Version: "1", Stopped: true, Create: sandbox.CreateOptions{SnapshotExpiration: sandbox.Forever}})
	waitReady(t, p, 1)
	take := func() string {
		_, err := srv.Client().ListPage(t.Context(), nil) // any response carries the time
		require.NoError(t, err)
		box, err := p.Take(t.Context(), "")
		require.NoError(t, err)
		defer func() { assert.NoError(t, box.Delete(t.Context())) }()
		return box.Name()
	}
	ready := sandboxNames(t, srv.Client())
	srv.Advance(19 * time.Hour)
	assert.Equal(t, ready, []string{take()})
	waitReady(t, p, 1)
	ready = sandboxNames(t, srv.Client())
	srv.Advance(21 * time.Hour)
	assert.NotContains(t, ready, take())
}

func sandboxNames(t *testing.T, c *sandbox.Client) (list []string) {
	t.Helper()
	for info, err := range c.List(t.Context(), nil) {
		require.NoError(t, err)
		list = append(list, info.Name)
	}
	return list
}

// TestDeployment: a pool hands out no sandbox of another version. It deletes the stopped
// sandboxes of an earlier version, but not those of a later one.
func TestDeployment(t *testing.T) {
	t.Parallel()
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprint(stopped), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, srv *sandboxtest.Server, network http.RoundTripper) {
				c := clientOver(t, srv, network)
				opts := [2]pool.Options{{Version: "1"}, {Version: "2"}}
				for i := range opts {
					opts[i].Name, opts[i].Stopped = "deployed", stopped
				}
				before, err := pool.New(t.Context(), c, opts[0])
				require.NoError(t, err)
				waitReady(t, before, 1)
				old := sandboxNames(t, c)
				time.Sleep(time.Second) // creation times have a resolution of a second
				after := openPool(t, clientOver(t, srv, network), opts[1])
				box, err := after.Take(t.Context(), "")
				require.NoError(t, err)
				assert.NotContains(t, old, box.Name())
				require.NoError(t, box.Delete(t.Context()))
				require.NoError(t, before.Close(t.Context()))
				require.Eventually(t, func() bool { return !slices.Contains(sandboxNames(t, c), old[0]) }, patience, 10*time.Millisecond)

				same, err := pool.New(t.Context(), c, opts[1])
				require.NoError(t, err)
				again, err := same.Take(t.Context(), "")
				require.NoError(t, err)
				version := func(name string) string { return name[:strings.LastIndex(name, "-")] }
				assert.Equal(t, version(box.Name()), version(again.Name()), "the same version")
				require.NoError(t, again.Delete(t.Context()))
				require.NoError(t, same.Close(t.Context()))
			})
		})
	}
}

// TestStoppedFreesMax: a taken sandbox that has stopped does not count toward Max,
// whatever its holder does.
func TestStoppedFreesMax(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, srv *sandboxtest.Server, c *sandbox.Client, box *pool.Box){
		"crashed": func(t *testing.T, srv *sandboxtest.Server, _ *sandbox.Client, box *pool.Box) {
			assert.True(t, srv.Crash(box.Name()))
		},
		"stopped": func(t *testing.T, _ *sandboxtest.Server, _ *sandbox.Client, box *pool.Box) {
			_, err := box.Stop(t.Context(), nil)
			assert.NoError(t, err)
		},
		"deleted": func(t *testing.T, _ *sandboxtest.Server, _ *sandbox.Client, box *pool.Box) {
			assert.NoError(t, box.Sandbox.Delete(t.Context(), nil))
		},
		"deleted by another": func(t *testing.T, _ *sandboxtest.Server, c *sandbox.Client, box *pool.Box) {
			assert.NoError(t, c.Delete(t.Context(), box.Name(), nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, srv *sandboxtest.Server, network http.RoundTripper) {
				p := openPool(t, clientOver(t, srv, network), pool.Options{Name: "places", Max: 1})
				box, err := p.Take(t.Context(), "")
				require.NoError(t, err)
				lose(t, srv, clientOver(t, srv, network), box)
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				next, err := p.Take(ctx, "") // waits for room below Max
				require.NoError(t, err)
				if name == "stopped" || name == "deleted" {
					assert.Zero(t, time.Since(start), "the handle knows that the sandbox has stopped, so Take does not wait")
				}
				assert.Equal(t, 1, p.Stats().Taken)
				require.NoError(t, box.Delete(t.Context()))
				assert.Equal(t, 1, p.Stats().Taken)
				require.NoError(t, next.Delete(t.Context()))
				assert.Zero(t, p.Stats().Taken)
			})
		})
	}
}

// TestPrinting: printing a pool shows none of the secrets in its options.
func TestPrinting(t *testing.T) {
	t.Parallel()
	srv := emulator(t)
	p := openPool(t, srv.Client(), pool.Options{Name: "printed", Create: sandbox.CreateOptions{Env: sandbox.Env{"K": "SECRET"}}})
	waitReady(t, p, 1)
	var text bytes.Buffer
	slog.New(slog.NewTextHandler(&text, nil)).Info("", "pool", p)
	slog.New(slog.NewJSONHandler(&text, nil)).Info("", "pool", p)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		fmt.Fprintf(&text, verb, p)
		fmt.Fprintf(&text, verb, struct{ *pool.Pool }{p})
	}
	assert.NotContains(t, text.String(), "SECRET")
	assert.NotContains(t, text.String(), fmt.Sprintf("%x", "SECRET"))
	assert.Contains(t, text.String(), `pool "printed": 1 ready, 0 taken, 0 making`)
}

// TestMaxAge: a sandbox that is too old is deleted and replaced.
func TestMaxAge(t *testing.T) {
	t.Parallel()
	srv := emulator(t)
	p := openPool(t, srv.Client(), pool.Options{Name: "age", MaxAge: time.Nanosecond})
	waitReady(t, p, 1)
	for range 2 {
		box, err := p.Take(t.Context(), "")
		require.NoError(t, err, "Take creates a new sandbox")
		require.NoError(t, box.Delete(t.Context()))
	}
}

// TestWrongDate: whatever the Date of a response, no sandbox is treated as too old,
// abandoned, left by another process, or of an earlier deployment.
func TestWrongDate(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	for _, stopped := range []bool{false, true} {
		dates := []time.Duration{8 * 24 * time.Hour, -8 * 24 * time.Hour, 48 * time.Hour, -48 * time.Hour}
		switch {
		case needs.Slow():
		case stopped:
			dates = dates[:2]
		default:
			dates = dates[:1] // a running sandbox can only be treated as too old
		}
		for _, wrong := range dates {
			t.Run(fmt.Sprintf("%v/%v", stopped, wrong), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T, srv *sandboxtest.Server, network http.RoundTripper) {
					c := clientOver(t, srv, network)
					opts := pool.Options{Name: "dates", Version: "1", Size: 2, Stopped: stopped}
					other := openPool(t, c, opts)
					waitReady(t, other, 2)

					gate := &testkit.Gateway{Next: network}
					gate.Set(testkit.ShiftDate(wrong))
					opts.Max = 2
					var log testkit.LockedBuffer
					opts.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
					p := openPool(t, clientOver(t, srv, gate), opts)
					waitReady(t, p, 2)
					if stopped { // add one of a later deployment
						sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: "dates-2", Tags: map[string]string{pool.Tag: "dates"}})
						require.NoError(t, err)
						_, err = sb.Stop(t.Context(), nil)
						require.NoError(t, err)
					}
					before := sandboxNames(t, c)
					time.Sleep(2 * time.Minute) // long enough for three sweeps
					assert.Subset(t, sandboxNames(t, c), before)
					box, err := p.Take(t.Context(), "")
					require.NoError(t, err)
					assert.Contains(t, before, box.Name(), "a ready one is taken")
					assert.NoError(t, box.Delete(t.Context()))
					gate.Set(nil)
					for _, what := range []string{"too old", "abandoned", "adopted"} {
						assert.NotContains(t, log.String(), what)
					}
				})
			})
		}
	}
}

// TestReplacedWhileDeleting: a pool deletes an abandoned sandbox, but not another one
// that has been created with the same name since.
func TestReplacedWhileDeleting(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, srv *sandboxtest.Server, network http.RoundTripper) {
		c := clientOver(t, srv, network)
		const name = "swapped-0-a"
		createStopped := func() *sandbox.Sandbox {
			sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: name, Tags: map[string]string{pool.Tag: "swapped"}})
			require.NoError(t, err)
			_, err = sb.Stop(t.Context(), nil)
			require.NoError(t, err)
			return sb
		}
		createStopped()
		time.Sleep(time.Second)
		replaced := make(chan *sandbox.Sandbox, 1)
		gate := &testkit.Gateway{Next: network}
		var once sync.Once
		gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.HasSuffix(req.URL.Path, name) {
				once.Do(func() {
					assert.NoError(t, c.Delete(t.Context(), name, nil))
					replaced <- createStopped()
				})
			}
			return next.RoundTrip(req)
		})
		openPool(t, clientOver(t, srv, gate), pool.Options{Name: "swapped", Version: "1", Stopped: true})
		sb := <-replaced
		time.Sleep(time.Minute) // long enough for a sweep
		assert.NoError(t, sb.Refresh(t.Context()))
		require.NoError(t, sb.Delete(t.Context(), nil))
	})
}

// TestAbandoned: a sandbox whose process has ended is deleted and never handed out.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv := emulator(t)
	opts := pool.Options{Name: "abandoned", Version: "1", Stopped: true}
	first, err := pool.New(t.Context(), srv.Client(), opts)
	require.NoError(t, err)
	box, err := first.Take(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, first.Close(t.Context()))
	for _, name := range sandboxNames(t, srv.Client()) {
		if name != box.Name() {
			require.NoError(t, srv.Client().Delete(t.Context(), name, nil))
		}
	}
	_, err = box.Stop(t.Context(), nil)
	require.NoError(t, err)
	second := openPool(t, srv.Client(), opts)
	waitReady(t, second, 1)
	next, err := second.Take(t.Context(), "")
	require.NoError(t, err)
	assert.NotEqual(t, box.Name(), next.Name())
	assert.NotContains(t, sandboxNames(t, srv.Client()), box.Name())
	require.NoError(t, next.Delete(t.Context()))
}

// TestClosed: after Close only taken sandboxes remain.
func TestClosed(t *testing.T) {
	t.Parallel()
	srv := emulator(t)
	p, err := pool.New(t.Context(), srv.Client(), pool.Options{Name: "closed", Size: 3})
	require.NoError(t, err)
	box, err := p.Take(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, p.Close(t.Context()))
	_, err = p.Take(t.Context(), "")
	require.ErrorIs(t, err, pool.ErrClosed)
	left, err := sandbox.Collect(srv.Client().List(t.Context(), nil))
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.Equal(t, box.Name(), left[0].Name)
	require.NoError(t, box.Delete(t.Context()))
}

// TestRefillUnderLimits: while a pool with more sandboxes than the rate limit is filled, the
// limit refuses at most one request.
func TestRefillUnderLimits(t *testing.T) {
	t.Parallel()
	needs.Long(t, "waits for the periods of rate limits")
	var refused atomic.Int64
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder, RateLimits: true, OnRequest: func(r sandboxtest.Request) {
		if r.Status == http.StatusTooManyRequests {
			refused.Add(1)
		}
	}})
	p := openPool(t, srv.Client(), pool.Options{Name: "limits", Size: 24})
	waitReady(t, p, 24)
	assert.LessOrEqual(t, refused.Load(), int64(1))
}

// TestFromSnapshot: the source snapshot outlives the sandboxes created from it.
func TestFromSnapshot(t *testing.T) {
	t.Parallel()
	srv := emulator(t)
	base, err := srv.Client().Create(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, base.WriteFiles(t.Context(), []sandbox.File{{Path: "base", Content: []byte("here")}}, nil))
	snapshot, err := base.Snapshot(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, base.Delete(t.Context(), nil))
	for _, stopped := range []bool{false, true} {
		p, err := pool.New(t.Context(), srv.Client(), pool.Options{
			Name: "copies", Version: "1", Size: 2, Stopped: stopped,
			Create: sandbox.CreateOptions{Source: sandbox.SnapshotSource{SnapshotID: snapshot.ID()}},
		})
		require.NoError(t, err)
		waitReady(t, p, 2)
		box, err := p.Take(t.Context(), "")
		require.NoError(t, err)
		content, err := box.FS().ReadFile(t.Context(), "base")
		require.NoError(t, err)
		assert.Equal(t, "here", string(content))
		require.NoError(t, box.Delete(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		require.NoError(t, p.Drain(ctx))
		cancel()
	}
	kept, err := srv.Client().GetSnapshot(t.Context(), snapshot.ID())
	require.NoError(t, err)
	assert.EqualValues(t, "created", kept.Info().Status)
}

// TestForeignSandboxes: if a listing ignores the filter, the pool does not delete
// sandboxes that are not its own.
func TestForeignSandboxes(t *testing.T) {
	t.Parallel()
	srv := emulator(t)
	stranger, err := srv.Client().Create(t.Context(), &sandbox.CreateOptions{Name: "stranger"})
	require.NoError(t, err)
	_, err = stranger.Stop(t.Context(), nil)
	require.NoError(t, err)
	network := testkit.Transport(t)
	c := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Has("tags") {
			q := r.URL.Query()
			q.Del("tags")
			r = r.Clone(r.Context())
			r.URL.RawQuery = q.Encode()
		}
		return network.RoundTrip(r)
	})}})
	p, err := pool.New(t.Context(), c, pool.Options{Name: "foreign"})
	require.NoError(t, err)
	waitReady(t, p, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, p.Drain(ctx))
	require.NoError(t, stranger.Refresh(t.Context()))
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string]pool.Options{
		`Name: ""`:         {},
		`Name: "a/b"`:      {Name: "a/b"},
		"Size: -1":         {Name: "a", Size: -1},
		"Max: -1":          {Name: "a", Max: -1},
		"MaxAge: -1s":      {Name: "a", MaxAge: -time.Second},
		"Max: 2 is less":   {Name: "a", Size: 5, Max: 2},
		"Lease: 1s":        {Name: "a", Lease: time.Second},
		"Lease: 48h0m0s":   {Name: "a", Lease: 48 * time.Hour},
		`Create.Name: "b"`: {Name: "a", Create: sandbox.CreateOptions{Name: "b"}},
		"Create.Timeout: ": {Name: "a", Create: sandbox.CreateOptions{Timeout: time.Hour}},
		"Version: is":      {Name: "a", Stopped: true},
		"Version: is e":    {Name: "a", Reset: func(context.Context, *sandbox.Sandbox) error { return nil }},
		"Version: is em":   {Name: "a", Warm: func(context.Context, *sandbox.Sandbox) error { return nil }},
		"Create.OnCreate":  {Name: "a", Create: sandbox.CreateOptions{OnCreate: func(context.Context, *sandbox.Sandbox) error { return nil }}},
	} {
		_, err := pool.New(t.Context(), nil, opts)
		require.ErrorIs(t, err, sandbox.ErrInvalid, want)
		assert.ErrorContains(t, err, "pool: invalid argument: Options."+want)
	}
}

// TestCancelledTake: if a Take is canceled just after its claim has succeeded, the
// sandbox is not extended, and is deleted.
func TestCancelledTake(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, srv *sandboxtest.Server, network http.RoundTripper) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := clientOver(t, srv, canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := network.RoundTrip(r)
			if r.Context().Value(counterKey{}) != nil {
				cancel() // the claim has been made
			}
			return resp, err
		}))
		const lease = 5 * time.Minute
		p := openPool(t, c, pool.Options{Name: "given-up", Lease: lease})
		waitReady(t, p, 1)
		counted, _ := withCounter(ctx)
		_, err := p.Take(counted, "")
		require.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, p.Stats().Taken)
		time.Sleep(2 * lease)
		all, err := sandbox.Collect(c.List(t.Context(), nil))
		require.NoError(t, err)
		assert.Len(t, all, 1, "only a new sandbox remains")
		assert.Equal(t, 1, testkit.Count(srv, sandboxtest.DeleteSandbox))
		box, err := p.Take(t.Context(), "")
		require.NoError(t, err)
		require.NoError(t, box.Delete(t.Context()))
	})
}

// TestAdopt: a pool adopts the ready sandbox of a process that no longer extends it. The
// sandbox is taken only once, although the first process still runs. The pool does not adopt
// the sandbox that this process has taken: it times out.
func TestAdopt(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	inBubble(t, func(t *testing.T, srv *sandboxtest.Server, network http.RoundTripper) {
		opts := pool.Options{Name: "adopted", Lease: time.Minute}
		noExtend := clientOver(t, srv, canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/extend-timeout") {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return network.RoundTrip(r)
		}))
		first, err := pool.New(t.Context(), noExtend, opts)
		require.NoError(t, err)
		waitReady(t, first, 1)
		lost, err := first.Take(t.Context(), "")
		require.NoError(t, err)
		waitReady(t, first, 1)
		second := openPool(t, clientOver(t, srv, network), opts)
		waitReady(t, second, 2) // its own and the adopted one
		time.Sleep(opts.Lease)
		require.ErrorIs(t, lost.Refresh(t.Context()), sandbox.ErrNotFound)
		names := map[string]bool{}
		for _, p := range []*pool.Pool{second, second, first} {
			box, err := p.Take(t.Context(), "")
			require.NoError(t, err)
			assert.False(t, names[box.Name()], "taken twice")
			names[box.Name()] = true
			defer func() { assert.NoError(t, box.Delete(context.WithoutCancel(t.Context()))) }()
		}
		require.NoError(t, first.Close(t.Context()))
	})
}
