package sandboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/go-vercel/sandbox/terminal"
)

// asNobody returns a command that runs a server as an ordinary user.
func asNobody(t *testing.T) (cmd *exec.Cmd, env string) { return testkit.AsNobody(t, "^TestVictim$") }

// withoutSudo returns a command that runs a server on this machine without its
// sudo.
func withoutSudo(t *testing.T) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		needs.Missing(t, "root")
	}
	return inUserNamespace(t, "-m", `for sudo in $(IFS=:; for dir in $PATH; do echo "$dir/sudo"; done); do test ! -e "$sudo" || mount --bind /dev/null "$sudo"; done && `)
}

// machine describes an environment in which the emulator has more or fewer features.
type machine struct {
	name  string
	mode  sandboxtest.Mode
	start func(t *testing.T) *victim
}

var machines = []machine{
	{"root", sandboxtest.Namespace, func(t *testing.T) *victim {
		if os.Geteuid() != 0 {
			needs.Missing(t, "root")
		}
		return startVictim(t, sandboxtest.Auto, "")
	}},
	{"root without sudo", sandboxtest.Namespace, func(t *testing.T) *victim { return runVictim(t, sandboxtest.Auto, "", withoutSudo(t)) }},
	{"ordinary user", sandboxtest.Namespace, func(t *testing.T) *victim {
		cmd, env := asNobody(t)
		return runVictim(t, sandboxtest.Auto, "", cmd, env)
	}},
	{"user namespace", sandboxtest.Namespace, func(t *testing.T) *victim {
		return runVictim(t, sandboxtest.Auto, "", inUserNamespace(t, "-r", ""))
	}},
	{"folder mode", sandboxtest.Folder, func(t *testing.T) *victim { return startVictim(t, sandboxtest.Folder, "") }},
}

// world has what the rows of the table need on a machine.
type world struct {
	t    *testing.T
	v    *victim
	c    *sandbox.Client
	sb   *sandbox.Sandbox
	host string // where sandboxes reach the machine
	page string // a URL on it
	dir  string // one of its directories, writable by everybody
}

// script runs a script in a sandbox, and returns its output or why it failed.
func script(ctx context.Context, sb *sandbox.Sandbox, text string) (string, error) {
	done, err := sb.RunCommand(ctx, "sh", []string{"-c", text}, nil)
	if err != nil {
		return "", err
	}
	out, err := done.CombinedOutput(ctx)
	if err == nil && done.ExitCode != 0 {
		err = fmt.Errorf("exit code %d: %s", done.ExitCode, out)
	}
	return strings.TrimSpace(out), err
}

// expect returns an error unless a script prints the wanted text.
func (w *world) expect(sb *sandbox.Sandbox, want, text string) error {
	out, err := script(w.t.Context(), sb, text)
	if err == nil && out != want {
		err = fmt.Errorf("%q instead of %q", out, want)
	}
	return err
}

// fetch downloads the machine's page within a number of seconds.
func (w *world) fetch(sb *sandbox.Sandbox, seconds int) error {
	return w.expect(sb, "here", fmt.Sprintf("curl -sS -m %d --noproxy '*' %s", seconds, w.page))
}

const (
	everywhere = "root, root without sudo, ordinary user, user namespace, folder mode"
	namespaces = "root, root without sudo, ordinary user, user namespace"
	realRoot   = "root, root without sudo"
)

// ability is something that works on some machines. On the others it must fail. untried
// lists machines on which it is not tried: if sudo works in folder mode there, it would
// change the machine itself.
type ability struct {
	name, works, untried string
	try                  func(ctx context.Context, w *world) error
}

// changedPolicies needs namespaces and /dev/net/tun.
const changedPolicies = "policies, changed while it runs"

// slowAbilities start many programs.
var slowAbilities = []string{"ports", "sources", "package managers"}

// abilities are the rows of the table, with the machines that have them.
var abilities = []ability{
	{"commands", everywhere, "", func(ctx context.Context, w *world) error {
		done, err := w.sb.RunCommand(ctx, "sh", []string{"-c", "echo out; echo err >&2; exit 3"}, nil)
		if err != nil {
			return err
		}
		if done.ExitCode != 3 {
			return fmt.Errorf("exit code %d", done.ExitCode)
		}
		cmd, err := w.sb.StartCommand(ctx, "sleep", []string{"1000"}, nil)
		if err == nil {
			err = cmd.Kill(ctx)
		}
		if err != nil {
			return err
		}
		done, err = cmd.Wait(ctx)
		if err == nil && done.ExitCode != 137 {
			err = fmt.Errorf("exit code %d", done.ExitCode)
		}
		return err
	}},
	{"files", everywhere, "", func(ctx context.Context, w *world) error {
		fsys := w.sb.FS()
		err := errors.Join(fsys.MkdirAll(ctx, "deep/er", 0o755), fsys.WriteFile(ctx, "deep/er/file", []byte("text"), 0o640))
		if err != nil {
			return err
		}
		return w.expect(w.sb, "text 640", "echo $(cat deep/er/file) $(stat -c %a deep/er/file)")
	}},
	{"stop and resume, snapshots, forks", everywhere, "", func(ctx context.Context, w *world) error {
		first, err := w.c.Create(ctx, &sandbox.CreateOptions{Name: "kept"})
		if err != nil {
			return err
		}
		if err := w.expect(first, "", "mkdir dir; echo kept > dir/file"); err != nil {
			return err
		}
		if _, err := first.Stop(ctx, nil); err != nil {
			return err
		}
		if err := w.expect(first, "kept", "cat dir/file"); err != nil {
			return err
		}
		snap, err := first.Snapshot(ctx, nil)
		if err != nil {
			return err
		}
		second, err := w.c.Create(ctx, &sandbox.CreateOptions{Source: sandbox.SnapshotSource{SnapshotID: snap.ID()}})
		if err != nil {
			return err
		}
		third, err := w.c.Fork(ctx, "kept", nil)
		if err != nil {
			return err
		}
		return errors.Join(w.expect(second, "kept", "cat dir/file; rm dir/file"), w.expect(third, "kept", "cat dir/file"))
	}},
	{"terminals", everywhere, "", func(ctx context.Context, w *world) error {
		shell, err := terminal.Open(ctx, w.sb, &terminal.ShellOptions{Command: "sh", Args: []string{"-c", "test -t 0 && stty size && exit 5"}, Cols: 90, Rows: 30})
		if err != nil {
			return err
		}
		out, err := io.ReadAll(shell)
		if err != nil {
			return err
		}
		code, err := shell.Wait(ctx)
		if err == nil && (code != 5 || strings.TrimSpace(string(out)) != "30 90") {
			err = fmt.Errorf("exit code %d, %q", code, out)
		}
		return err
	}},
	{"the machine at host.internal", everywhere, "", func(_ context.Context, w *world) error { return w.fetch(w.sb, 60) }},
	{"ports", everywhere, "", func(ctx context.Context, w *world) error {
		port := needs.Port(w.t)
		sb, err := w.c.Create(ctx, &sandbox.CreateOptions{Ports: []int{port}})
		if err != nil {
			return err
		}
		server, err := sb.StartCommand(ctx, "/usr/bin/python3", []string{"-m", "http.server", strconv.Itoa(port)}, nil)
		if err != nil {
			return err
		}
		_, err = sb.WaitForPort(ctx, port, nil)
		return errors.Join(err, server.Signal(ctx, sandbox.SIGTERM))
	}},
	{"sources", everywhere, "", func(ctx context.Context, w *world) error {
		git, _ := gitServer(w.t, w.host)
		cloned, err := w.c.Create(ctx, &sandbox.CreateOptions{Runtime: "node24", Source: sandbox.GitSource{URL: git + "/repo/.git"}})
		if err != nil {
			return err
		}
		unpacked, err := w.c.Create(ctx, &sandbox.CreateOptions{Source: sandbox.TarballSource{URL: w.page + "tarball"}})
		if err != nil {
			return err
		}
		return errors.Join(w.expect(cloned, "second", "cat file"), w.expect(unpacked, "inside", "cat a/b.txt"))
	}},
	{"files apart from the machine's", namespaces, "", func(ctx context.Context, w *world) error {
		if _, err := script(ctx, w.sb, "echo x > "+w.dir+"/left 2>/dev/null; true"); err != nil {
			return err
		}
		_, err := os.Stat(w.dir + "/left")
		if err == nil {
			return errors.New("it wrote a file of the machine")
		}
		return nil
	}},
	{"sudo", realRoot, "folder mode", func(_ context.Context, w *world) error {
		return errors.Join(w.expect(w.sb, "0 ubuntu", "sudo sh -c 'echo $(id -u) $SUDO_USER'"), w.expect(w.sb, "0", "sudo touch /usr/local/probe && stat -c %u /usr/local/probe"))
	}},
	{"users and groups", realRoot, "folder mode", func(ctx context.Context, w *world) error {
		user, err := w.sb.CreateUser(ctx, "bob")
		if err != nil {
			return err
		}
		shared, err := w.sb.CreateGroup(ctx, "team")
		if err != nil {
			return err
		}
		if err := user.AddToGroup(ctx, "team"); err != nil {
			return err
		}
		done, err := user.RunCommand(ctx, "sh", []string{"-c", "echo $(id -un) $(pwd); touch " + shared + "/x; echo private > file; chmod 600 file"}, nil)
		if err != nil {
			return err
		}
		out, err := done.CombinedOutput(ctx)
		if err == nil && (done.ExitCode != 0 || out != "bob /home/bob\n") {
			err = fmt.Errorf("exit code %d, %q", done.ExitCode, out)
		}
		if err != nil {
			return err
		}
		return w.expect(w.sb, "refused", "sudo -u daemon cat /home/bob/file 2>/dev/null || echo refused")
	}},
	{"package managers", realRoot, "folder mode", func(_ context.Context, w *world) error {
		return w.expect(w.sb, "installed", `mkdir -p pkg/DEBIAN pkg/opt/own && printf 'Package: own\nVersion: 1\nArchitecture: all\nMaintainer: me <me@example.com>\nDescription: own\n' > pkg/DEBIAN/control &&
			echo installed > pkg/opt/own/file && dpkg-deb -b pkg own.deb >/dev/null && sudo dpkg -i own.deb >/dev/null && cat /opt/own/file`)
	}},
	{"deny-all from the start", namespaces, "", func(ctx context.Context, w *world) error {
		sb, err := w.c.Create(ctx, &sandbox.CreateOptions{NetworkPolicy: sandbox.DenyAll()})
		if err != nil {
			return err
		}
		if w.fetch(sb, 3) == nil {
			return errors.New("it reached the machine")
		}
		return nil
	}},
	{changedPolicies, namespaces, "", func(ctx context.Context, w *world) error {
		sb, err := w.c.Create(ctx, nil)
		if err != nil {
			return err
		}
		if err := w.fetch(sb, 60); err != nil {
			return err
		}
		if _, err := sb.UpdateNetworkPolicy(ctx, &sandbox.NetworkPolicy{Allow: []string{"example.com"}}); err != nil {
			return err
		}
		if w.fetch(sb, 3) == nil {
			return errors.New("it reached the machine")
		}
		if _, err := sb.UpdateNetworkPolicy(ctx, sandbox.AllowAll()); err != nil {
			return err
		}
		return w.fetch(sb, 60)
	}},
}

// TestWhatWorksWhere checks the table of docs/testing.md with this module's client: what
// sandboxes can do on machines that offer the emulator more or fewer features.
func TestWhatWorksWhere(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "curl", "git", "dpkg", "/usr/bin/python3")
	files := tarball(t, entry{name: "a/b.txt", content: "inside"})
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tarball" {
			_, _ = w.Write(files)
			return
		}
		_, _ = io.WriteString(w, "here")
	}))
	t.Cleanup(here.Close)
	for _, m := range machines {
		if !needs.Slow() && m.name != "ordinary user" {
			continue // other tests cover the other machines
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			v := m.start(t)
			if v.mode == sandboxtest.Folder && m.mode == sandboxtest.Namespace {
				v.kill() // so that its output is complete
				needs.Missing(t, "namespaces: %s", &v.stderr)
			}
			require.Equal(t, m.mode, v.mode)
			w := &world{t: t, v: v, c: v.sdk(), host: sandboxtest.HostName, dir: openToAll(t, "/var/tmp")} // not in /tmp: in every mode a sandbox has its own
			if m.mode == sandboxtest.Folder {
				w.host = "127.0.0.1"
			}
			w.page = fmt.Sprint("http://", w.host, ":", port(t, here.URL), "/")
			require.NoError(t, os.Chmod(w.dir, 0o777))
			var err error
			w.sb, err = w.c.Create(t.Context(), nil)
			require.NoError(t, err)
			for _, a := range abilities {
				if slices.Contains(strings.Split(a.untried, ", "), m.name) && runtime.GOOS != "linux" || slices.Contains(slowAbilities, a.name) && !needs.Slow() {
					continue
				}
				t.Run(a.name, func(t *testing.T) {
					works := slices.Contains(strings.Split(a.works, ", "), m.name)
					if works && a.name == changedPolicies && !testkit.HaveTUN() {
						needs.Missing(t, "%s", testkit.TUN)
					}
					err := a.try(t.Context(), w)
					assert.Equal(t, works, err == nil, "%v", err)
				})
			}
			assert.NoFileExists(t, "/usr/local/probe")
			assert.NoDirExists(t, "/opt/own")
		})
	}
}
