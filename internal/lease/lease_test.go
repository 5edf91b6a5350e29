package lease_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/lease"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testmain"
)

func TestMain(m *testing.M) { testmain.Main(m) }

// machine runs scripts with a home directory of its own, in which /tmp is, too.
func machine(t *testing.T) (run lease.Runner, home string) {
	t.Helper()
	home = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(home, "tmp"), 0o700))
	return func(ctx context.Context, script string, args ...string) (string, error) {
		script = strings.ReplaceAll(script, "/tmp/", home+"/tmp/")
		cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh"}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+home)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, stderr.String())
		}
		return string(out), err
	}, home
}

// TestOnce: of many that want to do something one does it at a time, until it is
// done.
func TestOnce(t *testing.T) {
	t.Parallel()
	run, _ := machine(t)
	var inside, done, tries atomic.Int64
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			for round := 0; ; round++ {
				l, err := lease.Take(t.Context(), run, lease.Options{Owner: fmt.Sprintf("o%dr%d", i, round), Term: time.Minute}, "job")
				if !assert.NoError(t, err) || l == nil {
					return
				}
				assert.EqualValues(t, 1, inside.Add(1), "two at a time")
				fails := tries.Add(1) <= 3
				inside.Add(-1)
				if fails {
					assert.NoError(t, l.Free(t.Context()))
					continue
				}
				done.Add(1)
				assert.NoError(t, l.Done(t.Context()))
				return
			}
		})
	}
	group.Wait()
	assert.EqualValues(t, 1, done.Load())
	assert.EqualValues(t, 4, tries.Load())
}

var errHeld = errors.New("held")

// TestTakeOver: a lease that was not renewed is taken by one other, and the one
// that had it learns so.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	run, home := machine(t)
	first, err := lease.Take(t.Context(), run, lease.Options{Owner: "first", Term: time.Minute}, "job")
	require.NoError(t, err)
	waiting, giveUp := context.WithCancel(t.Context())
	_, err = lease.Take(waiting, func(ctx context.Context, script string, args ...string) (string, error) {
		args[2] = "0" // how long the script waits
		out, err := run(context.WithoutCancel(ctx), script, args...)
		assert.Equal(t, "held job\n", out)
		giveUp()
		return out, errors.Join(err, ctx.Err())
	}, lease.Options{Owner: "second", Term: time.Minute}, "job")
	require.ErrorIs(t, err, context.Canceled)
	again, err := lease.Take(t.Context(), run, lease.Options{Owner: "first", Term: time.Minute}, "job")
	require.NoError(t, err)
	require.NotNil(t, again, "the same attempt, whose response was lost, has the lease already")
	// Its owner has died a while ago.
	link := filepath.Join(home, ".go-sandbox", "job", "1")
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Symlink("held.first.1", link))
	var won atomic.Int64
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			_, err := lease.Take(t.Context(), func(ctx context.Context, script string, args ...string) (string, error) {
				args[2] = "0"
				out, err := run(ctx, script, args...)
				if strings.HasPrefix(out, "held") {
					err = errHeld
				}
				return out, err
			}, lease.Options{Owner: fmt.Sprintf("o%d", i), Term: time.Minute}, "job")
			if err == nil {
				won.Add(1)
			} else {
				assert.ErrorIs(t, err, errHeld)
			}
		})
	}
	group.Wait()
	assert.EqualValues(t, 1, won.Load())
	assert.ErrorIs(t, first.Done(t.Context()), lease.ErrLost)
	assert.ErrorIs(t, first.Free(t.Context()), lease.ErrLost)
}

// TestKeep: a lease lasts while it is renewed, and its context ends when another
// has it or it can't be renewed.
func TestKeep(t *testing.T) {
	t.Parallel()
	needs.Long(t, "waits for leases to end, which are counted in seconds")
	run, home := machine(t)
	l, err := lease.Take(t.Context(), run, lease.Options{Owner: "first", Term: 3 * time.Second}, "job")
	require.NoError(t, err)
	kept, stop := l.Keep(t.Context())
	defer stop()
	dir := filepath.Join(home, ".go-sandbox", "job")
	require.Eventually(t, func() bool { _, err := os.Lstat(filepath.Join(dir, "5")); return err == nil }, time.Minute, 10*time.Millisecond, "it is not renewed")
	assert.NoError(t, kept.Err())
	require.NoError(t, os.Symlink("held.other.1", filepath.Join(dir, "1000")))
	<-kept.Done()
	assert.ErrorIs(t, context.Cause(kept), lease.ErrLost)

	out, err := lease.Take(t.Context(), func(ctx context.Context, script string, args ...string) (string, error) {
		if strings.Contains(script, "state=$3") {
			return "", errors.New("the network is down")
		}
		return run(ctx, script, args...)
	}, lease.Options{Owner: "third", Term: 3 * time.Second}, "another")
	require.NoError(t, err)
	alone, end := out.Keep(t.Context())
	defer end()
	<-alone.Done()
	assert.ErrorIs(t, context.Cause(alone), lease.ErrLost)
}

// TestKeys: one command looks at several keys, and takes the first that isn't
// done.
func TestKeys(t *testing.T) {
	t.Parallel()
	run, _ := machine(t)
	commands := 0
	counted := func(ctx context.Context, script string, args ...string) (string, error) {
		commands++
		return run(ctx, script, args...)
	}
	o := lease.Options{Owner: "o", Term: time.Minute}
	for _, want := range []string{"a", "b"} {
		l, err := lease.Take(t.Context(), counted, o, "a", "b")
		require.NoError(t, err)
		require.Equal(t, want, l.Key)
		require.NoError(t, l.Done(t.Context()))
	}
	commands = 0
	l, err := lease.Take(t.Context(), counted, o, "a", "b")
	require.NoError(t, err)
	assert.Nil(t, l)
	assert.Equal(t, 1, commands)
}

// TestHangingCommand: a renewal that gets no response is given up by stop, and
// whoever wants to change the lock then waits as long as its context lasts.
func TestHangingCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		taken := false
		run := func(ctx context.Context, _ string, args ...string) (string, error) {
			if !taken {
				taken = true
				return "taken job\n", nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		}
		l, err := lease.Take(t.Context(), run, lease.Options{Owner: "me", Term: 30 * time.Second}, "job")
		require.NoError(t, err)
		_, stop := l.Keep(t.Context())
		time.Sleep(11 * time.Second) // it renews, and hangs
		synctest.Wait()
		begin := time.Now()
		stop()
		assert.Zero(t, time.Since(begin))
		for name, change := range map[string]func(context.Context) error{"Done": l.Done, "Free": l.Free} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			begin := time.Now()
			assert.ErrorIs(t, change(ctx), context.DeadlineExceeded, name)
			assert.Equal(t, time.Second, time.Since(begin), name)
			cancel()
		}
	})
}

// TestStrange: what a sandbox makes of the lock is an error, and never endless.
func TestStrange(t *testing.T) {
	t.Parallel()
	for _, out := range []string{
		"", "taken", "taken 1 job", "done job", "maybe job", strings.Repeat("x", 1000),
		"taken resume-of-another", "held resume-of-another",
	} {
		_, err := lease.Take(t.Context(), func(context.Context, string, ...string) (string, error) { return out, nil }, lease.Options{Owner: "o", Term: time.Minute}, "job")
		require.ErrorContains(t, err, "can't be read", "%q", out)
		assert.Less(t, len(err.Error()), 200)
	}
	run, home := machine(t)
	require.NoError(t, os.WriteFile(filepath.Join(home, ".go-sandbox"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(home, "tmp/.go-sandbox"), nil, 0o600))
	_, err := lease.Take(t.Context(), run, lease.Options{Owner: "o", Term: time.Minute}, "job")
	assert.Error(t, err, "a file is in its place")
}

// TestNoHome: without a home that can be written locks are in another place.
func TestNoHome(t *testing.T) {
	t.Parallel()
	run, home := machine(t)
	require.NoError(t, os.WriteFile(filepath.Join(home, ".go-sandbox"), nil, 0o600))
	o := lease.Options{Owner: "o", Term: time.Minute}
	l, err := lease.Take(t.Context(), run, o, "job")
	require.NoError(t, err)
	require.NoError(t, l.Done(t.Context()))
	assert.Equal(t, []string{"job"}, names(t, filepath.Join(home, "tmp/.go-sandbox")))
	l, err = lease.Take(t.Context(), run, o, "job")
	require.NoError(t, err)
	assert.Nil(t, l)
}

func names(t *testing.T, dir string) (list []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestOwnStates: what was put and whose response nobody has awaited is one's own,
// and what arrives after a later state changes nothing.
func TestOwnStates(t *testing.T) {
	t.Parallel()
	run, home := machine(t)
	for _, end := range []string{"done", "free"} {
		acted := make(chan struct{}, 9)
		var cut atomic.Bool // from the response to a renewal on
		var late func() error
		l, err := lease.Take(t.Context(), func(ctx context.Context, script string, args ...string) (string, error) {
			out, err := run(context.WithoutCancel(ctx), script, args...)
			if cut.Load() {
				late = func() error {
					out, err := run(t.Context(), script, args...)
					assert.Equal(t, "lost\n", out)
					return err
				}
				acted <- struct{}{}
				<-ctx.Done()
				return "", ctx.Err()
			}
			return out, err
		}, lease.Options{Owner: "me", Term: 3 * time.Second}, end)
		require.NoError(t, err)
		cut.Store(true)
		_, stop := l.Keep(t.Context())
		<-acted
		stop()
		cut.Store(false)
		dir := filepath.Join(home, ".go-sandbox", end)
		assert.Equal(t, []string{"2"}, names(t, dir), "the state before is taken away")
		if end == "done" {
			require.NoError(t, l.Done(t.Context()))
			require.NoError(t, l.Done(t.Context()), "the response was lost")
			require.NoError(t, late())
			l, err = lease.Take(t.Context(), run, lease.Options{Owner: "other", Term: time.Minute}, end)
			require.NoError(t, err)
			assert.Nil(t, l)
		} else {
			require.NoError(t, l.Free(t.Context()))
			require.NoError(t, late())
			l, err = lease.Take(t.Context(), run, lease.Options{Owner: "other", Term: time.Minute}, end)
			require.NoError(t, err)
			require.NotNil(t, l)
			require.NoError(t, late())
		}
		assert.Len(t, names(t, dir), 1)
	}
}

// TestMadeAgain: a state that was taken away and that a late one has made again
// is none.
func TestMadeAgain(t *testing.T) {
	t.Parallel()
	run, home := machine(t)
	o := lease.Options{Owner: "me", Term: time.Minute}
	for range 3 {
		l, err := lease.Take(t.Context(), run, o, "job")
		require.NoError(t, err)
		require.NoError(t, l.Free(t.Context()))
	}
	dir := filepath.Join(home, ".go-sandbox", "job")
	require.Equal(t, []string{"6"}, names(t, dir))
	require.NoError(t, os.Symlink("held.late.9999999999", filepath.Join(dir, "2")))
	l, err := lease.Take(t.Context(), run, o, "job")
	require.NoError(t, err)
	require.NotNil(t, l)
	assert.Equal(t, []string{"7"}, names(t, dir))
}

// TestEndedSessions: who takes a lock removes those of its kind that are for
// other sessions, and no others.
func TestEndedSessions(t *testing.T) {
	t.Parallel()
	run, home := machine(t)
	for i, key := range []string{"resume-s1", "create-a", "command-web-1", "command-db-1", "command-web-2", "resume-s2", "command-a-db-2"} {
		l, err := lease.Take(t.Context(), run, lease.Options{Owner: fmt.Sprint("o", i), Term: time.Minute}, key)
		require.NoError(t, err)
		require.NoError(t, l.Free(t.Context()))
	}
	assert.Equal(t, []string{"command-a-db-2", "command-web-2", "create-a", "resume-s2"}, names(t, filepath.Join(home, ".go-sandbox")))
}

// TestHeldAtOnce: a sandbox that says at once that the lock is held, again and
// again, does not make the client ask without a pause.
func TestHeldAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		asked := 0
		_, err := lease.Take(ctx, func(ctx context.Context, _ string, _ ...string) (string, error) {
			if asked++; asked > 100 {
				cancel()
			}
			return "held job\n", ctx.Err()
		}, lease.Options{Owner: "o", Term: time.Minute}, "job")
		assert.Less(t, asked, 10)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
