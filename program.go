package sandbox

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"

	"github.com/go-vercel/sandbox/internal/clean"
	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/outputs"
)

const (
	// maxStdout limits the standard output of a helper program, unless it is read as it
	// arrives. The longest outputs are a path, or a message of useradd.
	maxStdout = 64 << 10
	// maxStderr limits the standard error of a helper program, of which the last keptStderr
	// bytes are kept. It is large because rm writes a line for each file.
	maxStderr, keptStderr = 16 << 20, 64 << 10
	// keptFileErrors is how much standard error is kept of a program that names each file
	// that it could not read. If there is more, the names are incomplete and the call fails.
	keptFileErrors = 4 << 20
)

// target is a Sandbox, a Session or a User, whose files and processes a call uses. The
// calls resume a stopped sandbox, except on a Session.
type target interface {
	RunCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*CommandResult, error)
	// begin starts a command; see Session.begin.
	begin(ctx, live context.Context, name string, args []string, o *CommandOptions, followed bool) (*Command, *follower, error)
	// mkdir creates one directory through the file API.
	mkdir(ctx context.Context, path string) error
	// openFile opens a file through the file API. The size is -1 if unknown.
	openFile(ctx context.Context, path, cwd string) (body io.ReadCloser, size int64, err error)
	// uploadTarGz unpacks an archive at the root. open is called for each
	// attempt, with the working directory of the session that receives it. It
	// returns how many bytes were sent.
	uploadTarGz(ctx context.Context, open func(cwd string) (io.ReadCloser, error)) (sent int64, err error)
	cwd() string
	// client returns the client that makes the requests.
	client() (*Client, error)
	named
}

var (
	_ target = (*Sandbox)(nil)
	_ target = (*Session)(nil)
)

// program is a helper program in the sandbox. It runs in the separate environment of
// package clean. It runs in / if possible, because the working directory may have been
// removed. The sandbox may have replaced the program by one with endless output: beyond
// the limits it is killed, and the error says so.
type program struct {
	name string
	args []string
	sudo bool
	// stdout reads standard output as it arrives. Nil makes it part of the
	// result.
	stdout io.Writer
	// keep is how many bytes at the end of standard error are kept. Zero means
	// keptStderr.
	keep int
	// paths are the arguments that name files. If one is relative, the program runs
	// in the working directory, and otherwise in /.
	paths []string
	// env is added to the sandbox's environment.
	env Env
	// outlives is set for a program that continues when the context ends: its change should
	// be completed, or it ends at once anyway.
	outlives bool
}

// run runs the program and waits for its end. A non-zero exit code is a result.
func (p program) run(ctx context.Context, on target) (done coreutils.Result, err error) {
	err = clean.Run(p.name, p.args, func(name string, args []string) (int, string, error) {
		done, err = p.command(ctx, on, name, args)
		return done.ExitCode, done.Stderr, err
	})
	return done, err
}

func (p program) command(ctx context.Context, on target, name string, args []string) (coreutils.Result, error) {
	stdout := &limitedOutput{Tail: outputs.Tail{Max: maxStdout}, from: "standard output of " + p.name, limit: maxStdout}
	stderr := &limitedOutput{Tail: outputs.Tail{Max: cmp.Or(p.keep, keptStderr)}, from: "standard error of " + p.name, limit: maxStderr}
	dir := "/"
	// A user's programs start in the home directory, like those of the official client.
	if _, user := on.(*User); user || slices.ContainsFunc(p.paths, func(name string) bool { return !path.IsAbs(name) }) {
		dir = ""
	}
	o := &CommandOptions{Cwd: dir, Env: p.env, Sudo: p.sudo, Stdout: p.stdout, Stderr: stderr, KillOnCancel: !p.outlives}
	if o.Stdout == nil {
		o.Stdout = stdout
	}
	done, err := on.RunCommand(ctx, name, args, o)
	if err != nil {
		if broken, ok := errors.AsType[*StreamError](err); ok && p.outlives && broken.Code == codeWriteFailed {
			if c, clientErr := on.client(); clientErr == nil {
				late, cancel := engine.Late(ctx, engine.KillGrace)
				defer cancel()
				_ = newCommand(c, broken.SessionID, wire.Command{ID: broken.CommandID}).Signal(late, SIGKILL)
			}
		}
		return coreutils.Result{Stderr: stderr.String()}, cmp.Or(stdout.err, stderr.err, err)
	}
	if err := done.endedWithSession(ctx); err != nil {
		return coreutils.Result{Stderr: stderr.String()}, err
	}
	return coreutils.Result{ExitCode: done.ExitCode, Stdout: stdout.String(), Stderr: stderr.String()}, nil
}

// limitedOutput keeps the last bytes that are written to it, and fails beyond its
// limit.
type limitedOutput struct {
	outputs.Tail
	from  string
	limit int64
	err   error
}

func (l *limitedOutput) Write(p []byte) (int, error) {
	if l.Total()+int64(len(p)) > l.limit {
		l.err = fmt.Errorf("%w: the %s is longer than %d bytes", coreutils.ErrOutput, l.from, l.limit)
		return 0, l.err
	}
	return l.Tail.Write(p)
}

// commandReader reads the output of a running command in constant memory. Its goroutine
// runs until Close, which ends the command.
type commandReader struct {
	*bufio.Reader
	cancel context.CancelFunc
	pipe   *io.PipeReader
	done   chan struct{}
	result coreutils.Result // after Close
}

// readCommand starts a command that reads path, and returns when it has written something
// or ended. If the command fails, the error is an *FSError, which is returned at once or
// after the output. If isComplete is not nil and reports that the output is complete
// nevertheless, there is no error.
func readCommand(ctx context.Context, t target, path, name string, args []string, isComplete func(coreutils.Result) bool) (*commandReader, error) {
	ctx, cancel := context.WithCancel(ctx)
	pr, pw := io.Pipe()
	r := &commandReader{
		Reader: bufio.NewReaderSize(pr, 64<<10),
		cancel: cancel, pipe: pr, done: make(chan struct{}),
	}
	go func() {
		defer close(r.done)
		name, args := coreutils.Carry(name, args)
		p := program{name: name, args: args, paths: []string{path}, stdout: pw}
		if isComplete != nil {
			p.keep = keptFileErrors
		}
		done, err := p.run(ctx, t)
		if r.result = done; err == nil && done.ExitCode != 0 && (isComplete == nil || !isComplete(done)) {
			err = programError(coreutils.NewError(name, done.ExitCode, done.Stderr))
		}
		pw.CloseWithError(err) // nil is io.EOF
	}()
	if _, err := r.Peek(1); err != nil && err != io.EOF {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close ends the command and waits for the goroutine.
func (r *commandReader) Close() error {
	r.cancel()
	r.pipe.CloseWithError(errors.New("sandbox: read after Close"))
	<-r.done
	return nil
}

// openEncoded reads a file through a command's output, as base64, because output is
// always UTF-8.
func openEncoded(ctx context.Context, t target, path string) (io.ReadCloser, int64, error) {
	r, err := readCommand(ctx, t, path, "base64", coreutils.Operands(path), nil)
	if err != nil {
		return nil, -1, err
	}
	return encodedBody{base64.NewDecoder(base64.StdEncoding, r), r}, -1, nil
}

// blocksScript writes blocks of a file as base64, and exits with dd's status.
const blocksScript = `exec 4>&1
code=$({ { dd if="$1" bs=65536 skip="$2" count="$3"; echo $? >&3; } | base64 3>&- >&4 4>&-; } 3>&1)
exit "$code"`

// pieceBlock is the size of such a block.
const pieceBlock = 64 << 10

// readBlocks reads part of a file, in blocks, through a command's output. The result is
// shorter at the end of the file.
func readBlocks(ctx context.Context, t target, path string, skip, count int64) ([]byte, error) {
	args := []string{"-c", blocksScript, "sh", path, strconv.FormatInt(skip, 10), strconv.FormatInt(count, 10)}
	r, err := readCommand(ctx, t, path, "sh", args, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	size := count * pieceBlock
	data, err := io.ReadAll(io.LimitReader(base64.NewDecoder(base64.StdEncoding, r), size+1))
	if err == nil && int64(len(data)) > size {
		err = fmt.Errorf("%w: dd wrote more than %d bytes", coreutils.ErrOutput, size)
	}
	return data, err
}

// encodedBody is a file that is read through a command's output. It ends only when the
// command has ended, so it can't be cut short unnoticed.
type encodedBody struct {
	io.Reader
	io.Closer
}

// endedWithSession returns an error that matches [ErrStopped] if a program of a file
// operation was killed because its session ended. It makes one request, and only if a
// signal has ended the program.
func (c *CommandResult) endedWithSession(ctx context.Context) error {
	if c.ExitCode != 128+int(SIGKILL) && c.ExitCode != 128+int(SIGTERM) {
		return nil
	}
	client, err := c.Command.client()
	if err != nil {
		return err
	}
	session := newSession(client, wire.Session{ID: c.Command.SessionID()}, nil)
	if err := session.Refresh(ctx); err != nil || session.status() == StatusRunning {
		return nil // only the exit code is known
	}
	return &StreamError{
		Code: "sandbox_stopped", Message: "the program was killed when its session ended",
		SessionID: c.Command.SessionID(), CommandID: c.Command.ID(), Err: ErrStopped,
	}
}
