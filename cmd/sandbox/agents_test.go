//go:build unix

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// agentWorkspace returns a workspace with programs that replace agents: they print how they
// were started.
func agentWorkspace(t *testing.T, names ...string) (d *workspace, options []string) {
	t.Helper()
	d = newWorkspace(t, nil)
	d.env = append(d.env, "NO_COLOR=1")
	for _, name := range names {
		d.write("bin/"+name, `#!/bin/sh
case $1 in --version) echo 1.0; exit $BROKEN;; esac
test -t 0 && read -p 'task? ' t && echo "doing $t: $0 $* $TOPIC $OPENCODE_DISABLE_AUTOUPDATE."; exit 3
`)
		require.NoError(t, os.Chmod(filepath.Join(d.dir, "bin", name), 0o755))
	}
	return d, []string{"--upload", "bin:/vercel/sandbox/bin", "-e", "PATH=/vercel/sandbox/bin:" + os.Getenv("PATH")}
}

// TestCreateAgent starts each agent as the official CLI does, and says how to reconnect.
func TestCreateAgent(t *testing.T) {
	t.Parallel()
	d, options := agentWorkspace(t, "claude", "codex", "fx", "opencode", "pi")
	const place = " --scope=team_emulator --project=prj_emulator "
	for _, c := range []struct{ agent, title, started, again string }{
		{"claude", "Claude Code", "claude  cats .", "--env=PATH --env=TOPIC NAME -- claude --continue"},
		{"codex", "Codex", "codex --no-daemon cats .", "--env=PATH --env=TOPIC NAME -- codex resume --last --no-daemon"},
		{"fx", "fx", "fx  cats .", "--env=PATH --env=TOPIC NAME -- fx -c"},
		{"opencode", "OpenCode", "opencode  cats true.", "--env=OPENCODE_DISABLE_AUTOUPDATE=true --env=PATH --env=TOPIC NAME -- opencode --continue"},
		{"pi", "Pi", "pi  cats .", "--env=PATH --env=TOPIC NAME -- pi --continue"},
	} {
		name := "with-" + c.agent
		s := d.startInTerminalOf("xterm", 400, slices.Concat([]string{"create", c.agent, "--name", name, "-e", "TOPIC=cats", "--connect"}, options)...)
		s.until("created.")
		s.until("task? ")
		s.press("tests\r")
		s.until("doing tests: /vercel/sandbox/bin/" + c.started)
		s.until("connection to ▲ " + name)
		s.until("ℹ Exiting " + c.title + " does not stop the sandbox.")
		s.until("takes TOPIC, PATH from your shell")
		again := strings.ReplaceAll(c.again, "NAME", name)
		again = strings.Replace(again, "--env=PATH --env=TOPIC", "--env=TOPIC --env=PATH", 1)
		s.until("   │ Reconnect: sandbox exec" + place + "--interactive " + again)
		s.until("   ╰ Stop: sandbox stop" + place + name)
		assert.Equal(t, 3, s.ended())
		looked := 0
		for _, r := range d.seen() {
			switch r.Operation {
			case sandboxtest.CreateSandbox:
				looked++
				assert.Contains(t, string(r.Body), `"image":"vercel/sandbox/universal"`)
				assert.NotContains(t, string(r.Body), "OPENCODE")
			case sandboxtest.RunCommand:
				if strings.Contains(string(r.Body), "--version") {
					looked++
					assert.Contains(t, string(r.Body), `"TOPIC":"cats"`)
				}
			}
		}
		assert.Equal(t, 2, looked, c.agent)
	}
	assert.Equal(t, "with-pi\nwith-opencode\nwith-fx\nwith-codex\nwith-claude\n", d.ok("ls", "-q"), "the sandboxes continue to run")
}

// TestAgentRefused: invalid options are refused before anything is created, and the error
// of an agent that does not start says how to reconnect.
func TestAgentRefused(t *testing.T) {
	t.Parallel()
	d, options := agentWorkspace(t, "codex")
	for _, line := range []string{"create claude --image x", "create pi --runtime node24", "create codex --snapshot snap_x"} {
		s := d.inTerminal(strings.Fields(line)...)
		s.until("can't be combined")
		assert.Equal(t, 2, s.ended())
	}
	for line, want := range map[string]string{
		"create claude": "needs a terminal", "create cloud": "use claude, codex, fx, opencode, pi", "create pi box": "unknown argument",
	} {
		got := d.run("", strings.Fields(line)...)
		assert.Equal(t, 2, got.code, line)
		assert.Contains(t, got.stderr, want, line)
	}
	assert.Empty(t, d.seen())

	s := d.startInTerminalOf("xterm", 400, "create", "pi", "--name", "none")
	s.until("could not start Pi (pi) in the sandbox")
	assert.Equal(t, 127, s.ended(), s.text())
	s = d.startInTerminalOf("xterm", 400, slices.Concat([]string{"create", "codex", "--name", "broken", "-e", "BROKEN=7"}, options)...)
	s.until("Reconnect: ")
	s.until("the check of its version ended with exit code 7")
	assert.Equal(t, 1, s.ended(), s.text())
	s = d.inTerminal(slices.Concat([]string{"create", "codex", "--name", "silent", "--silent"}, options)...)
	s.until("task? ")
	s.press("x\r")
	assert.Equal(t, 3, s.ended())
	assert.NotContains(t, s.text(), "Reconnect")
}

// TestUserShell: connect starts the shell of the sandbox's user, or sh if there is none.
func TestUserShell(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.write("mine", "#!/bin/sh\necho \"my shell $* at $PS1\"; exit 4\n")
	require.NoError(t, os.Chmod(filepath.Join(d.dir, "mine"), 0o755))
	d.ok("create", "--name", "c", "--upload", "mine:/vercel/sandbox/mine")
	s := d.inTerminal("connect", "c", "-e", "SHELL=/vercel/sandbox/mine")
	s.until("my shell -i at ▲")
	assert.Equal(t, 4, s.ended())
	s = d.inTerminal("connect", "c", "-e", "SHELL=/no/such", "-e", "PS1=$")
	s.press("echo it''is $0; exit 5\r")
	s.until("itis sh")
	assert.Equal(t, 5, s.ended())
	s = d.inTerminal("connect", "c", "-e", "SHELL=bash")
	s.until("▲ ")
	s.press("shopt -q login_shell || echo no''login; exit 6\r")
	s.until("nologin")
	assert.Equal(t, 6, s.ended())
}

// TestSizeOfDrive: at a terminal, the program asks for the size of a new drive, which
// can't be changed later, unless an option sets it or the drive exists.
func TestSizeOfDrive(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	s := d.inTerminal("drives", "get-or-create", "disk")
	s.until("Largest size")
	s.press("much\r")
	s.until("is not a size")
	s.until("Largest size")
	s.press("2GiB\r")
	s.until("size: 2 GiB")
	assert.Equal(t, 0, s.ended())
	for _, line := range []string{"drives get-or-create disk", "drives get-or-create two --max-size 8k", "drives get-or-create three --no-input"} {
		s = d.inTerminal(strings.Fields(line)...)
		s.until("is ready")
		assert.Equal(t, 0, s.ended())
		assert.NotContains(t, s.text(), "Largest")
	}
	d.env = append(d.env, "CLAUDECODE=1")
	s = d.inTerminal("drives", "get-or-create", "four")
	s.until("is ready")
	assert.Equal(t, 0, s.ended())
}
