package box

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

// markerKey is set in the environment of every process of a box in folder
// mode, so that those that have left their process group are found.
const markerKey = "SANDBOX_BOX_ID"

type folderBackend struct {
	log    *slog.Logger
	guest  *guest // nil where commands have the rights of this process
	reaper reaper
}

func (*folderBackend) layered() bool   { return false }
func (*folderBackend) networked() bool { return false }
func (*folderBackend) close() error    { return nil }

func (f *folderBackend) newMachine(b *Box, dir string, layers []string) (machine, error) {
	m := &folderMachine{reaper: &f.reaper, guest: f.guest, id: b.id, dir: dir, root: filepath.Join(dir, "r"), mounts: b.cfg.Mounts}
	folders := append(b.Account().dirs(), "/shared", "/tmp")
	if b.cfg.DenyNetwork {
		f.log.Warn("folder mode can't cut the network", "box", b.id)
	}
	// It is opened at the first boot.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if len(layers) > 0 {
		return m, copyTree(b.host.store.treeDir(LayerID(layers[0])), m.root)
	}
	for _, name := range folders {
		if err := mkdirs(m.real(name), 0o755); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// prefixes are the directories that are the sandbox's own: their names are
// translated.
var prefixes = []string{vercelDir, Home, "/shared", "/tmp"}

// folderMachine runs host processes in a folder.
type folderMachine struct {
	id, dir, root string
	guest         *guest
	reaper        *reaper
	left          leftovers
	mounts        []Mount
	open          bool
}

// boot gives the folder to the user of the commands, and links the drives into it
// for them. The machine itself finds drives by their names; see rootFS.
func (m *folderMachine) boot(context.Context) error {
	if !m.open {
		if err := m.hand(); err != nil {
			return err
		}
		m.open = true
	}
	return m.guest.do(m.linkDrives)
}

// hand opens the folder to the user of the commands, once all that was put there
// is the user's.
func (m *folderMachine) hand() error {
	errs := []error{m.guest.own(m.root)}
	for _, mount := range m.mounts {
		errs = append(errs, m.guest.own(mount.Dir))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Chmod(m.dir, 0o711)
}

func (m *folderMachine) linkDrives() error {
	for _, mount := range m.mounts {
		point := m.real(mount.Path)
		if err := mkdirs(filepath.Dir(point), 0o755); err != nil {
			return err
		}
		if err := os.Remove(point); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("mount on %s: %w", mount.Path, err)
		}
		if err := os.Symlink(mount.Dir, point); err != nil {
			return err
		}
	}
	return nil
}

// unlinkDrives takes the drives out of the folder.
func (m *folderMachine) unlinkDrives() error {
	var errs []error
	for _, mount := range m.mounts {
		point := m.real(mount.Path)
		if info, err := os.Lstat(point); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			errs = append(errs, os.Remove(point), mkdir(point, 0o755))
		}
	}
	return errors.Join(errs...)
}

// ownPrefix is the directory of the box that s starts with, or "".
func (m *folderMachine) ownPrefix(s string) string {
	for _, mount := range m.mounts {
		if startsWithDir(s, mount.Path) {
			return mount.Path
		}
	}
	return ownPrefix(s)
}

// real is the host's name of a path of the box.
func (m *folderMachine) real(name string) string {
	return filepath.Join(m.root, filepath.FromSlash(name))
}

// translate replaces the names of the sandbox's own directories in a text, and
// the name of the host, which here is the machine itself.
func (m *folderMachine) translate(s string) string {
	s = translateHost(s)
	if !strings.Contains(s, "/") {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		if s[i] == '/' && (i == 0 || !isNameByte(s[i-1])) {
			if strings.HasPrefix(s[i:], m.root) { // a program has found out the real name
				out.WriteString(m.root)
				i += len(m.root)
				continue
			}
			if prefix := m.ownPrefix(s[i:]); prefix != "" {
				out.WriteString(m.real(prefix))
				i += len(prefix)
				continue
			}
		}
		out.WriteByte(s[i])
		i++
	}
	return out.String()
}

// translateHost replaces HostName, unless it is part of another name.
func translateHost(s string) string {
	var out strings.Builder
	for {
		i := strings.Index(s, firewall.HostName)
		if i < 0 {
			out.WriteString(s)
			return out.String()
		}
		end := i + len(firewall.HostName)
		inName := func(c byte) bool { return c != '/' && isNameByte(c) }
		if i > 0 && inName(s[i-1]) || end < len(s) && inName(s[end]) {
			out.WriteString(s[:end])
		} else {
			out.WriteString(s[:i] + "127.0.0.1")
		}
		s = s[end:]
	}
}

// ownPrefix is the directory of the sandbox that s starts with, or "".
func ownPrefix(s string) string {
	for _, prefix := range prefixes {
		if startsWithDir(s, prefix) {
			return prefix
		}
	}
	return ""
}

// startsWithDir reports whether s starts with dir or the name of something in
// it.
func startsWithDir(s, dir string) bool {
	rest, ok := strings.CutPrefix(s, dir)
	return ok && (rest == "" || !isNameByte(rest[0]) || rest[0] == '/')
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '/' || c == '.' || c == '_' || c == '-' || c >= 0x80
}

func (m *folderMachine) launch(cmd *exec.Cmd, spec *Spec) (running, error) {
	if err := m.guest.do(func() error { return m.resolve(cmd, spec) }); err != nil {
		return nil, err
	}
	prepare(cmd, spec.TTY != nil)
	m.guest.become(cmd)
	return startChild(folderThread, cmd, func() error {
		if err := keepPrivileges(); err != nil {
			return err
		}
		return startOrExplain(cmd, spec.Path)
	})
}

// resolve finds the directory and the program of a command.
func (m *folderMachine) resolve(cmd *exec.Cmd, spec *Spec) error {
	cmd.Dir = spec.Dir
	if m.ownPrefix(spec.Dir) != "" {
		cmd.Dir = m.real(spec.Dir)
	}
	if err := enterable(cmd.Dir, spec.Dir); err != nil {
		return err
	}
	for i, arg := range cmd.Args {
		cmd.Args[i] = m.translate(arg)
	}
	env := slices.Clone(spec.Env)
	for i, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		env[i] = key + "=" + m.translate(value)
	}
	cmd.Env = append(hostEnv(env), markerKey+"="+m.id)
	name := cmd.Args[0]
	var err error
	if cmd.Path, err = lookPath(name, cmd.Dir, cmd.Env); err != nil {
		return notStarted(spec.Path, err)
	}
	return nil
}

func (m *folderMachine) files(f func(fsys) error) error {
	return m.guest.do(func() error { return m.withRoot(f) })
}

func (m *folderMachine) withRoot(f func(fsys) error) error {
	root, err := os.OpenRoot(m.root)
	if err != nil {
		return err
	}
	defer root.Close()
	all := rootFS{root: root, dir: m.root}
	for _, mount := range m.mounts {
		root, err := os.OpenRoot(mount.Dir)
		if err != nil {
			return err
		}
		defer root.Close()
		all.mounts = append(all.mounts, rootMount{mount.Path, mount.Dir, root})
	}
	return f(all)
}

func (m *folderMachine) readFile(name string) (io.ReadCloser, int64, error) {
	return readWith(m.files, name)
}

func (m *folderMachine) mkdir(name string, parents bool) error {
	return m.files(func(f fsys) error { return makeDir(f, name, parents) })
}

func (m *folderMachine) extract(ctx context.Context, archive io.Reader, dir string, max limits) error {
	return m.files(func(f fsys) error { return extract(ctx, f, archive, dir, max) })
}

func (m *folderMachine) openTerminal(size Size, _ string) (*terminal, error) {
	term, err := openTerminal(size)
	if err != nil {
		return nil, err
	}
	if err := m.guest.ownTerminal(term); err != nil {
		return nil, errors.Join(err, term.slave.Close(), term.master.Close())
	}
	return term, nil
}

func (m *folderMachine) dial(ctx context.Context, port int) (net.Conn, error) {
	return dialLoopback(ctx, port)
}

// dialLoopback tries both loopback addresses: servers differ in which one
// "localhost" is for them.
func dialLoopback(ctx context.Context, port int) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	conn, err6 := d.DialContext(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(port)))
	if err6 == nil {
		return conn, nil
	}
	return nil, err
}

func (m *folderMachine) setNetwork(deny bool) error {
	if deny {
		return ErrUnsupported
	}
	return nil
}

func (m *folderMachine) ended(pid int) { m.left.add(pid) }

func (m *folderMachine) disconnect() {}

func (m *folderMachine) network() (in, out int64) { return 0, 0 }

func (m *folderMachine) halt(procs []*Process) error {
	// A machine stops at once: none of them sees another one end.
	for _, sig := range []syscall.Signal{stopSignal, syscall.SIGKILL} {
		for _, p := range procs {
			_ = p.SignalGroup(int(sig))
		}
	}
	m.left.kill()
	m.reaper.kill(m.id)
	for _, p := range procs {
		<-p.done
	}
	return nil
}

func (m *folderMachine) freeze() (string, int64, error) {
	if err := m.guest.do(m.unlinkDrives); err != nil {
		return "", 0, err
	}
	var size int64
	err := filepath.WalkDir(m.root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && info.Mode().IsRegular() {
			size += storedSize(info)
		}
		return err
	})
	return m.root, size, err
}
