package box

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// If insideProbe is set, this program prints what it has in the sandbox where it runs. The
// value lists the host's namespaces.
const insideProbe = "SANDBOX_TEST_INSIDE"

func init() {
	namespaces := os.Getenv(insideProbe)
	if namespaces == "" {
		return
	}
	for fd := range 4096 {
		// Skip descriptors that this program has opened since: they are closed on exec.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			fmt.Println("fd", fd)
		}
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		fmt.Println("env", name)
	}
	for kv := range strings.FieldsSeq(namespaces) {
		kind, host, _ := strings.Cut(kv, "=")
		whose := "own"
		if now, err := os.Readlink("/proc/self/ns/" + kind); err != nil || now == host {
			whose = "shared"
		}
		fmt.Println("namespace", kind, whose)
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		rights, _, _ := strings.Cut(fields[5], ",")
		fmt.Println("mount", rights, kind[0], fields[4])
	}
	sockets, _ := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(sockets)) {
		if _, name, ok := strings.Cut(line, " @"); ok {
			fmt.Println("socket", strings.TrimSpace(name))
		}
	}
	for _, n := range []int{unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL} {
		_, _, errno := unix.RawSyscall6(uintptr(n), ^uintptr(0), ^uintptr(0), ^uintptr(0), ^uintptr(0), ^uintptr(0), ^uintptr(0))
		fmt.Println("call", n, errno)
	}
	for _, ring := range []int{unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING} {
		_, err := unix.KeyctlSearch(ring, "user", "secret-of-the-login", 0)
		fmt.Println("call keyctl", err)
	}
	// Repeat this as root of a user namespace, which may do more there.
	for _, kinds := range []uintptr{unix.CLONE_NEWUSER | unix.CLONE_NEWCGROUP, unix.CLONE_NEWCGROUP} {
		_, _, errno := unix.RawSyscall(unix.SYS_UNSHARE, kinds, 0, 0)
		fmt.Println("call unshare", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); errno != unix.ENOSYS {
		fmt.Println("call clone3", errno)
	}
	_ = filepath.WalkDir("/proc", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if filepath.Dir(name) == "/proc" && strings.ContainsAny(d.Name()[:1], "0123456789") {
			return fs.SkipDir // a process
		}
		if info, err := d.Info(); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o222 == 0 {
			return nil
		}
		if fd, err := unix.Open(name, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.Close(fd)
			fmt.Println("writes", name)
		}
		return nil
	})
	for kind, domain := range map[string]int{"vsock": unix.AF_VSOCK, "unix": unix.AF_UNIX} {
		_, err := unix.Socket(domain, unix.SOCK_STREAM, 0)
		fmt.Println("call socket", kind, err)
	}
	os.Exit(0)
}

// These lists contain, as patterns, everything that a program may have: in every sandbox
// (has), and in each kind of sandbox. Resource limits, priority and control group are not
// checked: they are those of the process that started the emulator.
var (
	has = []string{
		`fd [012]`, `Umask:\s0022`, `Sig(Blk|Ign|Cgt):\s0*`, `Cap(Inh|Amb):\s0*`, `Seccomp:\s2`, `Seccomp_filters:\s\d+`,
		`env (PWD|OLDPWD|HOME|USER|LOGNAME|SHELL|LANG|PATH|SHLVL|_|TERM|SUDO_USER|SSL_CERT_FILE|NODE_EXTRA_CA_CERTS|[A-Z_]*CA[A-Z_]*|` + insideProbe + `)`,
		`call \w+ operation not permitted`, `call socket vsock operation not permitted`, `call socket unix <nil>`,
		`namespace (cgroup|time|time_for_children) shared`,
	}
	inNamespaces = []string{
		`CapBnd:\s0000000[0-9a-f]*`, `NoNewPrivs:\s0`, `namespace (ipc|mnt|net|pid|pid_for_children|uts) own`,
		`mount rw overlay /`, `mount rw devpts /dev/pts`, `mount rw tmpfs /dev/shm`, `mount rw proc /proc`,
		// Empty devices; some cover files of the kernel.
		`mount rw \w+ (/dev/(null|zero|full|random|urandom|tty)|/proc/(keys|key-users|timer_list))`,
		// Everything that belongs to the machine is read-only.
		`mount ro .*`,
	}
	ofRoot = []string{`namespace user shared`}
	// The user's namespace within that of the sandboxes starts with all capabilities, which
	// have no effect outside it.
	ofRootless = []string{`namespace user own`, `CapBnd:.*`}
	// In sandboxes that share the machine's network, because there is no /dev/net/tun.
	inNetworkOfMachine = []string{`namespace net shared`, `socket .*`}
	inFolders          = []string{
		`CapBnd:.*`, `NoNewPrivs:\s1`, `namespace .* shared`, `mount .*`, `socket .*`, `env SANDBOX_BOX_ID`, `Umask:.*`, `writes .*`,
	}
)

// TestWhatABoxInherits: a program in a sandbox has nothing of the process that started the
// emulator except what is listed.
func TestWhatABoxInherits(t *testing.T) {
	t.Parallel()
	const inside = "SANDBOX_TEST_INHERITS"
	if os.Getenv(inside) != "" {
		whatABoxInherits(t)
		return
	}
	needs.Programs(t, "sh")
	secret := t.TempDir() + "/secret"
	require.NoError(t, os.WriteFile(secret, []byte("secret-of-a-file\n"), 0o600))
	// Start this test again as from a login: with open files, ignored signals, a blocked
	// signal, and a session keyring with a secret.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `trap '' INT HUP QUIT TSTP TTOU USR1; exec 7<"$1" 9</; exec "$2" -test.v "-test.run=^TestWhatABoxInherits$"`, "sh", secret, os.Args[0])
	cmd.Env = append(os.Environ(), inside+"=1", "SECRET_OF_THE_LOGIN=secret")
	var out buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := backend.OnThread(func() error {
		backend.NewSessionKeyring()
		if _, err := unix.AddKey("user", "secret-of-the-login", []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING); err != nil {
			fmt.Fprintln(&out, "no keyrings here:", err)
		}
		blocked := unix.Sigset_t{}
		blocked.Val[0] = 1 << (unix.SIGWINCH - 1)
		return errors.Join(unix.PthreadSigmask(unix.SIG_SETMASK, &blocked, nil), cmd.Run())
	})
	require.NoError(t, err, out.String())
	assert.Contains(t, out.String(), "PASS: TestWhatABoxInherits/folder")
	t.Log(out.String())
}

func whatABoxInherits(t *testing.T) {
	unix.Umask(0o077)
	assert.True(t, signal.Ignored(unix.SIGHUP), "the test was started with ignored signals")
	for _, mode := range []Mode{Namespace, Folder} {
		t.Run(string(mode), func(t *testing.T) {
			h := openHost(t, Options{Mode: mode})
			allowed := slices.Clone(has)
			switch {
			case mode == Folder:
				allowed = append(allowed, inFolders...)
			case h.Rootless():
				allowed = append(append(allowed, inNamespaces...), ofRootless...)
			default:
				allowed = append(append(allowed, inNamespaces...), ofRoot...)
			}
			if mode == Namespace && !h.Gated() {
				allowed = append(allowed, inNetworkOfMachine...)
			}
			t.Run("runtime", func(t *testing.T) {
				b := newBox(t, h, backend.Config{})
				program, err := os.Open(os.Args[0])
				require.NoError(t, err)
				defer program.Close()
				p := start(t, b, backend.Spec{Path: "sh", Args: []string{"-c", "cat > probe && chmod +x probe"}, OpenStdin: true})
				_, err = io.Copy(p.Input(), program)
				require.NoError(t, errors.Join(err, p.Input().Close()))
				require.Zero(t, p.Wait())
				assertInherits(t, b, "./probe", allowed)
			})
			if mode == Folder {
				return
			}
			t.Run("without a network", func(t *testing.T) {
				b := newBox(t, h, backend.Config{DenyNetwork: true})
				assert.Equal(t, "own", sh(t, b, `test "$(readlink /proc/self/ns/net)" = "$1" || echo own`, namespaceOf(t, "net")))
				assert.Empty(t, sh(t, b, `sed -n 's/.* @/@/p' /proc/net/unix`))
			})
		})
	}
	// It still ignores these signals after commands were started.
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGHUP, unix.SIGTSTP} {
		require.NoError(t, unix.Kill(os.Getpid(), sig))
	}
}

func namespaceOf(t *testing.T, kind string) string {
	name, err := os.Readlink("/proc/self/ns/" + kind)
	require.NoError(t, err)
	return name
}

// assertInherits runs the probe as every user of a sandbox, with a terminal, too.
func assertInherits(t *testing.T, b *Box, probe string, allowed []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/ns")
	require.NoError(t, err)
	namespaces := make([]string, 0, len(entries))
	for _, e := range entries {
		namespaces = append(namespaces, e.Name()+"="+namespaceOf(t, e.Name()))
	}
	pattern := regexp.MustCompile(`^(` + strings.Join(allowed, "|") + `)$`)
	if needs.BusyBox() {
		pattern = regexp.MustCompile(pattern.String() + `|^SigIgn:\s0*4$`) // its shell ignores SIGQUIT
	}
	const look = `while read line; do case $line in Sig[BI]*|Cap[IAB]*|Seccomp*|NoNew*|Umask*) echo "$line";; esac; done </proc/self/status; exec "$1"`
	specs := []backend.Spec{{User: backend.RootUser}, {TTY: &backend.Size{Cols: 80, Rows: 24}}, {User: ""}}
	if !needs.Slow() {
		specs = specs[:2] // which differ most
	}
	for _, spec := range specs {
		spec.Path, spec.Args = "sh", []string{"-c", look, "sh", probe}
		spec.Env = []string{insideProbe + "=" + strings.Join(namespaces, " ")}
		out, errOut, code := run(t, b, spec)
		assert.Zero(t, code, errOut)
		for _, line := range []string{"fd 1", "SigIgn:", "call keyctl operation not permitted", "call socket unix <nil>", "mount ", "namespace mnt "} {
			assert.Contains(t, out, line)
		}
		for line := range strings.Lines(out) {
			line = strings.TrimSpace(line)
			assert.Regexp(t, pattern, line, "user %q, terminal %v", spec.User, spec.TTY != nil)
		}
	}
}

// TestRemovedDirectory: a sandbox works although a directory of the machine that existed
// when the host started, such as a user's home, was removed.
func TestRemovedDirectory(t *testing.T) {
	t.Parallel()
	const inside = "SANDBOX_TEST_REMOVED_HOME"
	if gone := os.Getenv(inside); gone != "" {
		h, err := NewHost(Options{Mode: Namespace})
		require.NoError(t, err)
		defer func() { assert.NoError(t, h.Close()) }()
		assert.Equal(t, "there", sh(t, newBox(t, h, backend.Config{}), "test -d "+gone+" && echo there"))
		require.NoError(t, unix.Unmount(gone, unix.MNT_DETACH))
		require.NoError(t, os.Remove(gone))
		assert.Equal(t, "fine", sh(t, newBox(t, h, backend.Config{}), "echo fine"))
		return
	}
	needs.Programs(t, "unshare", "mount")
	sharedHost(t, Namespace) // skips where there are no namespaces
	// Start this test again in a mount namespace with its own /home.
	flags := "-m"
	if os.Geteuid() != 0 {
		flags = "-rm"
	}
	const script = `mount -t tmpfs homes /home && mkdir /home/gone && mount -t tmpfs -o mode=755 gone /home/gone && `
	if out, err := exec.CommandContext(t.Context(), "unshare", flags, "sh", "-c", script+"true").CombinedOutput(); err != nil {
		needs.Missing(t, "mount namespaces: %v: %s", err, out)
	}
	for _, rootless := range []bool{false, true} {
		if rootless && !needs.Slow() {
			continue
		}
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
