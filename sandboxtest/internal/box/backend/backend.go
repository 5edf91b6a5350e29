package backend

import (
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/inside"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

// The user and the directories of a sandbox with a runtime, and the user and group IDs of
// every sandbox's user.
const (
	WorkDir  = "/vercel/sandbox"
	User     = "vercel-sandbox"
	Home     = "/home/vercel-sandbox"
	UserID   = inside.UserID
	GroupID  = 1000
	RootUser = inside.RootUser
)

// Errors that callers test for with errors.Is.
var (
	// ErrStopped means that the sandbox is stopped, or its host closed.
	ErrStopped = errors.New("sandbox is stopped")
	// ErrLoopbackOnly means that a server can't be reached from outside the sandbox, since
	// it listens only on loopback addresses.
	ErrLoopbackOnly = errors.New("listens on the loopback interface only")
	// ErrTooManyLayers means that a chain of layers is longer than the kernel
	// can stack.
	ErrTooManyLayers = errors.New("too many layers")
	// ErrBadPath means that a path is empty, or has a NUL byte, or leads out of
	// the sandbox.
	ErrBadPath = errors.New("bad path")
	// ErrBadArchive means that an archive is damaged, too large, or has an
	// entry that can't be unpacked safely.
	ErrBadArchive = errors.New("bad archive")
	// ErrUnsupported means that the operation is not possible in this mode.
	ErrUnsupported = errors.New("not supported in this mode")
)

// Backend implements a mode for a host.
type Backend interface {
	// NewMachine creates the machine of one sandbox without starting it. Its files are
	// below dir, on top of the given layers (newest first).
	NewMachine(id string, cfg Config, dir string, layers []string) (Machine, error)
	// Layered reports whether a layer contains only the difference from its parent.
	Layered() bool
	// Networked reports whether sandboxes have their own networks.
	Networked() bool
	Close() error
}

// Visible describes which parts of this machine sandboxes see. Options documents the
// fields.
type Visible struct {
	Trusted     []byte   `json:"trusted,omitempty"`
	HomeFolders []string `json:"homeFolders,omitempty"`
	Hidden      []string `json:"hidden"`
}

// Config describes a new sandbox.
type Config struct {
	// Layer is the initial file system. Empty means a new one.
	Layer LayerID
	// DenyNetwork gives the sandbox no network but loopback, in namespace mode.
	DenyNetwork bool
	// Mounts are the drives to mount. A drive with Keep may be mounted in one sandbox at a
	// time.
	Mounts []Mount
	// Firewall decides what leaves the sandbox, if [Host.Gated] reports true. Nil allows
	// everything.
	Firewall *firewall.Firewall `json:"-"`
	// Account is the sandbox's user. The zero value is RuntimeAccount.
	Account Account
	// Hostname is the sandbox's host name, in namespace mode. Empty means "sandbox".
	Hostname string
}

// Machine implements a mode for a sandbox.
type Machine interface {
	Boot(ctx context.Context) error
	// Launch resolves cmd.Args[0] and the directory in the sandbox and starts the program.
	// Errors that a shell would report are of type *LaunchError. The standard files of cmd
	// are *os.File or nil.
	Launch(cmd *exec.Cmd, spec *Spec) (Running, error)
	// OpenTerminal opens a pseudo terminal.
	OpenTerminal(size Size, user string) (*Terminal, error)
	// These work on the sandbox's files with the rights of its user; names are clean and
	// absolute.
	ReadFile(name string) (io.ReadCloser, error)
	Mkdir(name string, parents bool) error
	Extract(ctx context.Context, archive io.Reader, dir string) error
	Dial(ctx context.Context, port int) (net.Conn, error)
	// Disconnect breaks all connections to the outside.
	Disconnect()
	Network() (in, out int64)
	// Ended tells the machine that a process has exited.
	Ended(pid int)
	// Halt ends every process, including the commands.
	Halt(commands []Command) error
	// Freeze returns the directory that becomes the layer, and its size.
	Freeze() (dir string, size int64, err error)
}

// Running is a running process.
type Running interface {
	// Pid is the host's ID of the process.
	Pid() int
	// Wait is called once.
	Wait() Exit
}

// Exit is how a process ended.
type Exit struct {
	Code int
	CPU  time.Duration
}

// AccountOrDefault returns Account, or RuntimeAccount if it is zero.
func (c *Config) AccountOrDefault() Account {
	if c.Account == (Account{}) {
		return RuntimeAccount
	}
	return c.Account
}

// LayerID identifies a layer of a host's directory.
type LayerID string

// HalfWritten is the suffix of files that WriteFile has not finished.
const HalfWritten = ".new"

// Flattener is a backend that can merge its layers, because they are differences.
type Flattener interface {
	// Flatten merges a chain (newest first), without the base below it, into one layer in
	// the new directory dir. It does not change the layers of the chain.
	Flatten(chain []string, dir string) error
	// MaxLayers is the length of the longest chain that can be mounted.
	MaxLayers() int
}

// Command is a started command of a sandbox.
type Command interface {
	// SignalGroup sends a signal to its process group.
	SignalGroup(n int) error
}
