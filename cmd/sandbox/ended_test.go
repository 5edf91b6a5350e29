package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestHintAboutEnd ends the session of a running command, or only its output. The hint says
// whether the command is still running, and names the sandbox.
func TestHintAboutEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		by   func(*workspace)
		says string
	}{
		"stopped": {func(d *workspace) { d.ok("stop", "c") }, "the session of c has ended, and the command with it"},
		"removed": {func(d *workspace) { d.ok("rm", "c") }, "and the command"},
		"its output broke": {func(d *workspace) {
			d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.CommandLogs, Status: 403})
			d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.GetCommand, Status: 403})
		}, "the command may still be running: see sandbox logs c cli"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newWorkspace(t, nil)
			d.ok("create", "--name", "c", "--silent")
			if name == "its output broke" {
				end.by(d)
				d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, CutAfterBytes: 5000, Times: 1})
			}
			d.seen()
			cmd := d.command(t.Context(), "exec", "--no-echo", "c", "--", "sh", "-c", "seq 5000; exec sleep 300")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			if name != "its output broke" {
				_, err = out.Read(make([]byte, 16))
				require.NoError(t, err)
				end.by(d)
			}
			_ = cmd.Wait() // the test checks the exit code
			assert.NotZero(t, cmd.ProcessState.ExitCode())
			assert.Contains(t, stderr.String(), end.says)
			assert.NotContains(t, stderr.String(), "NAME")
		})
	}
	t.Run("its own limit", func(t *testing.T) {
		t.Parallel()
		d := newWorkspace(t, nil)
		for _, line := range [][]string{{"run", "--rm", "--silent"}, {"run", "--name", "t", "--silent"}} {
			begun := time.Now()
			got := d.run("", append(line, "--timeout", "2s", "--", "sleep", "300")...)
			assert.Equal(t, 1, got.code)
			assert.Contains(t, got.stderr, "--timeout is how long a session runs")
			assert.NotContains(t, got.stderr, "logs")
			assert.Less(t, time.Since(begun), time.Minute)
		}
	})
}

// TestFullOutput: if output can't be written, the error is that of the system, and does not
// mention the API's stream.
func TestFullOutput(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		needs.Missing(t, "/dev/full")
	}
	defer full.Close()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c", "--silent")
	cmd := d.command(t.Context(), "exec", "--no-echo", "c", "--", "echo", "hi")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &stderr
	_ = cmd.Run() // the test checks the exit code
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Regexp(t, `^error: write /dev/stdout: no space left on device\n`, stderr.String())
}
