package client_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// everyByte writes all byte values to standard output, and some to standard error, and
// exits with 3.
const everyByte = `s=; for i in 0 1 2 3; do for j in 0 1 2 3 4 5 6 7; do for k in 0 1 2 3 4 5 6 7; do s="$s\\0$i$j$k"; done; done; done
printf %b "$s"; printf '\202\254\377ok' >&2; exit 3`

// TestBinary: every way to read a command's output returns exactly the bytes that it
// wrote.
func TestBinary(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "bash")
	srv := sandboxtest.New(t, nil)
	var log testkit.LockedBuffer
	c := testkit.Client(t, srv, sandbox.ClientOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	replaced := func() (lines []string) {
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "output was not UTF-8") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	ctx := t.Context()
	sb, err := c.Create(ctx, testkit.Lasting(nil))
	require.NoError(t, err)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	wantErr := "\x82\xac\xffok"
	args := []string{"-c", everyByte}
	targets := map[string]interface {
		RunCommand(context.Context, string, []string, *sandbox.CommandOptions) (*sandbox.CommandResult, error)
	}{"sandbox": sb}
	if srv.Enforces().Users {
		targets["user"], err = sb.CreateUser(ctx, "someone")
		require.NoError(t, err)
	}

	for name, on := range targets {
		done, err := on.RunCommand(ctx, "sh", args, &sandbox.CommandOptions{Binary: true})
		require.NoError(t, err, name)
		assert.Equal(t, 3, done.ExitCode, name)
		out, err := done.Command.Stdout(ctx)
		require.NoError(t, err)
		assert.Equal(t, string(every), out, name)
		out, err = done.Command.Stderr(ctx)
		require.NoError(t, err)
		assert.Equal(t, wantErr, out, name)

		again, err := sb.GetCommand(ctx, done.Command.ID())
		require.NoError(t, err)
		out, err = again.Stdout(ctx)
		require.NoError(t, err)
		assert.Equal(t, string(every), out, name)
	}
	var stdout, stderr bytes.Buffer
	cmd, err := sb.StartCommand(ctx, "sh", args, &sandbox.StartOptions{Binary: true, Stdout: &stdout, Stderr: &stderr})
	require.NoError(t, err)
	assert.Equal(t, args, cmd.Args())
	_, err = cmd.Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, every, stdout.Bytes())
	assert.Equal(t, wantErr, stderr.String())

	inputs := []io.Reader{nil, strings.NewReader("\xff\x00in"), io.MultiReader(strings.NewReader("\xff\x00"), strings.NewReader("in"))}
	if !needs.Slow() {
		inputs = nil // TestWrappers covers these inputs
	}
	for _, stdin := range inputs {
		x := sb.CommandContext(ctx, "sh", "-c", "cat; "+everyByte)
		x.Binary, x.Stdin = true, stdin
		out, err := x.Output()
		var exit *sandbox.ExitError
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, 3, exit.ExitCode())
		assert.Equal(t, wantErr, string(exit.Stderr))
		assert.Equal(t, map[bool]string{true: "\xff\x00in"}[stdin != nil]+string(every), string(out))
		x = sb.CommandContext(ctx, "no-such-program")
		x.Binary, x.Stdin = true, stdin
		assert.ErrorIs(t, x.Run(), exec.ErrNotFound)
	}
	assert.Empty(t, replaced())

	done, err := sb.RunCommand(ctx, "sh", args, nil)
	require.NoError(t, err)
	out, err := done.Command.Stderr(ctx)
	require.NoError(t, err)
	assert.Equal(t, "\uFFFD\uFFFD\uFFFDok", out)
	require.Len(t, replaced(), 2, "one warning for each stream")
	for _, stream := range []string{"stdout", "stderr"} {
		assert.Contains(t, strings.Join(replaced(), ""), "command="+done.Command.ID()+" stream="+stream)
	}
	require.NoError(t, sb.FS().WriteFile(ctx, "d/\xff", nil, 0o644))
	_, err = sb.FS().ReadDir(ctx, "d")
	require.NoError(t, err)
	assert.Len(t, replaced(), 2, "no warning about the output of the client's own programs")
}

// TestBinarySignals: a signal reaches the program. The reader gets the output that the
// program writes after the signal, even if it is only a few bytes.
func TestBinarySignals(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "bash")
	sb := share(t, nil)
	ctx := t.Context()
	r, w := io.Pipe()
	defer r.Close()
	cmd, err := sb.StartCommand(ctx, "sh", []string{"-c", `trap 'printf "\377bye"; exit 4' TERM; printf go; while :; do sleep 0.1; done`}, &sandbox.StartOptions{Binary: true, Stdout: w})
	require.NoError(t, err)
	word := make([]byte, 2)
	_, err = io.ReadFull(r, word)
	require.NoError(t, err)
	assert.Equal(t, "go", string(word))
	rest := make(chan []byte)
	go func() {
		b := make([]byte, 4)
		_, _ = io.ReadFull(r, b)
		rest <- b
	}()
	require.NoError(t, cmd.Signal(ctx, sandbox.SIGTERM))
	assert.Equal(t, "\xffbye", string(<-rest))
	done, err := cmd.Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, 4, done.ExitCode)

	if !needs.Slow() {
		return // killing the process and its children is slow
	}
	x := sb.CommandContext(ctx, "sleep", "1000")
	x.Binary, x.Stdout = true, io.Discard
	require.NoError(t, x.Start())
	require.NoError(t, x.Process.Signal(os.Kill))
	var exit *sandbox.ExitError
	require.ErrorAs(t, x.Wait(), &exit)
	assert.Equal(t, 137, exit.ExitCode())
}

// TestBinaryWithoutPrograms: if the output can't be encoded, the error says so.
func TestBinaryWithoutPrograms(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	srv.HandleCommand("bash", func(_ context.Context, c *sandboxtest.Invocation) int {
		_, _ = io.WriteString(c.Stderr, "Binary needs the programs dd and base64\n")
		return 127
	})
	_, err := sb.RunCommand(t.Context(), "true", nil, &sandbox.CommandOptions{Binary: true})
	var broken *sandbox.StreamError
	require.ErrorAs(t, err, &broken)
	assert.ErrorContains(t, err, "needs the programs dd and base64")
}
