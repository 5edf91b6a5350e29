package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/redact"
)

// ShellOptions are the options of [Sandbox.Shell]. The zero value opens the
// login shell of the sandbox's user in a terminal of 80 columns and 24 rows.
type ShellOptions struct {
	// Command is the program to run; empty means the login shell.
	Command string
	// Args are the program's arguments; they require Command.
	Args []string
	// Env is added to the environment. TERM is xterm-256color by default.
	// Values are never shown in errors or logs.
	Env Env
	// Cwd is the working directory; empty means the session's. A login shell of
	// root always starts in root's home directory.
	Cwd string
	// Sudo runs the program as root. The terminal protocol does not support
	// this, so the program is started by sudo: as "sudo --preserve-env=NAMES --
	// Command Args…", with the names of Env, or as "sudo --login" without a
	// Command.
	Sudo bool
	// Cols and Rows are the terminal's size. Zero means 80 and 24.
	Cols, Rows int
	// KeepAlive, if not nil, extends the sandbox's timeout for as long as the
	// terminal is open, like [Sandbox.KeepAlive].
	KeepAlive *KeepAliveOptions
	// PingInterval is how often the connection is checked. If the other end
	// neither responds nor sends anything for another such interval, the
	// connection is abandoned. Zero means 20 seconds; a negative duration
	// disables the check.
	PingInterval time.Duration
}

// Format prints the options without values that may be secret, for every verb.
func (o ShellOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

const (
	defaultCols, defaultRows = 80, 24
	maxCells                 = 65535
	defaultPing              = 20 * time.Second
	// maxFrame limits a message from the other end, of which no more than
	// shellBuffer is in memory.
	maxFrame    = 1 << 20
	shellBuffer = 32 << 10
	// goodbye is how long the connection's closing handshake may take.
	goodbye = time.Second
)

// Shell is a program that runs in a terminal of the sandbox. Read returns what
// it writes, and the program reads what is passed to Write as if it were typed:
// "\x03" is Ctrl-C. Package terminal connects a Shell to the terminal of this
// process.
//
// The caller must keep reading: a program whose output is not read blocks. Read
// returns [io.EOF] after the last output of a program that has ended, and a
// [*ShellError] if the connection was lost.
//
// All methods are safe for concurrent use, except that only one goroutine at a
// time may call Read. The connection and its goroutines end with the program,
// the context passed to [Sandbox.Shell] or Close, whichever comes first; a
// program that still runs then receives SIGHUP.
type Shell struct {
	conn    *websocket.Conn
	ctx     context.Context // ends with the connection
	cancel  context.CancelCauseFunc
	sandbox string
	session string
	out     *io.PipeReader
	feed    *io.PipeWriter

	// heard counts signs of life. While feeding is set the reader is waiting
	// for the user and can't notice any.
	heard   atomic.Int64
	feeding atomic.Bool

	closing   sync.Once
	resources sync.WaitGroup

	once sync.Once
	done chan struct{} // closed when code and err are set
	code int
	err  error

	mu       sync.Mutex
	keepFail error // why the timeout is not extended any more
}

// ShellError reports a terminal that ended without an exit code of its program,
// because the connection was lost or closed by the other end. It matches
// [io.ErrUnexpectedEOF] and its cause, such as the error of a context that
// ended.
type ShellError struct {
	// SandboxName and SessionID identify where the terminal was.
	SandboxName, SessionID string
	// Code and Reason are the WebSocket close code and reason that the other
	// end sent; Code is zero if the connection broke.
	Code   int
	Reason string
	// Err is the cause.
	Err error
}

// Error returns a description in one line.
func (e *ShellError) Error() string {
	s := "sandbox: terminal in session " + e.SessionID + " ended without an exit code: "
	if e.Code == 0 && e.Err == nil {
		return s + "the cause is not known"
	}
	if e.Code == 0 {
		return redact.Printable(s + e.Err.Error())
	}
	s += fmt.Sprintf("closed by the other end with code %d", e.Code)
	if e.Reason != "" {
		s += fmt.Sprintf(" (%q)", e.Reason)
	}
	return s
}

// Unwrap returns [io.ErrUnexpectedEOF] and Err.
func (e *ShellError) Unwrap() []error { return []error{io.ErrUnexpectedEOF, e.Err} }

// Shell opens a terminal in the sandbox, resuming the sandbox if it is stopped,
// and runs a program in it. A nil opts opens a login shell. It makes one
// request and a WebSocket connection. If ctx ends, even after Shell has
// returned, the terminal is closed. The caller must close the Shell.
func (s *Sandbox) Shell(ctx context.Context, opts *ShellOptions) (*Shell, error) {
	var o ShellOptions
	if opts != nil {
		o = *opts
	}
	msg, err := o.start()
	if err != nil {
		return nil, err
	}
	var keep KeepAliveOptions // a copy: the caller may change its own
	if o.KeepAlive != nil {
		if keep, err = o.KeepAlive.withDefaults(); err != nil {
			return nil, err
		}
	}
	sh, err := withResume(ctx, s, func(cur *Session) (*Shell, error) {
		conn, err := cur.dialTerminal(ctx)
		if err != nil {
			return nil, err
		}
		m := *msg
		if m.Cwd == "" {
			m.Cwd = cur.Cwd()
		}
		return newShell(ctx, conn, s.Name(), cur.ID(), &m)
	})
	if err != nil {
		return nil, err
	}
	sh.resources.Go(sh.receive)
	if o.PingInterval >= 0 {
		if o.PingInterval == 0 {
			o.PingInterval = defaultPing
		}
		sh.resources.Go(func() { sh.watch(o.PingInterval) })
	}
	if o.KeepAlive != nil {
		sh.resources.Go(func() {
			err := s.KeepAlive(sh.ctx, &keep)
			sh.mu.Lock()
			defer sh.mu.Unlock()
			sh.keepFail = err
		})
	}
	return sh, nil
}

// shellMessage is a text frame of the terminal protocol.
type shellMessage struct {
	Type    string   `json:"type"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	Cwd     string   `json:"cwd,omitempty"`
	Cols    int      `json:"cols"`
	Rows    int      `json:"rows"`
}

// start returns the message that starts the program.
func (o *ShellOptions) start() (*shellMessage, error) {
	if err := errors.Join(checkText("Command", o.Command), checkText("Cwd", o.Cwd), checkEnv("Env", o.Env)); err != nil {
		return nil, err
	}
	for i, a := range o.Args {
		if err := checkText("Args", a); err != nil {
			return nil, fmt.Errorf("%w (number %d)", err, i+1)
		}
	}
	if o.Command == "" && len(o.Args) > 0 {
		return nil, invalid("Command", "is empty, but there are Args")
	}
	m := &shellMessage{Type: "start", Cwd: o.Cwd, Cols: o.Cols, Rows: o.Rows}
	if m.Cols == 0 {
		m.Cols = defaultCols
	}
	if m.Rows == 0 {
		m.Rows = defaultRows
	}
	if err := checkSize(m.Cols, m.Rows); err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(o.Env))
	if _, ok := o.Env["TERM"]; !ok {
		m.Env = append(m.Env, "TERM=xterm-256color")
	}
	for _, name := range names {
		if o.Sudo && strings.Contains(name, ",") {
			return nil, invalid("Env", "sudo can't pass on a variable with a comma in its name: %q", name)
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
	if cols < 1 || cols > maxCells || rows < 1 || rows > maxCells {
		return invalid("size", "%d columns and %d rows are outside 1 to %d", cols, rows, maxCells)
	}
	return nil
}

// newShell starts the program on a new connection. It has no goroutines yet.
func newShell(ctx context.Context, conn *websocket.Conn, sandbox, session string, start *shellMessage) (*Shell, error) {
	conn.SetReadLimit(maxFrame)
	s := &Shell{conn: conn, sandbox: sandbox, session: session, done: make(chan struct{})}
	s.out, s.feed = io.Pipe()
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	if err := s.send(start); err != nil {
		err = s.lost(err)
		s.cancel(err)
		conn.CloseNow()
		return nil, err
	}
	return s, nil
}

func (s *Shell) send(message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return s.conn.Write(s.ctx, websocket.MessageText, data)
}

// Read implements [io.Reader]. It reads the output of the program.
func (s *Shell) Read(p []byte) (int, error) { return s.out.Read(p) }

// Write implements [io.Writer]. It passes p to the program as input, and
// returns when p was sent.
func (s *Shell) Write(p []byte) (int, error) {
	for sent := 0; ; {
		if err := s.over(); err != nil {
			return sent, err
		}
		if sent == len(p) {
			return sent, nil
		}
		n := min(len(p)-sent, shellBuffer)
		if err := s.conn.Write(s.ctx, websocket.MessageBinary, p[sent:sent+n]); err != nil {
			return sent, s.lost(err)
		}
		sent += n
	}
}

// Resize changes the size of the terminal.
func (s *Shell) Resize(cols, rows int) error {
	if err := checkSize(cols, rows); err != nil {
		return err
	}
	if err := s.over(); err != nil {
		return err
	}
	err := s.send(struct {
		Type string `json:"type"`
		Cols int    `json:"cols"`
		Rows int    `json:"rows"`
	}{"resize", cols, rows})
	if err != nil {
		return s.lost(err)
	}
	return nil
}

// over returns the error of using a terminal that has ended.
func (s *Shell) over() error {
	select {
	case <-s.done:
	default:
		return nil
	}
	if s.err != nil {
		return s.err
	}
	return fmt.Errorf("sandbox: the program of the terminal has ended: %w", io.ErrClosedPipe)
}

// Wait waits for the program to end and returns its exit code. Its output must
// be read meanwhile. If the terminal ended in another way, the error is a
// [*ShellError], or matches [io.ErrClosedPipe] after Close. If ctx ends, only
// the wait ends.
func (s *Shell) Wait(ctx context.Context) (exitCode int, err error) {
	select {
	case <-s.done:
		return s.code, s.err
	default:
	}
	select {
	case <-s.done:
		return s.code, s.err
	case <-ctx.Done():
		return 0, api.ContextError(ctx)
	}
}

// errShellClosed is the cause of the end by Close.
var errShellClosed = fmt.Errorf("sandbox: the terminal was closed: %w", io.ErrClosedPipe)

// Close closes the terminal; a program that still runs receives SIGHUP. It
// waits for at most a second for the other end, and for the terminal's
// goroutines. It may be called more than once and always returns nil.
func (s *Shell) Close() error {
	s.closing.Do(func() {
		s.out.CloseWithError(errShellClosed)
		s.finish(0, errShellClosed)
		// The other end should learn that this is intended. Canceling ends a
		// handshake that takes too long.
		timer := time.AfterFunc(goodbye, func() {
			s.cancel(errShellClosed)
			_ = s.conn.CloseNow() // the handshake has a longer timeout of its own
		})
		_ = s.conn.Close(websocket.StatusNormalClosure, "") // may already be closed
		timer.Stop()
		s.cancel(errShellClosed)
		s.resources.Wait()
	})
	return nil
}

// String describes where the terminal is.
func (s *Shell) String() string {
	return fmt.Sprintf("terminal in sandbox %s, session %s", s.sandbox, s.session)
}

// Format writes String for every verb.
func (s *Shell) Format(f fmt.State, verb rune) { redact.String(f, verb, s.String()) }

// finish sets the result, unless it is already set.
func (s *Shell) finish(code int, err error) {
	s.once.Do(func() {
		s.code, s.err = code, err
		close(s.done)
	})
}

// receive reads until the connection ends.
func (s *Shell) receive() {
	code, err := s.read()
	s.finish(code, err)
	if err == nil {
		err = io.EOF
		// The other end closes the connection now.
		ctx, cancel := context.WithTimeout(s.ctx, goodbye)
		s.feed.CloseWithError(err)
		_, _, _ = s.conn.Reader(ctx)
		cancel()
	}
	s.feed.CloseWithError(err)
	_ = s.conn.CloseNow() // its error no longer matters
	s.cancel(err)
}

// read passes output on until the exit code arrives.
func (s *Shell) read() (int, error) {
	buf := make([]byte, shellBuffer)
	for {
		kind, r, err := s.conn.Reader(s.ctx)
		if err != nil {
			return 0, s.lost(err)
		}
		s.heard.Add(1)
		if kind == websocket.MessageBinary {
			if err := s.pass(r, buf); err != nil {
				return 0, s.lost(err)
			}
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return 0, s.lost(err)
		}
		var m struct {
			Type string `json:"type"`
			Code *int   `json:"code"`
		}
		if json.Unmarshal(text, &m) != nil {
			// Not a message, so it is output, as in the official CLI.
			s.give(text)
		} else if m.Type == "exit" {
			if m.Code == nil {
				return 0, s.lost(errors.New("the other end sent no exit code"))
			}
			return *m.Code, nil
		}
	}
}

// pass gives the output in one message to the reader.
func (s *Shell) pass(r io.Reader, buf []byte) error {
	for {
		n, err := r.Read(buf)
		s.give(buf[:n])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// give waits until p was read. Once the terminal is closed it is dropped.
func (s *Shell) give(p []byte) {
	if len(p) == 0 {
		return
	}
	s.feeding.Store(true)
	stop := context.AfterFunc(s.ctx, func() { s.feed.CloseWithError(s.lost(context.Cause(s.ctx))) })
	_, _ = s.feed.Write(p)
	stop()
	s.feeding.Store(false)
	s.heard.Add(1)
}

// lost returns the error of a connection that ended before the program.
func (s *Shell) lost(err error) error {
	if cause := context.Cause(s.ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, errShellClosed) {
		return errShellClosed
	}
	if known, ok := errors.AsType[*ShellError](err); ok {
		return known
	}
	e := &ShellError{SandboxName: s.sandbox, SessionID: s.session, Err: err}
	if c, ok := errors.AsType[websocket.CloseError](err); ok {
		e.Code, e.Reason = int(c.Code), c.Reason
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keepFail != nil {
		e.Err = fmt.Errorf("%w; before that: %w", e.Err, s.keepFail)
	}
	return e
}

// errSilent is the cause of abandoning a dead connection.
var errSilent = errors.New("the other end no longer responds")

// watch abandons the connection if the other end is silent.
func (s *Shell) watch(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		// While output waits to be read, a response could not be noticed, and
		// some servers fail if they can't send theirs.
		if s.feeding.Load() {
			continue
		}
		heard := s.heard.Load()
		ctx, cancel := context.WithTimeout(s.ctx, every)
		err := s.conn.Ping(ctx)
		cancel()
		// Any other failure is noticed by the reader.
		if !errors.Is(err, context.DeadlineExceeded) || s.feeding.Load() || s.heard.Load() != heard {
			continue
		}
		s.cancel(errSilent)
		return
	}
}
