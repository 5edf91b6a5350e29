package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/terminal"
)

// TestKeptTerminal: a terminal is kept by tmux, or else by dtach, and one that can't
// be kept is not opened.
func TestKeptTerminal(t *testing.T) {
	t.Parallel()
	s := (&terminalOptions{kept: "work", command: "fish", user: "eve"}).shell()
	assert.Equal(t, []string{"-u", "eve", "--", "sh", "-c", keptTerminal, "sh", "work", "fish"}, s.Args)
	sh, err := exec.LookPath("sh")
	if err != nil {
		needs.Missing(t, "sh in PATH")
	}
	dir := t.TempDir()
	run := func(args ...string) string {
		cmd := exec.Command(sh, append([]string{"-c", keptTerminal, "sh"}, args...)...)
		cmd.Env = []string{"PATH=" + dir, "HOME=/home/me", "SHELL=/bin/zsh"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return string(out) + err.Error()
		}
		return string(out)
	}
	assert.Equal(t, "--keep needs tmux or dtach in the sandbox\nexit status 125", run("work", ""))
	for _, name := range []string{"dtach", "tmux"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!"+sh+"\necho "+name+" \"$@\"\n"), 0o755))
		want := map[string][2]string{
			"dtach": {"dtach -A /home/me/.sandbox-terminal-work -z /bin/zsh\n", "dtach -A /home/me/.sandbox-terminal-work -z fish\n"},
			"tmux":  {"tmux new-session -A -s work\n", "tmux new-session -A -s work fish\n"},
		}[name]
		assert.Equal(t, want, [2]string{run("work", ""), run("work", "fish")})
	}
}

// TestShellOfUser is what a terminal asks the sandbox for.
func TestShellOfUser(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		given terminalOptions
		want  terminal.ShellOptions
	}{
		{terminalOptions{}, terminal.ShellOptions{Command: "sh", Args: []string{"-c", userShell}, Env: sandbox.Env{"PS1": prompt}}},
		{terminalOptions{command: "sh", env: sandbox.Env{"PS1": "$"}}, terminal.ShellOptions{Command: "sh", Env: sandbox.Env{"PS1": "$"}}},
		{terminalOptions{sudo: true, workdir: "/x"}, terminal.ShellOptions{Command: "sh", Args: []string{"-c", userShell}, Env: sandbox.Env{"PS1": prompt}, Sudo: true, Cwd: "/x"}},
		{terminalOptions{command: "vim", args: []string{"f"}, user: "eve"}, terminal.ShellOptions{Command: "sudo", Args: []string{"-u", "eve", "--", "vim", "f"}}},
		{
			terminalOptions{user: "eve", env: sandbox.Env{"A": "1"}},
			terminal.ShellOptions{
				Command: "sudo", Args: []string{"-u", "eve", "--preserve-env=A,PS1", "--", "sh", "-c", userShell}, Env: sandbox.Env{"A": "1", "PS1": prompt},
			},
		},
	} {
		assert.Equal(t, &c.want, c.given.shell())
	}
}
