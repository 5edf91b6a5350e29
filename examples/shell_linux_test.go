package examples

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestShell runs the example in a pseudo terminal.
func TestShell(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	cmd := exec.CommandContext(t.Context(), bin, "-name", "work", "--", "sh", "-c", "stty size; read line; echo you said $line; exit 7")
	cmd.Args[0], cmd.Env = "shell", environment(srv)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 99})
	require.NoError(t, err)
	defer tty.Close()
	_, err = io.WriteString(tty, "hello\r") // input before the shell is ready is kept
	require.NoError(t, err)
	var text strings.Builder
	_, _ = io.Copy(&text, tty) // fails with EIO when the program has ended
	_ = cmd.Wait()             // the exit code is checked below
	assert.Equal(t, 7, cmd.ProcessState.ExitCode(), text.String())
	assert.Contains(t, text.String(), "33 99\r\n")
	assert.Contains(t, text.String(), "you said hello\r\n")
}
