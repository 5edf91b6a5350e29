package agent

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/inside"
)

// Each call to the agent has its own stream. A message is a header with file descriptors,
// followed by JSON.

const (
	messageHeader = 5 // number of files, length
	maxMessage    = 64 << 20
	maxFiles      = 4
)

// request is what the host sends to the agent.
type request struct {
	Op     string         `json:"op"`
	Host   string         `json:"host"`          // its directory
	Box    string         `json:"box,omitempty"` // ID
	Dir    string         `json:"dir,omitempty"`
	Layers []string       `json:"layers,omitempty"`
	Config backend.Config `json:"config"`
	Name   string         `json:"name,omitempty"`
	Flag   bool           `json:"flag,omitempty"`
	Port   int            `json:"port,omitempty"`
	// Seen, for "open", says which parts of this machine sandboxes see.
	Seen   backend.Visible `json:"seen"`
	Size   backend.Size    `json:"size"`
	Spec   *launchSpec
	Within time.Duration `json:"within,omitempty"` // 0 means no limit
}

// launchSpec is the part of a Spec that can be encoded. Its files are sent with it.
type launchSpec struct {
	Path, Dir, User string
	Args, Env       []string
	TTY             bool
	Files           [3]bool // which of the standard files it has
}

// response is the agent's response. After a failure only Failure is set.
type response struct {
	Failure *failure `json:"failure,omitempty"`
	Pid     int      `json:"pid,omitempty"`
	// Networked is the result of "open": sandboxes have their own networks.
	Networked bool         `json:"networked,omitempty"`
	Exit      backend.Exit `json:"exit"`
}

// failure is an encoded error: its text and the error that it matches.
type failure struct {
	Text string `json:"text"`
	Kind int    `json:"kind"` // index in knownErrors, or -1
	Exit int    `json:"exit,omitempty"`
}

// knownErrors are the errors that callers test for.
var knownErrors = []error{
	backend.ErrStopped, backend.ErrLoopbackOnly, backend.ErrBadPath, backend.ErrBadArchive, backend.ErrUnsupported, backend.ErrTooManyLayers, inside.ErrIsDir, inside.ErrNotDir, inside.ErrNotRegular,
	fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, syscall.ECONNREFUSED, syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, context.DeadlineExceeded,
}

func newFailure(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error()}
	if launch, ok := errors.AsType[*backend.LaunchError](err); ok {
		f.Exit = launch.Code
	}
	f.Kind = slices.IndexFunc(knownErrors, func(kind error) bool { return errors.Is(err, kind) })
	return f
}

func (f *failure) err() error {
	switch {
	case f == nil:
		return nil
	case f.Exit != 0:
		return &backend.LaunchError{Code: f.Exit, Message: f.Text}
	case f.Kind >= 0 && f.Kind < len(knownErrors):
		return &agentError{f.Text, knownErrors[f.Kind]}
	}
	return errors.New(f.Text)
}

// agentError is an error of the agent, with its text.
type agentError struct {
	text string
	kind error
}

func (e *agentError) Error() string { return e.text }
func (e *agentError) Unwrap() error { return e.kind }

// send writes one message with files.
func send(conn *net.UnixConn, v any, files ...*os.File) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxMessage {
		return fmt.Errorf("message of %d bytes is too long", len(body))
	}
	head := make([]byte, messageHeader)
	head[0] = byte(len(files))
	binary.BigEndian.PutUint32(head[1:], uint32(len(body)))
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			if fds[i], err = backend.Descriptor(f); err != nil {
				return err
			}
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := conn.WriteMsgUnix(head, rights, nil); err != nil {
		return err
	}
	_, err = conn.Write(body)
	return err
}

// receive reads one message. The caller closes the files.
func receive(conn *net.UnixConn, v any) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			backend.CloseAll(files)
			files = nil
		}
	}()
	head, rights := make([]byte, messageHeader), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, nrights, _, _, err := conn.ReadMsgUnix(head, rights)
	if err != nil {
		return nil, err
	}
	if nrights > 0 {
		messages, err := unix.ParseSocketControlMessage(rights[:nrights])
		if err != nil {
			return nil, err
		}
		for _, message := range messages {
			fds, err := unix.ParseUnixRights(&message)
			if err != nil {
				return files, err
			}
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				files = append(files, os.NewFile(uintptr(fd), "passed"))
			}
		}
	}
	if _, err := io.ReadFull(conn, head[n:]); err != nil {
		return files, err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if int(head[0]) != len(files) || length > maxMessage {
		return files, errors.New("damaged message")
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(conn, body); err != nil {
		return files, err
	}
	return files, json.Unmarshal(body, v)
}

// socketPair returns both ends of a connection: one to use and one to pass on.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "agent")
	ours, err := unixConn(os.NewFile(uintptr(fds[0]), "agent"))
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// unixConn converts a file to a connection, and closes the file.
func unixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("not a unix socket"), conn.Close())
	}
	return unixConn, nil
}
