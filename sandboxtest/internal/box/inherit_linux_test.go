package box

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// keyringProbe makes this program one that runs in a box and tries to use
// keyrings.
const keyringProbe = "SANDBOX_TEST_KEYRING_PROBE"

func init() {
	if os.Getenv(keyringProbe) == "" {
		return
	}
	for _, ring := range []int{unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING} {
		_, err := unix.KeyctlSearch(ring, "user", "secret-of-the-login", 0)
		fmt.Println("search", err)
		_, err = unix.AddKey("user", "from-a-box", []byte("x"), ring)
		fmt.Println("add", err)
	}
	_, err := unix.RequestKey("user", "secret-of-the-login", "", 0)
	fmt.Println("request", err)
	os.Exit(0)
}

// inheritedBy is all that a program of a box may have of whoever has started the
// emulator, as a program there sees it.
var inheritedBy = []string{
	`fd [012]`, `umask 0022`, `search operation not permitted`, `add operation not permitted`, `request operation not permitted`,
	`(PWD|HOME|USER|LOGNAME|SHELL|LANG|PATH|SHLVL|_|TERM|SUDO_USER|SSL_CERT_FILE|NODE_EXTRA_CA_CERTS|[A-Z_]*CA[A-Z_]*)=.*`,
	`755 /`, `1777 /tmp`, `755 /vercel/sandbox`,
	`CapInh:\s0*`, `CapAmb:\s0*`, `Seccomp:\s2`, `NoNewPrivs:\s0`, `SigBlk:\s0*`, `Seccomp_filters:\s\d+`,
}

// TestWhatABoxInherits: whoever has started the emulator, a program of a box
// has nothing of them but what is listed.
func TestWhatABoxInherits(t *testing.T) {
	const inside = "SANDBOX_TEST_INHERITS"
	if os.Getenv(inside) != "" {
		whatABoxInherits(t, os.Getenv(inside) == "true")
		return
	}
	needs.Programs(t, "sh")
	rootless := openHost(t, Options{Mode: Namespace}).Rootless()
	secret := t.TempDir() + "/secret"
	require.NoError(t, os.WriteFile(secret, []byte("secret-of-a-file\n"), 0o600))
	// A shell with open files and a umask of its own, in a login with a keyring.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `exec 7<"$1" 9</; umask 077; exec "$2" -test.v "-test.run=^TestWhatABoxInherits$"`, "sh", secret, os.Args[0])
	cmd.Env = append(os.Environ(), inside+"="+strconv.FormatBool(rootless), "SECRET_OF_THE_LOGIN=secret")
	var out buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := onThread(func() error {
		newSessionKeyring()
		if _, err := unix.AddKey("user", "secret-of-the-login", []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING); err != nil {
			fmt.Fprintln(&out, "no keyrings here:", err)
		}
		return cmd.Run()
	})
	require.NoError(t, err, out.String())
	assert.Contains(t, out.String(), "PASS: TestWhatABoxInherits")
}

func whatABoxInherits(t *testing.T, rootless bool) {
	h, err := NewHost(Options{Mode: Namespace})
	require.NoError(t, err)
	defer func() { assert.NoError(t, h.Close()) }()
	assert.Equal(t, rootless, h.Rootless(), "the umask changes nothing")
	b := newBox(t, h, Config{})
	const look = `
for fd in /proc/self/fd/*; do fd=${fd##*/}; test ! -e /proc/$$/fd/$fd || echo fd $fd; done
echo umask $(umask); env; stat -c '%a %n' / /tmp /vercel/sandbox
grep -E '^(CapInh|CapAmb|Seccomp|Seccomp_filters|NoNewPrivs|SigBlk):' /proc/self/status
cp ` + sudoProgram + ` /tmp/probe && ` + keyringProbe + `=1 /tmp/probe`
	allowed := regexp.MustCompile(`^(` + strings.Join(inheritedBy, "|") + `)$`)
	for _, spec := range []Spec{{User: ""}, {User: rootUser}, {TTY: &Size{Cols: 80, Rows: 24}}} {
		spec.Path, spec.Args = "sh", []string{"-c", look}
		out, errOut, res := run(t, b, spec)
		assert.Zero(t, res.ExitCode, errOut)
		assert.Contains(t, out, "fd 1")
		assert.Contains(t, out, "umask 0022")
		assert.Contains(t, out, "request operation not permitted")
		for line := range strings.Lines(out) {
			line = strings.TrimSpace(line)
			assert.Regexp(t, allowed, line, "user %q, terminal %v", spec.User, spec.TTY != nil)
		}
	}
}

// TestRemovedDirectory: a box does without a directory of the machine that was there
// when the host began, such as a user's home.
func TestRemovedDirectory(t *testing.T) {
	const inside = "SANDBOX_TEST_REMOVED_HOME"
	if gone := os.Getenv(inside); gone != "" {
		h, err := NewHost(Options{Mode: Namespace})
		require.NoError(t, err)
		defer func() { assert.NoError(t, h.Close()) }()
		assert.Equal(t, "there", sh(t, newBox(t, h, Config{}), "test -d "+gone+" && echo there"))
		require.NoError(t, unix.Unmount(gone, unix.MNT_DETACH))
		require.NoError(t, os.Remove(gone))
		assert.Equal(t, "fine", sh(t, newBox(t, h, Config{}), "echo fine"))
		return
	}
	needs.Programs(t, "unshare", "mount")
	openHost(t, Options{Mode: Namespace})
	// The homes are this test's own.
	flags := "-m"
	if os.Geteuid() != 0 {
		flags = "-rm"
	}
	const script = `mount -t tmpfs homes /home && mkdir /home/gone && mount -t tmpfs -o mode=755 gone /home/gone && `
	if out, err := exec.CommandContext(t.Context(), "unshare", flags, "sh", "-c", script+"true").CombinedOutput(); err != nil {
		needs.Missing(t, "mount namespaces: %v: %s", err, out)
	}
	for _, rootless := range []bool{false, true} {
		if rootless && flags == "-m" {
			flags = "-rm"
		}
		cmd := exec.CommandContext(t.Context(), "unshare", flags, "sh", "-c", script+`exec "$1" -test.v "-test.run=^TestRemovedDirectory$"`, "sh", os.Args[0])
		cmd.Env = append(os.Environ(), inside+"=/home/gone", "HOME=/home")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), "PASS: TestRemovedDirectory")
	}
}
