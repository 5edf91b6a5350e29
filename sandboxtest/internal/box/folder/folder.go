package folder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/inside"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

// Backend runs sandboxes in folders.
type Backend struct {
	Layers string // the directory of their trees
	Guest  *guest // nil where commands have the rights of this process
	reaper backend.Reaper
}

func (*Backend) Layered() bool   { return false }
func (*Backend) Networked() bool { return false }
func (*Backend) Close() error    { return nil }

func (f *Backend) NewMachine(id string, cfg backend.Config, dir string, layers []string) (backend.Machine, error) {
	m := &machine{reaper: &f.reaper, guest: f.Guest, id: id, dir: dir, root: filepath.Join(dir, "r"), mounts: cfg.Mounts}
	folders := append(cfg.AccountOrDefault().Dirs(), "/shared", "/tmp")
	// Boot gives other users access.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if len(layers) > 0 {
		return m, backend.CopyTree(filepath.Join(f.Layers, layers[0]), m.root)
	}
	for _, name := range folders {
		if err := backend.MkdirAll(m.real(name), 0o755); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// prefixes are the sandbox's own directories, whose names are translated.
var prefixes = []string{backend.VercelDir, backend.Home, "/shared", "/tmp"}

// machine runs host processes in a folder.
type machine struct {
	id, dir, root string
	guest         *guest
	reaper        *backend.Reaper
	leftovers     leftovers
	mounts        []backend.Mount
	opened        bool // the user of the commands can reach the folder
}

// Boot gives the folder to the user that runs the commands, and makes links to the drives
// in it, for the commands. File operations of the API don't use the links; see rootFS.
func (m *machine) Boot(context.Context) error {
	if !m.opened {
		if err := m.giveToGuest(); err != nil {
			return err
		}
		m.opened = true
	}
	return m.guest.do(m.linkDrives)
}

// giveToGuest makes the guest the owner of everything in the folder, and then lets the
// guest enter it.
func (m *machine) giveToGuest() error {
	errs := []error{m.guest.giveTree(m.root)}
	for _, mount := range m.mounts {
		errs = append(errs, m.guest.giveTree(mount.Dir))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Chmod(m.dir, 0o711)
}

func (m *machine) linkDrives() error {
	for _, mount := range m.mounts {
		point := m.real(mount.Path)
		if err := backend.MkdirAll(filepath.Dir(point), 0o755); err != nil {
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

// unlinkDrives removes the links to drives from the folder.
func (m *machine) unlinkDrives() error {
	var errs []error
	for _, mount := range m.mounts {
		point := m.real(mount.Path)
		if info, err := os.Lstat(point); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			errs = append(errs, os.Remove(point), backend.Mkdir(point, 0o755))
		}
	}
	return errors.Join(errs...)
}

// ownPrefix returns the directory of the sandbox at the start of s, or "".
func (m *machine) ownPrefix(s string) string {
	for _, mount := range m.mounts {
		if startsWithDir(s, mount.Path) {
			return mount.Path
		}
	}
	return ownPrefix(s)
}

// real returns the host's name of a path in the sandbox.
func (m *machine) real(name string) string {
	return filepath.Join(m.root, filepath.FromSlash(name))
}

// translate replaces, in a text, the names of the sandbox's own directories by the
// host's, and HostName by this machine's name.
func (m *machine) translate(s string) string {
	s = translateHost(s)
	if !strings.Contains(s, "/") {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		if s[i] == '/' && (i == 0 || !isNameByte(s[i-1])) {
			if strings.HasPrefix(s[i:], m.root) { // a program has found out the host's name of it
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

// ownPrefix returns the directory of the sandbox at the start of s, or "".
func ownPrefix(s string) string {
	for _, prefix := range prefixes {
		if startsWithDir(s, prefix) {
			return prefix
		}
	}
	return ""
}

// startsWithDir reports whether s starts with dir or the name of something in it.
func startsWithDir(s, dir string) bool {
	rest, ok := strings.CutPrefix(s, dir)
	return ok && (rest == "" || !isNameByte(rest[0]) || rest[0] == '/')
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '/' || c == '.' || c == '_' || c == '-' || c >= 0x80
}

func (m *machine) Launch(cmd *exec.Cmd, spec *backend.Spec) (backend.Running, error) {
	if err := m.guest.do(func() error { return m.resolve(cmd, spec) }); err != nil {
		return nil, err
	}
	backend.NewSession(cmd, spec.TTY != nil)
	m.guest.setUser(cmd)
	return backend.StartChild(startThread, cmd, func() error {
		if err := forbidPrivileges(); err != nil {
			return err
		}
		return backend.Start(cmd, spec.Path)
	})
}

// resolve finds the directory and the program of a command.
func (m *machine) resolve(cmd *exec.Cmd, spec *backend.Spec) error {
	cmd.Dir = spec.Dir
	if m.ownPrefix(spec.Dir) != "" {
		cmd.Dir = m.real(spec.Dir)
	}
	if err := backend.CheckDir(cmd.Dir, spec.Dir); err != nil {
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
	cmd.Env = append(backend.HostEnv(env), backend.MarkerKey+"="+m.id)
	name := cmd.Args[0]
	var err error
	if cmd.Path, err = inside.LookPath(name, cmd.Dir, cmd.Env); err != nil {
		return backend.StartError(spec.Path, err)
	}
	return nil
}

func (m *machine) files(f func(backend.FileSystem) error) error {
	return m.guest.do(func() error { return m.withRoot(f) })
}

func (m *machine) withRoot(f func(backend.FileSystem) error) error {
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

func (m *machine) ReadFile(name string) (io.ReadCloser, error) {
	return backend.OpenFile(m.files, name)
}

func (m *machine) Mkdir(name string, parents bool) error {
	return m.files(func(f backend.FileSystem) error { return backend.MakeDir(f, name, parents) })
}

func (m *machine) Extract(ctx context.Context, archive io.Reader, dir string) error {
	return m.files(func(f backend.FileSystem) error { return backend.Extract(ctx, f, archive, dir) })
}

func (m *machine) OpenTerminal(size backend.Size, _ string) (*backend.Terminal, error) {
	term, err := backend.OpenTerminal(size)
	if err != nil {
		return nil, err
	}
	if err := m.guest.giveTerminal(term); err != nil {
		return nil, errors.Join(err, term.Slave.Close(), term.Master.Close())
	}
	return term, nil
}

func (m *machine) Dial(ctx context.Context, port int) (net.Conn, error) {
	return backend.DialLoopback(ctx, port)
}

func (m *machine) Ended(pid int) { m.leftovers.add(pid) }

func (m *machine) Disconnect() {}

func (m *machine) Network() (in, out int64) { return 0, 0 }

func (m *machine) Halt(commands []backend.Command) error {
	// A real machine stops all processes at once. Stop them all before killing them, so
	// that none sees another one end.
	for _, sig := range []syscall.Signal{backend.StopSignal, syscall.SIGKILL} {
		for _, p := range commands {
			_ = p.SignalGroup(int(sig))
		}
	}
	m.leftovers.kill()
	m.reaper.Kill(m.id)
	return nil
}

func (m *machine) Freeze() (string, int64, error) {
	if err := m.guest.do(m.unlinkDrives); err != nil {
		return "", 0, err
	}
	size, err := backend.DiskUsage(m.root)
	return m.root, size, err
}
