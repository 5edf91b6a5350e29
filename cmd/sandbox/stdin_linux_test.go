package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestInputEnds: whatever kind of file standard input is, a command that reads it to its
// end gets all of it, and ends.
func TestInputEnds(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "stty", "bash")
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	var all bytes.Buffer
	for i := range 200_000 {
		all.WriteByte(byte(i + i/256))
	}
	sums, content := map[string]string{}, map[string]string{}
	for name, data := range map[string][]byte{"data": all.Bytes(), "empty": nil} {
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, name), data, 0o600))
		sums[name], content[name] = fmt.Sprintf("%x  -\n", sha256.Sum256(data)), string(data)
	}
	for _, input := range []struct{ name, redirection, content string }{
		{"file", "<data", "data"},
		{"empty file", "<empty", "empty"},
		{"null", "</dev/null", "empty"},
		{"closed", "<&-", "empty"},
		{"pipe", "<data", "data"},
		{"directory", "<.", "empty"},
	} {
		commands := []string{
			"rsh c sha256sum", "exec -i c sha256sum", "exec -i --sudo c sha256sum", "exec -i --binary c cat", "exec --stdin c sha256sum", "run -i --name c sha256sum",
		}
		switch {
		case needs.Slow() || input.name == "pipe":
		case input.name == "file":
			commands = commands[:4] // the program sends a file as a whole
		default:
			commands = commands[:2] // the other commands forward input as exec -i does
		}
		for _, args := range commands {
			t.Run(input.name+"/"+args, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				line := `"$0" ` + args + " " + input.redirection
				if input.name == "pipe" {
					line = `cat data | "$0" ` + args
				}
				cmd := exec.CommandContext(ctx, "sh", "-c", line, os.Args[0])
				cmd.Dir, cmd.Env = d.dir, d.env
				got := finish(t, cmd)
				require.NoError(t, ctx.Err(), "the command does not end: %s", got.stderr)
				assert.Zero(t, got.code, got.stderr)
				want := sums[input.content]
				if strings.HasSuffix(args, "cat") {
					want = content[input.content]
				}
				assert.True(t, want == got.stdout, "%d bytes, not %d", len(got.stdout), len(want))
				assert.Equal(t, input.name == "directory", strings.Contains(got.stderr, "standard input can't be read"), got.stderr)
			})
		}
	}
}

// TestRemoteShellEnds: a command of rsh that does not read its input ends with its own
// code. A command whose input ends late gets each part as it arrives.
func TestRemoteShellEnds(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "stty", "bash")
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	for line, want := range map[string]outcome{
		`echo text | "$0" rsh c 'head -c 2; exit 3'`:                     {code: 3, stdout: "te"},
		`yes | "$0" rsh c 'head -c 4; exit 3'`:                           {code: 3, stdout: "y\ny\n"}, // the input has no end
		`yes | "$0" rsh c 'echo done'`:                                   {stdout: "done\n"},
		`yes | "$0" rsh c 'kill -9 $$'; echo $?`:                         {stdout: "137\n"},
		`mkfifo p; exec 3<>p; "$0" rsh c 'echo done' <&3`:                {stdout: "done\n"},
		`echo text | "$0" rsh c 'cat >f'; "$0" rsh c 'cat f' </dev/null`: {stdout: "text\n"},
	} {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", line, os.Args[0])
		cmd.Dir, cmd.Env = d.dir, d.env
		got := finish(t, cmd)
		assert.Equal(t, want, outcome{got.code, got.stdout, ""}, "%s\n%s", line, got.stderr)
	}
	cmd := d.command(t.Context(), "rsh", "c", "while read -r x; do echo got $x; done")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for _, word := range []string{"one", "two"} {
		_, err := fmt.Fprintln(in, word)
		require.NoError(t, err)
		line := make([]byte, len("got "+word+"\n"))
		_, err = io.ReadFull(out, line)
		require.NoError(t, err)
		assert.Equal(t, "got "+word+"\n", string(line))
	}
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
}
