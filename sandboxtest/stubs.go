package sandboxtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// Invocation is a command that a [CommandHandler] replaces.
type Invocation struct {
	// Sandbox is the name of the sandbox and Session the ID of its session.
	Sandbox, Session string
	// Name is the program and Args are its arguments.
	Name string
	Args []string
	// Cwd is the working directory, absolute.
	Cwd string
	// Env is the environment that the sandbox and the command have set.
	Env map[string]string
	// Sudo reports whether the command was to run as root.
	Sudo bool
	// Stdin is the input that clients write to a command that was started with
	// an open standard input, until they close it. For other commands it is
	// empty.
	Stdin io.Reader
	// Stdout and Stderr receive the output, which clients see at once.
	Stdout, Stderr io.Writer

	machine *box.Box
}

// ReadFile reads a file of the sandbox, with the permissions of its user. A
// relative path is resolved in Cwd. Errors match [fs.ErrNotExist] and the like.
func (inv *Invocation) ReadFile(name string) ([]byte, error) {
	f, err := inv.machine.ReadFile(name, inv.Cwd)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// WriteFile writes a file of the sandbox, which belongs to its user, with the
// permission bits of perm. Missing directories are created. A relative path is
// resolved in Cwd.
func (inv *Invocation) WriteFile(name string, data []byte, perm fs.FileMode) error {
	var archive bytes.Buffer
	zw := gzip.NewWriter(&archive)
	tw := tar.NewWriter(zw)
	if !path.IsAbs(name) {
		name = path.Join(inv.Cwd, name)
	}
	name = strings.TrimPrefix(path.Clean(name), "/")
	err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(perm.Perm()), Size: int64(len(data)), ModTime: time.Now()})
	if err == nil {
		_, err = tw.Write(data)
	}
	if err = errors.Join(err, tw.Close(), zw.Close()); err != nil {
		return err
	}
	return inv.machine.Extract(context.Background(), &archive, "/")
}

// CommandHandler replaces a program. It returns the exit code. ctx ends
// when the command is killed, times out, or its session stops; the exit code
// is then that of the signal, whatever the handler returns. A handler that
// does not return then holds up the stop of its session.
type CommandHandler func(ctx context.Context, inv *Invocation) int

// stubs are the handlers that replace programs.
type stubs struct {
	mu   sync.Mutex
	list []stub
}

type stub struct {
	words  []string
	handle CommandHandler
}

// HandleCommand makes handler replace the commands that match pattern, in all
// sandboxes. A pattern consists of words separated by spaces: the first
// matches the name of the program, the others its first arguments, and each may
// have the wildcards of [path.Match], except that "*" also matches "/". "npm
// install" matches npm install --save-dev x, and "git" all of git. Of several
// matching patterns the one with the most words is used, and of those the last
// one registered. It panics if the pattern is empty or malformed.
func (s *Server) HandleCommand(pattern string, handler CommandHandler) {
	if handler == nil {
		panic("sandboxtest: HandleCommand needs a handler")
	}
	words := strings.Fields(pattern)
	if len(words) == 0 {
		panic("sandboxtest: HandleCommand: the pattern is empty")
	}
	for _, w := range words {
		if _, err := path.Match(w, ""); err != nil {
			panic(fmt.Sprintf("sandboxtest: HandleCommand: pattern %q: %v", pattern, err))
		}
	}
	s.stubs.mu.Lock()
	defer s.stubs.mu.Unlock()
	s.stubs.list = append(s.stubs.list, stub{words, handler})
}

// find returns the handler that matches a command best, or nil.
func (st *stubs) find(name string, args []string) store.Stub {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.list) == 0 {
		return nil
	}
	words := append([]string{name}, args...)
	var best *stub
	for i := range st.list {
		if s := &st.list[i]; s.matches(words) && (best == nil || len(s.words) >= len(best.words)) {
			best = s
		}
	}
	if best == nil {
		return nil
	}
	handle := best.handle
	return func(ctx context.Context, inv *store.Invocation) int {
		return handle(ctx, &Invocation{
			Sandbox: inv.Sandbox, Session: inv.Session, Name: inv.Name, Args: inv.Args, Cwd: inv.Cwd, Env: inv.Env, Sudo: inv.Sudo,
			Stdin: inv.Stdin, Stdout: inv.Stdout, Stderr: inv.Stderr, machine: inv.Machine,
		})
	}
}

func (s *stub) matches(words []string) bool {
	if len(s.words) > len(words) {
		return false
	}
	for i, word := range s.words {
		// In path.Match "*" does not match a slash, which arguments often contain.
		ok, _ := path.Match(strings.ReplaceAll(word, "/", "\x00"), strings.ReplaceAll(words[i], "/", "\x00"))
		if !ok {
			return false
		}
	}
	return true
}
