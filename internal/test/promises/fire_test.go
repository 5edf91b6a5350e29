package promises_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// tally records the outcomes of the calls.
type tally struct {
	mu       sync.Mutex
	counts   map[string]int
	outcomes map[string]string // by the names of the commands
	calls    map[string]*fireCall
}

func (y *tally) add(what string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.counts[what]++
}

// script returns the call's command and its expected output. Each run appends the
// command's name to a file in the sandbox. The output is lines, single bytes, or one long
// line.
func (c *fireCall) script() (name string, args []string, out, errs string) {
	name = fmt.Sprintf("call-%05d", c.n)
	const body = `echo "$0" >> lines; i=0; `
	var o, e strings.Builder
	switch c.rng.IntN(8) {
	case 0: // single bytes
		n := 1 + c.rng.IntN(300)
		for range n {
			o.WriteString("x")
			e.WriteString("y")
		}
		return name, []string{"-c", body + `while [ $i -lt $1 ]; do printf x; printf y >&2; i=$((i+1)); done; exit 3`, name, fmt.Sprint(n)}, o.String(), e.String()
	case 1: // one line, which may be split between records
		n := 1 + c.rng.IntN(30_000)
		return name, []string{"-c", body + `printf '%0*d' $1 7; exit 3`, name, fmt.Sprint(n)}, strings.Repeat("0", n-1) + "7", ""
	default:
		n := c.rng.IntN(400)
		for i := range n {
			fmt.Fprintf(&o, "%d %s é日本🚀 {\"command\":{\"exitCode\":0}}\n", i, name)
			if i%7 == 0 {
				fmt.Fprintf(&e, "error %d \x1b[1m\\ \"\n", i)
			}
		}
		return name, []string{"-c", body + `while [ $i -lt $1 ]; do printf '%d %s é日本🚀 {"command":{"exitCode":0}}\n' $i "$0"; [ $((i%7)) = 0 ] && printf 'error %d \033[1m\\ "\n' $i >&2; i=$((i+1)); done; exit 3`, name, fmt.Sprint(n)}, o.String(), e.String()
	}
}

// pausingWriter pauses before its first writes.
type pausingWriter struct {
	io.Writer
	pauses int
}

func (w *pausingWriter) Write(p []byte) (int, error) {
	if w.pauses > 0 {
		w.pauses--
		testkit.Linger(5 * time.Millisecond)
	}
	return w.Writer.Write(p)
}

// run runs the command with one of the client's methods.
func (f *fire) run(ctx context.Context, c *fireCall, args []string) (out, errs string, code int, err error) {
	var o, e bytes.Buffer
	var stdout, stderr io.Writer = &o, &e
	way := c.rng.IntN(6)
	if way < 3 && c.rng.IntN(6) == 0 {
		f.slow.Add(1)
		stdout = &pausingWriter{&o, 20}
	}
	finish := func(done *sandbox.CommandResult, err error) (string, string, int, error) {
		if err != nil {
			return o.String(), e.String(), -1, err
		}
		return o.String(), e.String(), done.ExitCode, nil
	}
	switch way {
	case 0:
		return finish(c.box.RunCommand(ctx, "sh", args, &sandbox.CommandOptions{Stdout: stdout, Stderr: stderr}))
	case 1:
		cmd, err := c.box.StartCommand(ctx, "sh", args, &sandbox.StartOptions{Stdout: stdout, Stderr: stderr})
		if err != nil {
			return "", "", -1, err
		}
		done, err := cmd.Wait(ctx)
		if err != nil {
			_ = cmd.WaitOutput(ctx) // wait until nothing writes to the buffers
		}
		return finish(done, err)
	case 2, 3:
		cmd := c.box.CommandContext(ctx, "sh", args...)
		if way == 2 {
			cmd.Stdout, cmd.Stderr = stdout, stderr
			err = cmd.Run()
		} else {
			err = piped(cmd, &o, &e)
		}
		if exit, ok := errors.AsType[*sandbox.ExitError](err); ok {
			return o.String(), e.String(), exit.ExitCode(), nil
		}
		return o.String(), e.String(), -1, err
	case 4:
		cmd, err := c.box.StartCommand(ctx, "sh", args, nil)
		if err != nil {
			return "", "", -1, err
		}
		for entry, err := range cmd.Logs(ctx) {
			if err != nil {
				return finish(nil, err)
			}
			if entry.Stream == sandbox.Stderr {
				e.WriteString(entry.Data)
			} else {
				o.WriteString(entry.Data)
			}
		}
		return finish(cmd.Wait(ctx))
	}
	done, err := c.box.RunCommand(ctx, "sh", args, nil)
	if err != nil {
		return "", "", -1, err
	}
	if out, err = done.Stdout(ctx); err == nil {
		errs, err = done.Stderr(ctx)
	}
	return out, errs, done.ExitCode, err
}

// piped runs a Cmd and reads its pipes.
func piped(cmd *sandbox.Cmd, o, e *bytes.Buffer) error {
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var group sync.WaitGroup
	group.Go(func() { _, _ = o.ReadFrom(stdout) }) // Wait returns the error
	group.Go(func() { _, _ = e.ReadFrom(stderr) })
	group.Wait()
	return cmd.Wait()
}

// command runs the command of a call and checks the result.
func (f *fire) command(t *testing.T, y *tally, n int) {
	ctx, c, over := f.begin(t.Context(), n)
	name, args, wantOut, wantErrs := c.script()
	if c.rng.IntN(16) == 0 {
		f.cancel(ctx, t, c, name, over)
		y.add("was cancelled")
		return
	}
	out, errs, code, err := f.run(ctx, c, args)
	hangs := context.Cause(ctx) == errHangs
	over()
	said := "has failed"
	switch {
	case hangs:
		t.Errorf("%s: %v: %v", name, errHangs, err)
	case err == nil && code == 3:
		said = "has run"
		if out != wantOut || errs != wantErrs {
			t.Errorf("%s: no error, but wrong output: %d of %d bytes of standard output and %d of %d of standard error", name, len(out), len(wantOut), len(errs), len(wantErrs))
		}
	case errors.Is(err, sandbox.ErrOutcomeUnknown):
		said = "is unknown" // the connection broke, the request arrived too late, or the session ended
	case !c.disturbed():
		t.Errorf("%s: exit code %d, %v\n%s", name, code, err, c)
	case !strings.HasPrefix(wantOut, out) || !strings.HasPrefix(wantErrs, errs):
		t.Errorf("%s: the output is not the beginning of the expected output", name)
	case err == nil:
		said = "was killed with its session"
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.counts[said]++
	y.outcomes[name] = said
	y.calls[name] = c
}

// cancel starts a command with KillOnCancel, ends the context at a random moment, and
// checks that the command ends. The command may continue if its start arrived after the
// call's last lookup, or if the call took as long as its time limit.
func (f *fire) cancel(ctx context.Context, t *testing.T, c *fireCall, name string, over func()) {
	limited, cancel := context.WithTimeout(ctx, time.Duration(c.rng.IntN(100))*time.Millisecond)
	defer cancel()
	args := []string{"-c", `echo "$0" >> lines; exec sleep 1000`, name}
	if c.rng.IntN(2) == 0 {
		if done, err := c.box.RunCommand(limited, "sh", args, &sandbox.CommandOptions{KillOnCancel: true, ID: name}); err == nil && !c.disturbed() {
			t.Errorf("%s has ended by itself: exit code %d", name, done.ExitCode)
		}
	} else if cmd, err := c.box.StartCommand(limited, "sh", args, &sandbox.StartOptions{KillOnCancel: true, ID: name}); err == nil {
		if done, err := cmd.Wait(limited); err == nil && !c.disturbed() {
			t.Errorf("%s has ended by itself: exit code %d", name, done.ExitCode)
		}
	}
	deadline, _ := limited.Deadline()
	took := time.Since(deadline)
	over()
	if !assert.NoError(t, c.box.direct.Refresh(t.Context())) {
		return
	}
	cmd, err := c.box.direct.GetCommand(t.Context(), name)
	if errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrStopped) {
		return // the command has not started, or has ended with its session
	}
	if !assert.NoError(t, err) {
		return
	}
	if c.wasTooLate() || took >= 3*time.Second { // the documentation allows that the command continues
		err := cmd.Kill(t.Context())
		assert.True(t, err == nil || errors.Is(err, sandbox.ErrStopped) || errors.Is(err, os.ErrProcessDone), "%s: %v", name, err)
		return
	}
	patience, done := context.WithTimeout(t.Context(), testkit.Patience)
	defer done()
	if _, err := cmd.Wait(patience); patience.Err() != nil {
		f.left.Add(1)
		t.Errorf("%s was not killed and is still running: %v", name, err)
		_ = cmd.Kill(t.Context()) // don't let it disturb the other calls
	}
}

// TestCommandsUnderFire runs commands in many sandboxes with each of the client's methods,
// while connections break, requests arrive late, sessions end and readers are slow. Each
// command records its name in a file in the sandbox. No command runs twice. If the client
// reports that a command has run, it has, and all of its output is right. Commands that
// the client must kill have ended.
func TestCommandsUnderFire(t *testing.T) {
	for name, c := range map[string]struct {
		http2       bool
		least, most int64
		part        int
	}{
		"HTTP1": {false, 200, 60_000, 2},
		"HTTP2": {true, 6_000, 1_500_000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began, size := time.Now(), fireSize(t)*c.part/3
			f := newFire(t, c.http2, min(12, 2+size/100), c.least, c.most)
			y := &tally{counts: map[string]int{}, outcomes: map[string]string{}, calls: map[string]*fireCall{}}
			f.each(size, 4*len(f.boxes), func(n int) { f.command(t, y, n) })
			twice, lost := 0, 0
			for i, b := range f.boxes {
				require.NoError(t, b.direct.Resume(t.Context()))
				counts := lines(t, b.direct)
				for name, n := range counts {
					if n > 1 {
						twice++
						t.Errorf("%s ran %d times: according to its call, it %s:\n%s", name, n, y.outcomes[name], y.calls[name])
					}
				}
				for n := i; n < size; n += len(f.boxes) {
					name := fmt.Sprintf("call-%05d", n)
					if y.outcomes[name] == "has run" && counts[name] == 0 {
						lost++
						t.Errorf("%s did not run, but its call returned no error", name)
					}
				}
			}
			least := size / 2
			if size < 50 {
				least = size / 3 // with few calls, more than half may fail by chance
			}
			assert.Greater(t, y.counts["has run"], least)
			t.Logf("%s; commands: %v; %d slow readers; ran twice: %d, lost: %d, left running: %d; %v", f, y.counts, f.slow.Load(), twice, lost, f.left.Load(), time.Since(began).Round(time.Second))
		})
	}
}

// String summarizes the faults so far.
func (f *fire) String() string {
	return fmt.Sprintf("%d requests on %d connections, %d cuts, %d late deliveries, %d stops by others, %d sessions timed out",
		f.requests.Load(), f.conns.Load(), f.cuts.Load(), f.late.Load(), f.stops.Load(), f.expiries.Load())
}

// each makes size calls with a number of goroutines.
func (f *fire) each(size, workers int, do func(n int)) {
	var group sync.WaitGroup
	var next atomic.Int64
	for range workers {
		group.Go(func() {
			for n := next.Add(1) - 1; n < int64(size); n = next.Add(1) - 1 {
				do(int(n))
			}
		})
	}
	group.Wait()
}

// noise returns data that gzip can't compress.
func noise(rng *rand.Rand) []byte {
	data := make([]byte, 1+rng.IntN(900_000))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return data
}

// file writes, appends to or downloads a file and checks the result.
func (f *fire) file(t *testing.T, y *tally, dir string, known []byte, n int) {
	ctx, c, over := f.begin(t.Context(), n)
	name, data := fmt.Sprintf("file-%05d", n), noise(c.rng)
	local := filepath.Join(dir, name)
	kind, old := []string{"write", "append", "download", "download of a directory"}[n/len(f.boxes)%4], []byte("old")
	var err error
	switch kind {
	case "write":
		var w *sandbox.FileWriter
		if w, err = c.box.FS().Create(ctx, name, nil); err == nil {
			_, err = w.Write(data)
			err = errors.Join(err, w.Close())
		}
	case "append":
		data = []byte(name + " " + strings.Repeat("x", c.rng.IntN(100_000)) + "\n")
		err = c.box.FS().AppendFile(ctx, "appended", data)
	case "download":
		data = known
		assert.NoError(t, os.WriteFile(local, old, 0o600))
		err = c.box.FS().DownloadFile(ctx, "known/content", local, nil)
	default:
		data = known
		err = c.box.FS().DownloadDir(ctx, "known", local, nil)
	}
	hangs := context.Cause(ctx) == errHangs
	over()
	assert.False(t, hangs, "%s of %s: %v", kind, name, errHangs)
	if err != nil && !c.disturbed() && !c.wasHeld() {
		y.add("failed because of the network alone")
		t.Logf("%s of %s: %v", kind, name, err)
	}
	var got []byte
	var gotErr error
	switch kind {
	case "write":
		for { // another session may end during the read
			if got, gotErr = c.box.direct.FS().ReadFile(t.Context(), name); !errors.Is(gotErr, sandbox.ErrStopped) {
				break
			}
		}
	case "append":
		y.mu.Lock()
		y.outcomes[string(data)] = "was written"
		if err != nil {
			y.outcomes[string(data)] = fmt.Sprint("failed: ", err)
		}
		y.mu.Unlock()
		got = data // TestFilesUnderFire checks it at the end
	case "download":
		got, gotErr = os.ReadFile(local)
	default:
		got, gotErr = os.ReadFile(filepath.Join(local, "content"))
	}
	switch {
	case err == nil && !(gotErr == nil && bytes.Equal(got, data)):
		t.Errorf("%s of %s: no error, but wrong content: %d of %d bytes (%v)", kind, name, len(got), len(data), gotErr)
	case err == nil:
		y.add(kind + ": done")
		return
	case gotErr == nil && !bytes.Equal(got, data) && !(kind == "download" && bytes.Equal(got, old)):
		t.Errorf("%s of %s: the failed call has left a part of %d bytes of %d: %v", kind, name, len(got), len(data), err)
	case gotErr != nil && !errors.Is(gotErr, fs.ErrNotExist):
		t.Errorf("%s of %s: %v", kind, name, gotErr)
	}
	y.add(kind + ": failed")
}

// TestFilesUnderFire writes, appends to and downloads files under the same conditions. If
// the client reports success, the data is there, once. A call that fails leaves no partial
// file.
func TestFilesUnderFire(t *testing.T) {
	t.Parallel()
	began, size := time.Now(), fireSize(t)/20
	f := newFire(t, false, min(8, 1+size/20), 1000, 3_000_000)
	y := &tally{counts: map[string]int{}, outcomes: map[string]string{}, calls: map[string]*fireCall{}}
	dir, known := t.TempDir(), noise(rand.New(rand.NewPCG(f.seed, 0)))
	for _, b := range f.boxes {
		require.NoError(t, b.direct.FS().WriteFile(t.Context(), "known/content", known, 0o644))
	}
	f.each(size, 2*len(f.boxes), func(n int) { f.file(t, y, dir, known, n) })
	times := map[string]int{}
	for _, b := range f.boxes {
		data, err := b.direct.FS().ReadFile(t.Context(), "appended")
		if !errors.Is(err, fs.ErrNotExist) {
			require.NoError(t, err)
		}
		for line := range strings.Lines(string(data)) {
			times[line]++
		}
	}
	for line, n := range times {
		assert.Equal(t, 1, n, "%.16q: the number of times it was appended", line)
		assert.Contains(t, y.outcomes, line, "%.16q is only a part of an appended line", line)
	}
	for line, said := range y.outcomes {
		assert.False(t, said == "was written" && times[line] == 0, "%.16q was reported as written, but is missing", line)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	require.NoError(t, err)
	assert.Empty(t, left, "temporary files")
	assert.LessOrEqual(t, y.counts["failed because of the network alone"], 3+size/10)
	t.Logf("%s; files: %v; %v", f, y.counts, time.Since(began).Round(time.Second))
}

// TestManyCallsAtOnce makes many calls on one sandbox at the same time: on a running
// sandbox, on a stopped one, and with contexts that end within 50 milliseconds.
func TestManyCallsAtOnce(t *testing.T) {
	size := fireSize(t) * 2 / 3
	srv := testkit.LightServer(t)
	srv.HandleCommand("noop", func(_ context.Context, inv *sandboxtest.Invocation) int {
		if _, err := io.WriteString(inv.Stdout, "out\n"); err != nil {
			return 1
		}
		return 0
	})
	var resumed atomic.Int64
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Create(t.Context(), &sandbox.CreateOptions{OnResume: func(context.Context, *sandbox.Sandbox) error {
		resumed.Add(1)
		return nil
	}})
	require.NoError(t, err)
	began := time.Now()
	atOnce := func(n int, do func(i int)) {
		var group sync.WaitGroup
		for i := range n {
			group.Go(func() { do(i) })
		}
		group.Wait()
	}
	atOnce(size, func(int) {
		done, err := sb.RunCommand(t.Context(), "noop", nil, nil)
		if assert.NoError(t, err) {
			assert.Zero(t, done.ExitCode)
		}
	})
	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	atOnce(size, func(int) {
		_, err := sb.StartCommand(t.Context(), "noop", nil, nil)
		assert.NoError(t, err)
	})
	assert.EqualValues(t, 1, resumed.Load(), "runs of OnResume")
	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	atOnce(size*3/10, func(i int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%50)*time.Millisecond)
		defer cancel()
		_, err := sb.StartCommand(ctx, "noop", nil, nil)
		assert.True(t, err == nil || errors.Is(err, context.DeadlineExceeded), "%v", err)
	})
	done, err := sb.RunCommand(t.Context(), "noop", nil, nil)
	require.NoError(t, err)
	assert.Zero(t, done.ExitCode)
	assert.LessOrEqual(t, resumed.Load(), int64(2), "runs of OnResume")
	t.Logf("%d calls, 0 errors; %v", 2*size+size*3/10, time.Since(began).Round(time.Second))
}
