package terminal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/entry"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/shell"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/observe"
)

// ShellOptions are the options of [Open]. The zero value opens the
// login shell of the sandbox's user in a terminal of 80 columns and 24 rows.
type ShellOptions struct {
	// Command is the program to run; empty means the login shell.
	Command string
	// Args are the program's arguments; they require Command.
	Args []string
	// Env is added to the environment. TERM is xterm-256color by default.
	// Values are never shown in errors or logs.
	Env sandbox.Env
	// Cwd is the working directory; empty means the session's. A login shell of
	// root always starts in root's home directory.
	Cwd string
	// Sudo runs the program as root. The terminal protocol does not support this, so
	// the program is started as "sudo --preserve-env=NAMES -- Command Args…", with the
	// names of Env, or as "sudo --login" without a Command.
	Sudo bool
	// Cols and Rows are the terminal's size. Zero means 80 and 24.
	Cols, Rows int
}

// Format prints the options for every verb, without values that may be secret.
func (o ShellOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

const (
	defaultCols, defaultRows = 80, 24
	// pingInterval is the interval of pings. If the other end neither responds to two pings
	// nor sends anything within another two intervals, the connection is lost. There is an
	// exception: the connection is kept if more input is in flight than a terminal buffers,
	// because the program may be slow to read.
	pingInterval = 20 * time.Second
)

// Shell is a program that runs in a terminal of the sandbox. Read returns its output. Write
// sends input as if it were typed: "\x03" is Ctrl-C. [Attach] connects a Shell to the
// terminal of this process.
//
// The caller must keep reading: a program whose output is not read blocks. Read returns
// [io.EOF] after the last output of a program that has ended, and a [*ShellError] if the
// connection was lost.
//
// All methods are safe for concurrent use, except that only one goroutine at a time may
// call Read. The connection and its goroutines end when the program ends, the context of
// [Open] ends, or Close is called. A program that still runs then receives SIGHUP.
type Shell struct {
	conn             *shell.Conn
	sandbox, session string
}

// ShellError reports a terminal that ended without an exit code of its program, because
// the connection was lost or the other end closed it. It matches [io.ErrUnexpectedEOF] and
// its cause, such as the error of a context.
type ShellError struct {
	// Err is the cause.
	Err error

	session string
	// code and reason are from the WebSocket's close message. code is zero if the
	// connection broke.
	code   int
	reason string
}

// Error returns a description in one line.
func (e *ShellError) Error() string {
	s := "terminal: the terminal in session " + e.session + " ended without an exit code: "
	if e.code == 0 && e.Err == nil {
		return s + "unknown cause"
	}
	if e.code == 0 {
		return redact.Printable(s + e.Err.Error())
	}
	s += fmt.Sprintf("closed by the other end with code %d", e.code)
	if e.reason != "" {
		s += fmt.Sprintf(" (%q)", e.reason)
	}
	return s
}

// Unwrap returns [io.ErrUnexpectedEOF] and Err.
func (e *ShellError) Unwrap() []error { return []error{io.ErrUnexpectedEOF, e.Err} }

// Open opens a terminal in the sandbox and runs a program in it. It resumes the sandbox if
// it is stopped. A nil opts opens a login shell. Open makes one request and a WebSocket
// connection, with the HTTPClient of the sandbox's client. If ctx ends, even after Open has
// returned, the terminal is closed. The caller must close the Shell.
//
// An open terminal does not extend the sandbox's timeout; use [sandbox.Sandbox.KeepAlive].
func Open(ctx context.Context, sb *sandbox.Sandbox, opts *ShellOptions) (*Shell, error) {
	if err := entry.Check(ctx, sb != nil, "terminal", "the Sandbox"); err != nil {
		return nil, err
	}
	o := *cmp.Or(opts, new(ShellOptions))
	start, err := o.startMessage()
	if err != nil {
		return nil, err
	}
	var socket shell.Socket
	session, cwd, err := api.DialTerminal(ctx, sb, func(ctx context.Context, transport http.RoundTripper, address, token string, secure bool) (err error) {
		socket, err = shell.Dial(ctx, transport, address, token, secure)
		return err
	})
	if err != nil {
		return nil, err
	}
	start.Cwd = cmp.Or(start.Cwd, cwd)
	sh := &Shell{sandbox: sb.Name(), session: session}
	if sh.conn, err = shell.Open(ctx, socket, start, sh.shellError); err != nil {
		return nil, err
	}
	_, end := observe.Start(context.WithoutCancel(ctx), sb.Observer(), observe.Event{Kind: observe.Terminal, Sandbox: sb.Name(), Session: session, Program: start.Command})
	sh.conn.Go(func(ctx context.Context) {
		<-ctx.Done()
		end(nil, nil)
	})
	sh.conn.Go(func(ctx context.Context) { sh.conn.Watch(ctx, pingInterval) })
	return sh, nil
}

// startMessage validates the options and returns the message that starts the program.
func (o *ShellOptions) startMessage() (*shell.Start, error) {
	if err := cmp.Or(invalidOption("Command", wire.CheckText(o.Command)), invalidOption("Cwd", wire.CheckText(o.Cwd)), invalidOption("Env", wire.CheckEnv(o.Env))); err != nil {
		return nil, err
	}
	for i, a := range o.Args {
		if err := wire.CheckText(a); err != nil {
			return nil, invalidOption("Args", fmt.Errorf("number %d %w", i+1, err))
		}
	}
	if o.Command == "" && len(o.Args) > 0 {
		return nil, invalidOption("Command", errors.New("is empty, but there are Args"))
	}
	m := &shell.Start{Cwd: o.Cwd, Cols: o.Cols, Rows: o.Rows}
	m.Cols = cmp.Or(m.Cols, defaultCols)
	m.Rows = cmp.Or(m.Rows, defaultRows)
	if err := checkSize(m.Cols, m.Rows); err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(o.Env))
	if _, ok := o.Env["TERM"]; !ok {
		m.Env = append(m.Env, "TERM=xterm-256color")
	}
	for _, name := range names {
		if o.Sudo && strings.Contains(name, ",") {
			return nil, invalidOption("Env", fmt.Errorf("sudo can't preserve a variable with a comma in its name: %q", name))
		}
		m.Env = append(m.Env, name+"="+o.Env[name])
	}
	m.Command, m.Args = o.Command, slices.Clone(o.Args)
	if o.Command == "" {
		m.Args = []string{"--login"}
	}
	if o.Sudo {
		var args []string
		if len(names) > 0 {
			args = append(args, "--preserve-env="+strings.Join(names, ","))
		}
		if o.Command != "" {
			args = append(args, "--", o.Command)
		}
		m.Command, m.Args = "sudo", append(args, m.Args...)
	}
	if m.Args == nil {
		m.Args = []string{}
	}
	return m, nil
}

func checkSize(cols, rows int) error {
	if cols < 1 || cols > wire.MaxCells || rows < 1 || rows > wire.MaxCells {
		return invalidOption("size", fmt.Errorf("%d columns and %d rows are outside 1 to %d", cols, rows, wire.MaxCells))
	}
	return nil
}

// invalidOption returns an ErrInvalid for a field; nil if err is nil.
func invalidOption(field string, err error) error {
	if err != nil {
		err = fmt.Errorf("terminal: %w: %s: %w", sandbox.ErrInvalid, field, err)
	}
	return err
}

func (s *Shell) isOpen() bool { return s != nil && s.conn != nil }

func (s *Shell) check() error { return entry.Made(s.isOpen(), "terminal", "the Shell") }

// Read implements [io.Reader]. It reads the output of the program.
func (s *Shell) Read(p []byte) (int, error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	return s.conn.Read(p)
}

// Write implements [io.Writer]. It sends p to the program as input, and returns when p was
// sent.
func (s *Shell) Write(p []byte) (int, error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	return s.conn.Write(p)
}

// Resize changes the size of the terminal.
func (s *Shell) Resize(cols, rows int) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := checkSize(cols, rows); err != nil {
		return err
	}
	return s.conn.Resize(cols, rows)
}

// Wait waits for the program to end and returns its exit code. The output must be read at
// the same time. If the terminal ended in another way, the error is a [*ShellError], or
// matches [io.ErrClosedPipe] after Close. The end of ctx ends only Wait.
func (s *Shell) Wait(ctx context.Context) (exitCode int, err error) {
	if err := entry.Check(ctx, s.isOpen(), "terminal", "the Shell"); err != nil {
		return 0, err
	}
	return s.conn.Wait(ctx)
}

// Close closes the terminal. A program that still runs receives SIGHUP. Close waits at most
// a second for the other end, and for the terminal's goroutines. It may be called more than
// once and returns nil, unless the Shell is nil or zero.
func (s *Shell) Close() error {
	if err := s.check(); err != nil {
		return err
	}
	s.conn.Close()
	return nil
}

// Format prints the terminal's sandbox and session for every verb.
func (s *Shell) Format(f fmt.State, verb rune) {
	s = cmp.Or(s, &Shell{})
	redact.String(f, verb, fmt.Sprintf("terminal in sandbox %s, session %s", s.sandbox, s.session))
}

// shellError returns the error of a connection that ended before the program.
func (s *Shell) shellError(err error, code int, reason string) error {
	if known, ok := errors.AsType[*ShellError](err); ok {
		return known
	}
	return &ShellError{session: s.session, Err: err, code: code, reason: reason}
}
