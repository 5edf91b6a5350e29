package box

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

// wait is how long a test waits before it fails. tick is the interval of checks.
const (
	wait = 2 * time.Minute
	tick = 5 * time.Millisecond
)

var marks atomic.Int64

// mark returns a number of seconds to sleep that identifies the process.
func mark() string { return fmt.Sprintf("%d.%d", 100000+os.Getpid(), marks.Add(1)) }

// isRunning reports whether a process of the machine shows that argument. A running process
// may not show it yet: between exec and the moment when the kernel has set up its
// arguments.
func isRunning(t testing.TB, mark string) bool {
	t.Helper()
	if runtime.GOOS != "linux" {
		needs.Other(t, "looks into /proc")
	}
	dirs, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			continue
		}
		cmdline, _ := os.ReadFile("/proc/" + d.Name() + "/cmdline") // empty for a zombie
		if strings.Contains(string(cmdline), mark) {
			return true
		}
	}
	return false
}

// assertRuns waits until a process shows the argument.
func assertRuns(t testing.TB, mark string) {
	t.Helper()
	assert.Eventually(t, func() bool { return isRunning(t, mark) }, wait, tick, "there is no sleep %s", mark)
}

func assertGone(t testing.TB, mark string) {
	t.Helper()
	assert.Eventually(t, func() bool { return !isRunning(t, mark) }, wait, tick, "sleep %s is still there", mark)
}

func start(t testing.TB, b *Box, spec backend.Spec) *Process {
	t.Helper()
	p, err := b.Start(context.Background(), spec)
	require.NoError(t, err)
	return p
}

func TestOutputArrivesWhileTheCommandRuns(t *testing.T) {
	t.Parallel()
	eachBox(t, func(t *testing.T, b *Box) {
		output, out := io.Pipe()
		p := start(t, b, backend.Spec{Path: "sh", Args: []string{"-c", `while read -r l; do echo "got $l"; done; echo end`}, OpenStdin: true, Stdout: out})
		lines := bufio.NewReader(output)
		for i := range 5 {
			_, err := fmt.Fprintln(p.Input(), i)
			require.NoError(t, err)
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("got %d\n", i), line)
		}
		require.NoError(t, p.Input().Close())
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "end\n", line)
		assert.Zero(t, p.Wait())
	})
}

func TestStandardStreamsByName(t *testing.T) {
	t.Parallel()
	eachBox(t, func(t *testing.T, b *Box) {
		var out, errOut buffer
		p := start(t, b, backend.Spec{
			Path: "sh", Args: []string{"-c", "cat /dev/stdin > /dev/stdout; echo err > /dev/stderr"},
			OpenStdin: true, Stdout: &out, Stderr: &errOut,
		})
		_, err := io.WriteString(p.Input(), "in\n")
		require.NoError(t, errors.Join(err, p.Input().Close()))
		assert.Equal(t, []any{0, "in\n", "err\n"}, []any{p.Wait(), out.String(), errOut.String()})
	})
}

func TestSignals(t *testing.T) {
	t.Parallel()
	eachBox(t, func(t *testing.T, b *Box) {
		for _, group := range []bool{false, true} {
			ready, out := io.Pipe()
			child := mark()
			p := start(t, b, backend.Spec{Path: "sh", Args: []string{"-c", `trap 'exit 3' TERM; sh -c 'echo; exec sleep ` + child + `' & wait`}, Stdout: out})
			_, err := ready.Read(make([]byte, 1))
			require.NoError(t, err)
			signal := p.Signal
			if group {
				signal = p.SignalGroup
			}
			require.NoError(t, signal(15))
			assert.Equal(t, 3, p.Wait())
			if group {
				assertGone(t, child)
			} else {
				assertRuns(t, child) // the signal was for the process alone
			}
			require.ErrorIs(t, signal(15), os.ErrProcessDone)
		}
		p := start(t, b, backend.Spec{Path: "sleep", Args: []string{mark()}})
		require.Error(t, p.Signal(0))
		require.Error(t, p.Signal(65))

		require.NoError(t, p.Signal(9))
		assert.Equal(t, 137, p.Wait())
		p = start(t, b, backend.Spec{Path: "sleep", Args: []string{mark()}})
		require.NoError(t, p.Signal(2))
		assert.Equal(t, 130, p.Wait())
	})
}

func TestCommandsThatDoNotStart(t *testing.T) {
	t.Parallel()
	eachBox(t, func(t *testing.T, b *Box) {
		sh(t, b, `echo text > plain; printf 'echo "script $1"' > noshebang; chmod +x noshebang; printf '#!/no/such/shell\n' > badshebang; chmod +x badshebang`)
		for _, tt := range []struct {
			spec    backend.Spec
			code    int
			message string
		}{
			{backend.Spec{Path: "no-such-program"}, 127, "no-such-program: command not found"},
			{backend.Spec{Path: "./no-such-file"}, 127, "./no-such-file: No such file or directory"},
			{backend.Spec{Path: "./plain"}, 126, "./plain: Permission denied"},
			{backend.Spec{Path: "./badshebang"}, 127, "/badshebang: No such file or directory"},
			{backend.Spec{Path: "/tmp"}, 126, "/tmp: Permission denied"},
			{backend.Spec{Path: "true", Dir: "/vercel/sandbox/missing"}, 126, "cannot change to directory /vercel/sandbox/missing: no such directory"},
		} {
			_, errOut, code := run(t, b, tt.spec)
			assert.Equal(t, tt.code, code, tt.spec.Path)
			assert.True(t, strings.HasSuffix(strings.TrimSuffix(errOut, "\n"), tt.message), errOut) // the program unshare ends its message with a newline
		}
		out, _, code := run(t, b, backend.Spec{Path: "./noshebang", Args: []string{"runs"}})
		assert.Zero(t, code)
		assert.Equal(t, "script runs\n", out)

		for _, spec := range []backend.Spec{
			{}, {Path: "a\x00b"}, {Path: "true", Args: []string{"\x00"}}, {Path: "true", Env: []string{"secret"}},
			{Path: "true", Env: []string{"K=secret\x00"}}, {Path: "true", User: "nobody"}, {Path: "true", Dir: "\x00"},
		} {
			_, err := b.Start(t.Context(), spec)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "secret")
		}
	})
}

func TestDaemons(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, h *Host) {
		b := newBox(t, h, backend.Config{})
		plain, away := mark(), mark()
		// The first keeps the pipes open, the second has left its session.
		out, _, code := run(t, b, backend.Spec{Path: "sh", Args: []string{"-c", `sleep ` + plain + ` & (setsid sleep ` + away + ` >/dev/null 2>&1 &) ; echo started`}})
		assert.Zero(t, code)
		assert.Equal(t, "started\n", out)
		assertRuns(t, plain)
		assertRuns(t, away)
		require.NoError(t, b.Stop())
		assert.False(t, isRunning(t, plain))
		assert.False(t, isRunning(t, away))
	})
}

// TestStopWhileExecuting: Stop also finds a process during exec, when it shows no
// environment.
func TestStopWhileExecuting(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		needs.Other(t, "only Linux finds processes that have left their group")
	}
	h := sharedHost(t, Folder)
	times := 100
	if !needs.Slow() {
		times = 10
	}
	for range times {
		b := newBox(t, h, backend.Config{})
		pid, err := strconv.Atoi(sh(t, b, `echo 'exec sh ./again' > again; setsid sh ./again >/dev/null 2>&1 & echo $!`))
		require.NoError(t, err)
		require.NoError(t, b.Stop())
		if !assert.Eventually(t, func() bool { return backend.IsGone(pid) }, wait, tick) {
			_ = backend.SignalProcess(pid, 9)
		}
	}
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	eachNewHost(t, func(t *testing.T, h *Host) {
		b := newBox(t, h, backend.Config{})
		one, two := mark(), mark()
		p := start(t, b, backend.Spec{Path: "sleep", Args: []string{one}})
		sh(t, b, `(setsid sleep `+two+` >/dev/null 2>&1 &)`)
		require.NoError(t, h.Close())
		assert.Equal(t, 137, p.Wait())
		assert.False(t, isRunning(t, one))
		assert.False(t, isRunning(t, two))
		_, err := h.New(t.Context(), backend.Config{})
		require.ErrorIs(t, err, backend.ErrStopped)
		require.ErrorIs(t, b.Restart(), backend.ErrStopped)
		_, err = os.Stat(h.dir)
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}

// slowWriter takes longer than the grace period after an exit.
type slowWriter struct{ n int }

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(graceAfterExit + 20*time.Millisecond) //nolint:sleeping // outlasts the grace period
	w.n += len(p)
	return len(p), nil
}

func TestOutputIsCompleteForASlowReader(t *testing.T) {
	t.Parallel()
	eachBox(t, func(t *testing.T, b *Box) {
		w := &slowWriter{}
		p := start(t, b, backend.Spec{Path: "sh", Args: []string{"-c", `head -c 150000 /dev/zero; sleep ` + mark() + ` & exit 0`}, Stdout: w})
		assert.Zero(t, p.Wait())
		assert.Equal(t, 150000, w.n)
	})
}

// TestOutputAfterGracePeriod: output that the process has written is delivered even if
// nobody has read it before the grace period ends, for example because the machine paused.
// A daemon keeps the pipes open.
func TestOutputAfterGracePeriod(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		needs.Other(t, "pipes have no deadlines")
	}
	const late = time.Nanosecond
	pipe := func() (*output, *os.File, *buffer) {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		t.Cleanup(func() { _, _ = r.Close(), w.Close() })
		got := new(buffer)
		return &output{r: r, w: got, guard: guard.New(slog.New(slog.DiscardHandler)), grace: late}, w, got
	}
	text := strings.Repeat("0123456789abcdef", 3<<10) // more than one read takes
	single, w, got := pipe()
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	single.processExited()
	single.copy()
	assert.Equal(t, text, got.String())

	one, w1, got1 := pipe()
	two, w2, got2 := pipe()
	order, err := newArrivals([]*output{one, two})
	if err != nil {
		require.ErrorIs(t, err, errors.ErrUnsupported)
		return
	}
	defer order.close()
	_, err = io.WriteString(w1, text)
	require.NoError(t, err)
	_, err = io.WriteString(w2, text)
	require.NoError(t, err)
	order.processExited()
	order.copy()
	assert.Equal(t, []string{text, text}, []string{got1.String(), got2.String()})
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SANDBOX_TEST_HOST_SECRET", "planted")
	eachNewHost(t, func(t *testing.T, h *Host) {
		b := newBox(t, h, backend.Config{})
		out, _, _ := run(t, b, backend.Spec{Path: "env", Env: []string{"A=1", "A=2", "HOME=/elsewhere", "EMPTY="}})
		lines := strings.Split(out, "\n")
		assert.Contains(t, lines, "A=2")
		assert.NotContains(t, lines, "A=1")
		assert.Contains(t, lines, "HOME=/elsewhere")
		assert.Contains(t, lines, "EMPTY=")
		assert.Contains(t, lines, "USER="+backend.User)
		assert.NotContains(t, out, "planted")
	})
}

func TestResourcesAreMeasured(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, h *Host) {
		b := newBox(t, h, backend.Config{})
		sh(t, b, `i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done`)
		assert.Positive(t, b.Usage().CPU)
	})
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	eachBox(t, func(t *testing.T, b *Box) {
		if runtime.GOOS == "windows" {
			needs.Other(t, "no pseudo terminals")
		}
		var out buffer
		p := start(t, b, backend.Spec{
			Path:   "sh",
			Args:   []string{"-c", `tty; stty size; trap 'stty size' WINCH; echo ready; while ! read -r l; do :; done; echo "line $l"; exit 5`},
			Stdout: &out, TTY: &backend.Size{Cols: 80, Rows: 24},
		})
		saw := func(s string) {
			t.Helper()
			require.Eventually(t, func() bool { return strings.Contains(out.String(), s) }, wait, tick, "%q", s)
		}
		saw("24 80")
		saw("ready")
		require.NoError(t, p.Resize(backend.Size{Cols: 100, Rows: 40}))
		_, err := p.Write([]byte("typed\n"))
		require.NoError(t, err)
		saw("line typed")
		assert.Equal(t, 5, p.Wait())
		assert.Contains(t, out.String(), "/dev/pts/")

		p = start(t, b, backend.Spec{Path: "sh", Args: []string{"-c", "stty size; exec cat"}, Stdout: &out, TTY: &backend.Size{Cols: 33, Rows: 11}})
		saw("11 33")
		require.NoError(t, p.Resize(backend.Size{Cols: 7, Rows: 9}))
		_, err = p.Write([]byte{4}) // end of file
		require.NoError(t, err)
		assert.Zero(t, p.Wait())

		_, err = b.Start(t.Context(), backend.Spec{Path: "no-such-program", Stdout: &out, TTY: &backend.Size{}})
		require.ErrorContains(t, err, "no-such-program: command not found")
		p = start(t, b, backend.Spec{Path: "true"})
		_, err = p.Write([]byte("x"))
		require.ErrorIs(t, err, backend.ErrUnsupported)
		require.ErrorIs(t, p.Resize(backend.Size{}), backend.ErrUnsupported)
	})
}

// gathering records the longest piece that is written, and waits before each write.
type gathering struct {
	wait    func()
	longest int
}

func (h *gathering) Write(p []byte) (int, error) {
	h.wait()
	h.longest = max(h.longest, len(p))
	return len(p), nil
}

// TestTerminalGathers: everything that waits in a terminal arrives at once, although a
// read returns at most a page.
func TestTerminalGathers(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		needs.Other(t, "a read of an empty terminal waits here")
	}
	eachBox(t, func(t *testing.T, b *Box) {
		out := &gathering{wait: func() {
			assert.Eventually(t, func() bool {
				f, err := b.ReadFile("done", "")
				return err == nil && f.Close() == nil
			}, wait, tick)
		}}
		p := start(t, b, backend.Spec{Path: "sh", Args: []string{"-c", "head -c 9000 /dev/zero; touch done"}, Stdout: out, TTY: &backend.Size{Cols: 80, Rows: 24}})
		assert.Zero(t, p.Wait())
		assert.Greater(t, out.longest, 4096)
	})
}

func TestStopWhileCommandsStart(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, h *Host) {
		b := newBox(t, h, backend.Config{})
		seconds := mark()
		var wg sync.WaitGroup
		var started atomic.Int64
		for range 4 {
			wg.Go(func() {
				for {
					p, err := b.Start(t.Context(), backend.Spec{Path: "sleep", Args: []string{seconds}})
					if err != nil {
						assert.ErrorIs(t, err, backend.ErrStopped)
						return
					}
					started.Add(1)
					go p.Wait()
				}
			})
		}
		assert.Eventually(t, func() bool { return started.Load() > 8 }, wait, tick)
		require.NoError(t, b.Stop())
		wg.Wait()
		assert.False(t, isRunning(t, seconds))
		require.NoError(t, b.Restart())
		assert.Equal(t, "again", sh(t, b, "echo again"))
	})
}

// TestOutputInOrder: output arrives in the order in which the command wrote it, to either
// stream. Separate reads of the two streams would return any order.
func TestOutputInOrder(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		needs.Other(t, "only on Linux the order is known")
	}
	eachBox(t, func(t *testing.T, b *Box) {
		for _, script := range []string{"echo 1; echo 2 >&2", "echo 1 >&2; echo 2", "echo 1; exec >&-; echo 2 >&2", "echo 1 >&2; exec 2>&-; echo 2"} {
			times := 50
			if !needs.Slow() {
				times = 1
			}
			for range times {
				var both buffer
				p, err := b.Start(t.Context(), backend.Spec{Path: "sh", Args: []string{"-c", script}, Stdout: &both, Stderr: &both})
				require.NoError(t, err)
				require.Zero(t, p.Wait())
				require.Equal(t, "1\n2\n", both.String(), script)
			}
		}
	})
}
