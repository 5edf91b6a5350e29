package box

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// openWithUsers skips the test if sandboxes have only one user.
func openWithUsers(t *testing.T) *Host {
	h := sharedHost(t, Namespace)
	if h.Rootless() {
		needs.Other(t, "not root: sandboxes have one user only")
	}
	return h
}

// needTools skips the test if the host lacks programs that it runs in sandboxes.
func needTools(t *testing.T, b *Box, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, _, code := run(t, b, backend.Spec{Path: "sh", Args: []string{"-c", "command -v " + name}}); code != 0 {
			needs.Other(t, "needs %s", name)
		}
	}
}

// TestSudo runs the command lines that SDKs, official tools and people use, with the host's
// sudo or, if there is none, with the sandbox's own.
func TestSudo(t *testing.T) {
	t.Parallel()
	h := openWithUsers(t)
	b := newBox(t, h, backend.Config{})
	needTools(t, b, "useradd", "groupadd", "usermod", "bash")
	shRoot(t, b, "useradd -m -s /bin/bash alice && groupadd team && usermod -aG team alice")
	type row struct{ script, want string }
	// By default run only the first rows of each table, which differ most.
	unlessSlow := func(rows []row, n int) []row {
		if needs.Slow() {
			return rows
		}
		return rows[:n]
	}
	rows := unlessSlow([]row{ // with either sudo
		{"sudo --user alice -- id -un", "alice"},
		{"sudo -u alice sudo -n true 2>/dev/null || echo refused", "refused"},
		{"sudo -nu alice id -Gn", "alice team"},
		{"sudo A=1 -n B=2 -- C=3 sh -c 'echo $A$B$C'", "123"},
		{"A=1 sudo sh -c 'echo \"<$A>\"'", "<>"},
		{"sudo sh -c 'exit 7'; echo $?", "7"},
		{"sudo id -un", "root"},
		{"sudo -n id -u", "0"},
		{"sudo -- id -un", "root"},
		{"sudo -u alice id -un", "alice"},
		{"sudo -ualice id -un", "alice"},
		{"sudo --user=alice id -un", "alice"},
		{"sudo -u alice -- bash -c 'cd \"$1\" || exit 1; shift; exec \"$@\"' bash /home/alice env K=V sh -c 'echo $K $PWD'", "V /home/alice"},
		{"sudo -u '#1000' id -un", "vercel-sandbox"},
		{"cd /tmp && sudo pwd", "/tmp"},
		{"echo in | sudo cat", "in"},
		{"sudo -u alice touch /etc/x 2>/dev/null || echo refused", "refused"},
	}, 4)
	_, said, _ := run(t, b, backend.Spec{Path: "sudo", Args: []string{"-V"}})
	own := strings.Contains(said, "the emulator's sudo has no option -V")
	if own { // for these the machine's sudo depends on its configuration
		rows = append(rows, unlessSlow([]row{
			{"sudo -u alice sh -c 'echo $HOME $USER $LOGNAME $SHELL $SUDO_USER $SUDO_UID $SUDO_GID'", "/home/alice alice alice /bin/bash vercel-sandbox 1000 1000"},
			{"A=1 B=2 C=3 sudo --preserve-env=A,B -- sh -c 'echo \"<$A$B$C>\"'", "<12>"},
			{"sudo --login --user=alice sh -c 'echo \"$1|$0\"' 'it'\\''s' '$x y'", "$x y|it's"},
			{"sudo -nD /tmp pwd 2>&1", "sudo: the emulator's sudo has no option -D: install sudo on this machine for it"},
			{"sudo no-such-program 2>&1; echo $?", "sudo: no-such-program: command not found\n1"},
			{"sudo -EH sh -c 'echo $HOME'", "/root"},
			{"sudo sh -c 'echo $HOME $USER; echo $SUDO_COMMAND | grep -o /sh.*'", "/root root\n/sh -c echo $HOME $USER; echo $SUDO_COMMAND | grep -o /sh.*"},
			{"A=1 sudo -E sh -c 'echo \"<$A>\"'", "<1>"},
			{"A=1 B=2 sudo --preserve-env=A sh -c 'echo \"<$A$B>\"'", "<1>"},
			{"sudo A=x B=y sh -c 'echo $A$B'", "xy"},
			{"LANG=xx TERM=vt100 sudo sh -c 'echo $LANG $TERM'", "xx vt100"},
			{"sudo -E sh -c 'echo $HOME $USER'", "/home/vercel-sandbox root"},
			{"sudo -u alice -i pwd", "/home/alice"},
			{"sudo sh -c 'kill -9 $$'; echo $?", "137"},
			{"sudo -u nobody-like-that true 2>&1 | head -1 | grep -o 'unknown user nobody-like-that'; true", "unknown user nobody-like-that"},
			{"sudo 2>&1 >/dev/null | grep -c usage", "1"},
			{"sudo -l 2>&1", "sudo: the emulator's sudo has no option -l: install sudo on this machine for it"},
			{"sudo --chdir=/tmp pwd 2>&1", "sudo: the emulator's sudo has no option --chdir=/tmp: install sudo on this machine for it"},
			{"sudo -u alice sudo -n true 2>&1", "sudo: alice is not in the sudoers file"},
			{"sudo -- A=1 sh -c 'echo $A'", "1"},
		}, 4)...)
	}
	all := []string{"-c", `for script; do (eval "$script"); echo "next row"; done`, "bash"}
	for _, x := range rows {
		all = append(all, x.script)
	}
	out, errOut, _ := run(t, b, backend.Spec{Path: "bash", Args: all})
	outs := strings.Split(out, "next row\n")
	require.Len(t, outs, len(rows)+1)
	for i, x := range rows {
		assert.Equal(t, x.want, strings.TrimSpace(outs[i]), "%s: %s", x.script, errOut)
	}
	if own {
		path := sh(t, b, "PATH=/evil:$PATH sudo sh -c 'echo $PATH'")
		assert.Contains(t, ":"+path+":", ":/vercel/bin:")
		assert.Contains(t, ":"+path+":", ":/usr/sbin:")
		assert.NotContains(t, path, "/evil", "sudo uses its own PATH")
	}

	// The change is saved with the files, and the next sandbox of the layer has it.
	layer := freeze(t, h, "", "true")
	next := newBox(t, h, backend.Config{Layer: layer, Account: backend.ImageAccount})
	assert.Equal(t, "root ubuntu", sh(t, next, "sudo sh -c 'echo $(id -un) $SUDO_USER'"))
	assert.Equal(t, "ubuntu", shRoot(t, next, "echo $SUDO_USER"), "as the API's sudo")
}

// TestReplacedProgram: an emulator whose program is replaced while it runs, as by an
// upgrade, still creates sandboxes with sudo.
func TestReplacedProgram(t *testing.T) { // not parallel: a process that another test starts would keep the file open for writing
	const again = "SANDBOX_TEST_REPLACE"
	if program := os.Getenv(again); program != "" {
		h := openWithUsers(t)
		require.NoError(t, os.WriteFile(program+".new", nil, 0o700))
		require.NoError(t, os.Rename(program+".new", program))
		for range 2 { // the starter is made once
			assert.Equal(t, "root", sh(t, newBox(t, h, backend.Config{}), "sudo id -un"))
		}
		return
	}
	openWithUsers(t)
	program := filepath.Join(t.TempDir(), "program")
	text, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, text, 0o700))
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^TestReplacedProgram$", "-test.v")
	cmd.Env = append(os.Environ(), again+"="+program)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "--- PASS", "%s", out)
}

// TestSudoWithOneUser: if the sandbox has one user, sudo can't become another one, and the
// error says so.
func TestSudoWithOneUser(t *testing.T) {
	t.Parallel()
	h := sharedHost(t, Namespace)
	if !h.Rootless() {
		needs.Other(t, "root: sandboxes have several users")
	}
	b := newBox(t, h, backend.Config{})
	out, errOut, code := run(t, b, backend.Spec{Path: "sudo", Args: []string{"-u", "daemon", "id"}})
	assert.Equal(t, 1, code)
	assert.Empty(t, out)
	assert.Contains(t, errOut, "this sandbox has one user only")
	assert.Equal(t, "vercel-sandbox", sh(t, b, "sudo -n -u vercel-sandbox id -un"))
	_, errOut, _ = run(t, b, backend.Spec{Path: "sudo", Args: []string{"true"}})
	assert.Contains(t, errOut, "one user only")
	for _, spec := range []backend.Spec{{Path: "useradd", Args: []string{"alice"}, User: backend.RootUser}, {Path: "sh", Args: []string{"-c", "groupadd friends"}}} {
		_, errOut, code = run(t, b, spec)
		assert.Equal(t, 1, code)
		assert.Contains(t, errOut, "add: this sandbox has one user only, since the emulator runs as an ordinary user")
	}
}
