package backend

import (
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

// The user of a box with a runtime and its directories, and the numbers of
// every box's user.
const (
	WorkDir  = "/vercel/sandbox"
	User     = "vercel-sandbox"
	Home     = "/home/vercel-sandbox"
	UserID   = 1000
	GroupID  = 1000
	RootUser = "root"
)

// Errors that callers test for with errors.Is.
var (
	// ErrStopped means that the box is stopped, or its host closed.
	ErrStopped = errors.New("box is stopped")
	// ErrLoopbackOnly means that a server can't be reached from outside the box,
	// since it listens only on loopback addresses.
	ErrLoopbackOnly = errors.New("listens on the loopback interface only")
	// ErrTooManyLayers means that a chain of layers is longer than the kernel
	// can stack.
	ErrTooManyLayers = errors.New("too many layers")
	// ErrBadPath means that a path is empty, or has a NUL byte, or leads out of
	// the box.
	ErrBadPath = errors.New("bad path")
	// ErrBadArchive means that an archive is damaged, too large, or has an
	// entry that can't be unpacked safely.
	ErrBadArchive = errors.New("bad archive")
	// ErrUnsupported means that the operation is not possible in this mode.
	ErrUnsupported = errors.New("not supported in this mode")
)

// Backend is what a mode has to provide for a host.
type Backend interface {
	// NewMachine makes the machine of one box, not yet started, whose files
	// live under dir, on top of the given layers (newest first).
	NewMachine(id string, cfg Config, dir string, layers []string) (Machine, error)
	// Layered says whether a layer holds only the difference to its parent.
	Layered() bool
	// Networked says whether boxes have networks of their own.
	Networked() bool
	Close() error
}

// Visible is what boxes see of this machine by Options.
type Visible struct {
	Trusted     []byte   `json:"trusted,omitempty"`
	HomeFolders []string `json:"homeFolders,omitempty"`
	Hidden      []string `json:"hidden"`
}

// Config describes a new box.
type Config struct {
	// Layer is what the box starts from. Empty means a new system.
	Layer LayerID
	// DenyNetwork starts the box without a network but loopback. See
	// [Box.SetNetwork].
	DenyNetwork bool
	// Mounts are the drives to mount. A drive with Keep may be mounted in one box
	// at a time.
	Mounts []Mount
	// Firewall decides what leaves the box, if [Host.Gated] reports true. Nil lets
	// everything through.
	Firewall *firewall.Firewall `json:"-"`
	// Account is the box's user. The zero value is RuntimeAccount.
	Account Account
	// Hostname is the box's own, in namespace mode. Empty means "sandbox".
	Hostname string
}

// Machine is what a mode has to provide for a box.
type Machine interface {
	Boot(ctx context.Context) error
	// Launch resolves cmd.Args[0] and the directory inside the box and starts
	// it; the errors that a shell would report are *LaunchError. The standard
	// files of cmd are *os.File or nil.
	Launch(cmd *exec.Cmd, spec *Spec) (Running, error)
	// OpenTerminal opens a pseudo terminal.
	OpenTerminal(size Size, user string) (*Terminal, error)
	// These work on the box's files with the rights of its user; names are
	// clean and absolute.
	ReadFile(name string) (io.ReadCloser, int64, error)
	Mkdir(name string, parents bool) error
	Extract(ctx context.Context, archive io.Reader, dir string, max Limits) error
	Dial(ctx context.Context, port int) (net.Conn, error)
	SetNetwork(deny bool) error
	// Disconnect breaks all connections to the outside.
	Disconnect()
	Network() (in, out int64)
	// Ended is called for each process that has exited.
	Ended(pid int)
	// Halt ends every process and waits until they are gone.
	Halt(commands []Command) error
	// Freeze gives the directory that becomes the layer, and its size.
	Freeze() (dir string, size int64, err error)
}

// Running is a process that was started.
type Running interface {
	// Pid is the process ID as the host sees it.
	Pid() int
	// Wait is called once.
	Wait() Exit
}

// Exit is how a process ended.
type Exit struct {
	Code int
	CPU  time.Duration
}

// AccountOrDefault is the account of the box.
func (c *Config) AccountOrDefault() Account {
	if c.Account == (Account{}) {
		return RuntimeAccount
	}
	return c.Account
}

// LayerID names a layer of one host directory.
type LayerID string

// HalfWritten ends the names of files that WriteFile was writing when its process
// died.
const HalfWritten = ".new"

// Flattener is a backend that can merge its layers, because they are differences.
type Flattener interface {
	// Flatten merges a chain (newest first), without what is below it, into one
	// layer in the new directory dir. The layers of the chain stay as they are.
	Flatten(chain []string, dir string) error
	// MaxLayers is the longest chain that can be stacked as it is.
	MaxLayers() int
}

// Command is a command of a box that was started.
type Command interface {
	// SignalGroup sends a signal to its process group.
	SignalGroup(n int) error
	// Done is closed when the command has ended and its output was delivered.
	Done() <-chan struct{}
}
