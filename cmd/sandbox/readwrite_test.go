//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestReadWrite reads and writes small and large files byte for byte. A write that is
// interrupted leaves no partial file.
func TestReadWrite(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	large := strings.Repeat("\x00\xff\r\n\x1b[2J", 400_000) // large enough to be sent in parts
	for _, content := range []string{"", "no newline", large} {
		got := d.run(content, "write", "c", "new/-odd: name")
		require.Zero(t, got.code, got.stderr)
		assert.Empty(t, got.stdout)
		for _, command := range []string{"read", "cat"} {
			assert.True(t, content == d.ok(command, "c", "new/-odd: name"), "%d bytes", len(content))
		}
	}
	d.seen()
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"read c none":    {3, "file not found: none in sandbox c"},
		"read c new":     {1, "Is a directory"},
		"read nobody f":  {3, "not found"},
		"read c a b":     {2, "unknown argument"},
		"write c new":    {1, "is a directory"},
		"write nobody f": {3, "not found"},
	} {
		got := d.run("x", strings.Fields(line)...)
		assert.Equal(t, want.code, got.code, "%s: %s", line, got.stderr)
		assert.Contains(t, got.stderr, want.text, line)
		assert.Empty(t, got.stdout, line)
	}
	cmd := d.command(t.Context(), "write", "c", "new/kept")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = in.Write(make([]byte, 4<<20)) // when this returns, the program is reading it
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait(), "the program must not accept input that is cut off")
	assert.Equal(t, 130, cmd.ProcessState.ExitCode())
	assert.Equal(t, "-odd: name\n", d.ok("exec", "--no-echo", "c", "--", "ls", "-A", "new"))
	d.ok("stop", "c")
	assert.True(t, large == d.ok("read", "c", "new/-odd: name"), "a stopped sandbox is started")
}

// TestExecStdin forwards a pipe even at a terminal, where -i alone would open a terminal
// in the sandbox.
func TestExecStdin(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	got := d.run("a\x00b", "exec", "--stdin", "c", "--", "od", "-c")
	assert.Contains(t, got.stdout, `a  \0   b`, got.stderr)
	s := d.inTerminal("exec", "--stdin", "c", "--", "sh", "-c", "test -t 0 || echo no terminal; read x; echo got $x")
	s.until("no terminal")
	s.press("word\r")
	s.until("got word")
	assert.Zero(t, s.ended())
}

// TestPolicyFile reads policies from all kinds of files, for each command that creates or
// changes a sandbox.
func TestPolicyFile(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	const policy = `{"allow": {"a.example": [{"match": {"method": ["GET", "HEAD"]}, "transform": [{"headers": {"x-key": "planted"}}]}]}}`
	d.write("policy.json", policy)
	commands := []string{"create --name NAME FILE", "config network-policy NAME FILE", "fork NAME --name NAME-fork FILE", "run --name NAME-run FILE true"}
	words := func(line, name, file string) []string {
		line = strings.ReplaceAll(line, "FILE", "--network-policy-file "+file)
		return strings.Fields(strings.ReplaceAll(line, "NAME", name))
	}
	for name, file := range map[string]string{"by-file": "policy.json", "by-pipe": "-"} {
		for _, line := range commands {
			d.seen()
			got := d.run(policy, words(line, name, file)...)
			require.Zero(t, got.code, got.stderr)
			assert.NotContains(t, got.stderr, "planted")
			var sent strings.Builder
			for _, r := range d.seen() {
				switch r.Operation {
				case sandboxtest.CreateSandbox, sandboxtest.UpdateSandbox, sandboxtest.ForkSandbox:
					sent.Write(r.Body)
				}
			}
			assert.Contains(t, sent.String(), `"x-key":"planted"`, line)
		}
	}
	d.seen()
	d.write("large.json", `{"allow": ["a.example"]}`+strings.Repeat(" ", 1<<20))
	for content, want := range map[string]string{
		"{\n \"alow\": []}": `policy.json, network policy: unknown field "alow"`,
		`{"allow": {"a.example": [{"transform": [{"headers": {"x": "planted\u0000"}}]}]}}`: `Rules["a.example"][0].Transform[0].Headers: the value of x`,
		"\x1b]0;x":           "invalid character",
		"{\"\u001b[2J\": 1}": "invalid character",
		"null":               "is null",
		"":                   "unexpected end",
	} {
		d.write("policy.json", content)
		for _, line := range commands {
			got := d.run("", words(line, "by-file", "policy.json")...)
			assert.Equal(t, 2, got.code, "%s: %q", line, content)
			assert.Contains(t, got.stderr, want, line)
			assert.NotContains(t, got.stderr, "planted")
			assert.NotContains(t, got.stderr, "\x1b")
		}
	}
	for file, code := range map[string]int{"large.json": 2, "/dev/zero": 2, "none.json": 3, ".vercel": 1} {
		got := d.run("", "create", "--network-policy-file", file)
		assert.Equal(t, code, got.code, got.stderr)
	}
	fifo := filepath.Join(d.dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	cmd := d.command(t.Context(), "create", "--network-policy-file", "fifo")
	require.NoError(t, cmd.Start())
	writer, err := os.OpenFile(fifo, os.O_WRONLY, 0) // blocks until a reader opens it
	require.NoError(t, err)
	defer writer.Close()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	assert.Equal(t, 130, cmd.ProcessState.ExitCode())
	assert.Empty(t, d.seen(), "all of it was refused before any request")
}
