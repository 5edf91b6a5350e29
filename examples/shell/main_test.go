//go:build linux

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestExample runs the program in a pseudo-terminal.
func TestExample(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "shell")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-buildvcs=false", "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	srv := sandboxtest.New(t, nil)
	cmd := exec.CommandContext(t.Context(), bin, "-name", "work", "--", "sh", "-c", "stty size; read line; echo you said $line; exit 7")
	cmd.Env = append(os.Environ(), srv.Environ()...)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 99})
	require.NoError(t, err)
	defer tty.Close()
	_, err = io.WriteString(tty, "hello\r") // what is typed early is kept
	require.NoError(t, err)
	var text strings.Builder
	_, _ = io.Copy(&text, tty) // ends in EIO, when the program has ended
	_ = cmd.Wait()             // the code says it
	assert.Equal(t, 7, cmd.ProcessState.ExitCode(), text.String())
	assert.Contains(t, text.String(), "33 99\r\n")
	assert.Contains(t, text.String(), "you said hello\r\n")
}
