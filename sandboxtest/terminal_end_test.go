package sandboxtest_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/go-vercel/sandbox/terminal"
)

// TestUnreadTerminalInput: a program in a terminal exits without reading further input of
// the client. The terminal ends with it, and the server continues.
func TestUnreadTerminalInput(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	sb, err := srv.Client().Create(t.Context(), nil)
	require.NoError(t, err)
	shell, err := terminal.Open(t.Context(), sb, &terminal.ShellOptions{Command: "sh", Args: []string{"-c", "stty raw; head -c 4 >/dev/null; exit 3"}, Cols: 80, Rows: 24})
	require.NoError(t, err)
	typed := make(chan struct{})
	go func() {
		defer close(typed)
		for {
			if _, err := shell.Write(bytes.Repeat([]byte("y\n"), 16<<10)); err != nil {
				return
			}
		}
	}()
	go func() { _, _ = io.Copy(io.Discard, shell) }()
	code, err := shell.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3, code)
	require.NoError(t, shell.Close())
	<-typed
	srv.Close()
}
