package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/terminal"
)

// TestShellOfUser checks the command that a terminal starts in the sandbox.
func TestShellOfUser(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		given terminalOptions
		want  terminal.ShellOptions
	}{
		{terminalOptions{}, terminal.ShellOptions{Command: "sh", Args: []string{"-c", userShell}, Env: sandbox.Env{"PS1": prompt}}},
		{terminalOptions{command: "sh", env: sandbox.Env{"PS1": "$"}}, terminal.ShellOptions{Command: "sh", Env: sandbox.Env{"PS1": "$"}}},
		{terminalOptions{sudo: true, workdir: "/x"}, terminal.ShellOptions{Command: "sh", Args: []string{"-c", userShell}, Env: sandbox.Env{"PS1": prompt}, Sudo: true, Cwd: "/x"}},
		{terminalOptions{command: "vim", args: []string{"f"}, user: "eve", workdir: "/home/eve"}, terminal.ShellOptions{Command: "sudo", Args: []string{"-u", "eve", "--", "sh", "-c", inDirectory, "sh", "/home/eve", "vim", "f"}}},
		{
			terminalOptions{user: "eve", workdir: "/tmp", env: sandbox.Env{"A": "1"}},
			terminal.ShellOptions{
				Command: "sudo", Args: []string{"-u", "eve", "--preserve-env=A,PS1", "--", "sh", "-c", inDirectory, "sh", "/tmp", "sh", "-c", userShell}, Env: sandbox.Env{"A": "1", "PS1": prompt},
			},
		},
	} {
		assert.Equal(t, &c.want, c.given.shell())
	}
}
