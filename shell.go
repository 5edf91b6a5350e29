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

// ShellOptions says what runs in a terminal. The zero value opens the login
// shell of the sandbox's user, in a terminal of 80 columns and 24 rows.
type ShellOptions struct {
	// Command is the program to run; empty means the login shell.
	Command string
	// Args are the program's arguments, for which Command has to be given.
	Args []string
	// Env is added to the environment. TERM is xterm-256color unless it is
	// given here. Values are never shown in errors or logs.
	Env Env
	// Cwd is the directory to start in; empty means the session's. A login
	// shell of root starts in root's home all the same.
	Cwd string
	// Sudo runs the program as root. The protocol of terminals knows nothing of
	// it, so the program is started through sudo: what is run is
	// "sudo --preserve-env=NAMES -- Command Args…", with the names of Env, or
	// "sudo --login" without a Command.
	Sudo bool
	// Cols and Rows are the terminal's size; zero means 80 and 24.
	Cols, Rows int
	// KeepAlive, when not nil, extends the sandbox's timeout for as long as the
	// terminal is open, as [Sandbox.KeepAlive] does.
	KeepAlive *KeepAliveOptions
	// PingInterval is how often the other end is asked whether it is still
	// there. When it neither answers nor sends anything for that long again,
	// the connection is given up. Zero means 20 seconds; a negative duration
	// never asks.
	PingInterval time.Duration
}

// Format shows the options without values that may be secret, whatever the verb.
func (o ShellOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

const (
	defaultCols, defaultRows = 80, 24
	maxCells                 = 65535
	defaultPing              = 20 * time.Second
	// maxFrame bounds a message from the other end. No more than shellBuffer of
	// it is in memory.
	maxFrame    = 1 << 20
	shellBuffer = 32 << 10
	// goodbye is how long the end of a connection is waited for.
	goodbye = time.Second
)

// Shell is a program that runs in a terminal in the sandbox. What it writes is
// read from it, and what is written to it the program reads as if typed: "\x03"
// is Ctrl-C. Package terminal joins it to the terminal of this process.
//
// Somebody has to read: a program whose output nobody takes is held up. Read
// returns [io.EOF] after the last output of a program that has ended, and a
// [*ShellError] when the connection was lost.
//
// All methods may be called at the same time, Read by one goroutine at a time.
// Its goroutines and its connection end with the program, with the context that
// it was opened with, or with Close, whichever comes first; the program is hung
// up (SIGHUP) if it still runs.
type Shell struct {
	conn    *websocket.Conn
	ctx     context.Context // ends with the connection
	cancel  context.CancelCauseFunc
	sandbox string
	session string
	out     *io.PipeReader
	feed    *io.PipeWriter

	// heard counts signs of life; while feeding is true the reader is waiting
	// for the user and can't see any.
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

// ShellError reports a terminal that ended without the exit code of its
// program, because the connection was lost or ended by the other end. It
// matches [io.ErrUnexpectedEOF], and the cause: for a context that ended, its
// error.
type ShellError struct {
	// SandboxName and SessionID say where the terminal was.
	SandboxName, SessionID string
	// Code and Reason are what the other end said when it closed the
	// connection, as WebSocket close code; Code is 0 when it broke.
	Code   int
	Reason string
	// Err is the cause.
	Err error
}

// Error describes what happened in one line.
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

// Shell opens a terminal in the sandbox, resuming it if it is stopped, and runs
// a program in it. A nil opts opens a login shell. When ctx ends, the terminal is
// closed. The caller closes it.
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

// start makes the message that starts the program.
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

// newShell starts the program on a fresh connection. It has no goroutines yet.
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

// Read reads what the program has written.
func (s *Shell) Read(p []byte) (int, error) { return s.out.Read(p) }

// Write lets the program read p. It returns when the bytes were sent.
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

// Resize tells the terminal and its program of a new size.
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

// over returns the error of using a terminal that has come to its end.
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

// Wait waits until the program has ended and returns its exit code. Its output
// has to be read meanwhile. A terminal that ended in another way is a
// [*ShellError], or an error that matches [io.ErrClosedPipe] after Close. The end
// of this ctx only ends the wait.
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

// errShellClosed is the cause of a terminal's end by Close.
var errShellClosed = fmt.Errorf("sandbox: the terminal was closed: %w", io.ErrClosedPipe)

// Close closes the terminal; a program that still runs is hung up. It waits for
// the other end for a second at the most, and until nothing is left here. It can
// be called more than once, and its error is always nil.
func (s *Shell) Close() error {
	s.closing.Do(func() {
		s.out.CloseWithError(errShellClosed)
		s.finish(0, errShellClosed)
		// The other end should learn that this is meant. Cancelling breaks a
		// farewell that takes too long.
		timer := time.AfterFunc(goodbye, func() {
			s.cancel(errShellClosed)
			_ = s.conn.CloseNow() // the farewell has a patience of its own
		})
		_ = s.conn.Close(websocket.StatusNormalClosure, "") // may be closed already
		timer.Stop()
		s.cancel(errShellClosed)
		s.resources.Wait()
	})
	return nil
}

// String says where the terminal is.
func (s *Shell) String() string {
	return fmt.Sprintf("terminal in sandbox %s, session %s", s.sandbox, s.session)
}

// Format writes String, whatever the verb: the insides are of no use in a log.
func (s *Shell) Format(f fmt.State, verb rune) { redact.String(f, verb, s.String()) }

// finish sets the result, of which the first counts.
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
	_ = s.conn.CloseNow() // of no interest any more
	s.cancel(err)
}

// read passes output on until the exit code comes.
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
			// No message, so it is output, as the official CLI has it.
			s.give(text)
		} else if m.Type == "exit" {
			if m.Code == nil {
				return 0, s.lost(errors.New("the other end sent no exit code"))
			}
			return *m.Code, nil
		}
	}
}

// pass hands the output of one message to the reader.
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

// give waits until output was read. Once the terminal is closed it is dropped.
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

// lost makes the error of a connection that ended before the program.
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

// errSilent is the cause of giving up a connection that has gone dead.
var errSilent = errors.New("the other end does not answer any more")

// watch gives the connection up when the other end has gone silent.
func (s *Shell) watch(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		// While output waits to be read, no answer could be seen; and some
		// servers take it badly when they can't send theirs.
		if s.feeding.Load() {
			continue
		}
		heard := s.heard.Load()
		ctx, cancel := context.WithTimeout(s.ctx, every)
		err := s.conn.Ping(ctx)
		cancel()
		// Any other failure is for the reader to meet.
		if !errors.Is(err, context.DeadlineExceeded) || s.feeding.Load() || s.heard.Load() != heard {
			continue
		}
		s.cancel(errSilent)
		return
	}
}
