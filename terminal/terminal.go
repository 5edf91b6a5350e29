// Package terminal opens terminals in a sandbox, and connects them to the terminal
// of this process, for command-line tools:
//
//	code, err := terminal.Run(ctx, sb, nil, nil)
//
// Keys are sent to the sandbox as they are typed, changes of the window's size
// are passed on, and the local terminal is restored when the call returns, for
// whatever reason. As with ssh, Enter, ~ and . leave a terminal that hangs.
package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
	"golang.org/x/term"
)

// Options are the local end of a terminal. The zero value uses the standard
// streams of the process.
type Options struct {
	// Stdin is the program's input. Nil means [os.Stdin]. A terminal is put
	// into raw mode. At the end of any other file, a Ctrl-D is sent; two if the
	// file does not end in a newline, since the first then ends the line only. It is
	// sent again every second until the program ends, since a program that has not
	// begun to read yet may miss it: a program that reads on gets the end again.
	Stdin *os.File
	// Stdout receives the output. Nil means [os.Stdout]. The window's size is
	// that of Stdout or else of Stdin, whichever is a terminal.
	Stdout *os.File
	// NoEscape sends everything that is typed to the sandbox. Otherwise, at a
	// terminal, a "~" at the beginning of a line is held back: "~." ends the call
	// with [ErrLeft], "~~" sends one "~", and anything else is sent as typed.
	NoEscape bool
}

// ErrLeft is the error of a terminal that the user has left by "~."; see
// [Options.NoEscape]. The program in the sandbox is hung up on.
var ErrLeft = errors.New("terminal: left by the user")

func (o *Options) withDefaults() Options {
	var f Options
	if o != nil {
		f = *o
	}
	if f.Stdin == nil {
		f.Stdin = os.Stdin
	}
	if f.Stdout == nil {
		f.Stdout = os.Stdout
	}
	return f
}

// size returns the window's size. It reports false if there is no window.
func (o *Options) size() (cols, rows int, ok bool) {
	for _, f := range []*os.File{o.Stdout, o.Stdin} {
		if cols, rows, err := term.GetSize(int(f.Fd())); err == nil && cols > 0 && rows > 0 {
			return cols, rows, true
		}
	}
	return 0, 0, false
}

// SignalError reports that a signal to this process ended the terminal.
type SignalError struct{ Signal os.Signal }

// Error returns a message that names the signal.
func (e *SignalError) Error() string { return fmt.Sprint("terminal: ended by signal: ", e.Signal) }

// Run opens a terminal in the sandbox by [Open], connects it
// to the local one like [Attach], and returns the exit code of the program. By
// default its size is that of the window and its TERM that of this process.
// Both options may be nil.
func Run(ctx context.Context, sb *sandbox.Sandbox, shell *ShellOptions, opts *Options) (exitCode int, err error) {
	if err := entry.Check(ctx, sb != nil, "terminal", "the Sandbox"); err != nil {
		return 0, err
	}
	o := opts.withDefaults()
	var s ShellOptions
	if shell != nil {
		s = *shell
	}
	if cols, rows, ok := o.size(); ok && s.Cols == 0 && s.Rows == 0 {
		s.Cols, s.Rows = cols, rows
	}
	if name := os.Getenv("TERM"); name != "" && term.IsTerminal(int(o.Stdout.Fd())) {
		env := sandbox.Env{"TERM": name}
		maps.Copy(env, s.Env)
		s.Env = env
	}
	sh, err := Open(ctx, sb, &s)
	if err != nil {
		return 0, err
	}
	return Attach(ctx, sh, &o)
}

// Attach connects an open terminal of a sandbox to the local one until its
// program ends, and returns the exit code. It closes sh. A nil opts means the
// standard streams.
//
// The error is a [*ShellError] if the connection is lost, that of ctx
// if it ends, and a [*SignalError] if this process receives SIGINT, SIGTERM,
// SIGHUP or SIGQUIT: Attach catches these signals while it runs, so that the
// terminal can be restored. Keys such as Ctrl-C do not cause signals; they are
// sent to the sandbox, except for those that [Options.NoEscape] describes, which
// end the call with [ErrLeft]. If writing to Stdout fails, Attach returns that
// error, and the program is hung up.
//
// No goroutine is left running, except on Windows, where one waits for the next
// key.
func Attach(ctx context.Context, sh *Shell, opts *Options) (exitCode int, err error) {
	if err := entry.Check(ctx, sh.made(), "terminal", "the Shell"); err != nil {
		return 0, err
	}
	defer sh.Close()
	return attach(ctx, sh, opts)
}

func attach(ctx context.Context, sh *Shell, opts *Options) (exitCode int, err error) {
	o := opts.withDefaults()
	restore, err := prepare(o.Stdin, o.Stdout)
	if err != nil {
		return 0, fmt.Errorf("terminal: %w", err)
	}
	orderly := false
	defer func() {
		if !orderly {
			reset(o.Stdout)
		}
		if restoreErr := restore(); restoreErr != nil {
			err = errors.Join(err, fmt.Errorf("terminal: %w", restoreErr))
		}
	}()

	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel(nil)

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, endSignals...)
	defer signal.Stop(signals)
	group.Go(func() { endOn(ctx, signals, cancel) })

	resize := func() {
		if cols, rows, ok := o.size(); ok {
			_ = sh.Resize(cols, rows) // Wait reports what is wrong
		}
	}
	resize()
	group.Go(func() { watchSize(ctx, &o, resize) })

	input, err := newInput(o.Stdin)
	if err != nil {
		return 0, fmt.Errorf("terminal: %w", err)
	}
	defer input.stop()
	defer cancel(nil) // ends sendFile
	input.start(func() {
		switch {
		case !term.IsTerminal(int(o.Stdin.Fd())):
			sendFile(ctx, sh, input)
		case o.NoEscape:
			_, _ = io.Copy(sh, input) // Wait reports what is wrong
		default:
			_, _ = io.Copy(sh, &escapes{typed: input, leave: func() { cancel(ErrLeft) }, newline: true})
		}
	})

	screen := &screen{file: o.Stdout}
	shown := make(chan struct{})
	group.Go(func() {
		defer close(shown)
		if _, err := io.Copy(screen, sh); err != nil && screen.err != nil {
			// Output that is not read would block the program forever.
			cancel(fmt.Errorf("terminal: %w", screen.err))
		}
	})
	code, err := sh.Wait(ctx)
	if err != nil {
		// The output ends with the connection.
		sh.Close()
		<-shown
		return 0, err
	}
	// The program has ended, so its output does too.
	<-shown
	if screen.err != nil {
		return code, fmt.Errorf("terminal: %w", screen.err)
	}
	orderly = true
	return code, nil
}

// endOn ends a terminal at the first signal.
func endOn(ctx context.Context, signals <-chan os.Signal, cancel context.CancelCauseFunc) {
	select {
	case sig := <-signals:
		cancel(&SignalError{sig})
	case <-ctx.Done():
	}
}

// ctrlD ends the input of a program that reads lines from a terminal.
const ctrlD = 4

// sendFile sends what no one types, and its end until ctx ends.
func sendFile(ctx context.Context, sh io.Writer, file io.Reader) {
	to := &lastByte{w: sh, last: '\n'}
	if _, err := io.Copy(to, file); err != nil || ctx.Err() != nil {
		return // the Shell's Wait reports what is wrong
	}
	end := []byte{ctrlD}
	if to.last != '\n' {
		end = []byte{ctrlD, ctrlD}
	}
	again := time.NewTicker(endInterval)
	defer again.Stop()
	for {
		if _, err := sh.Write(end); err != nil {
			return
		}
		end = []byte{ctrlD}
		if to.last != '\n' { // an editor of lines takes the line and not its end
			end, to.last = []byte{'\n', ctrlD}, '\n'
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// endInterval is how often the end of the input is sent. A shell that turns to
// editing lines after the Ctrl-D has arrived reads another byte for it.
const endInterval = time.Second

// lastByte remembers the last byte that was written.
type lastByte struct {
	w    io.Writer
	last byte
}

func (l *lastByte) Write(p []byte) (int, error) {
	n, err := l.w.Write(p)
	if n > 0 {
		l.last = p[n-1]
	}
	return n, err
}

// escapes passes on what is typed and looks for "~." at the beginning of a line.
type escapes struct {
	typed io.Reader
	leave func()
	// newline and tilde say what was typed last.
	newline, tilde bool
}

func (e *escapes) Read(p []byte) (int, error) {
	if len(p) < 2 {
		return e.typed.Read(p) // not io.Copy
	}
	for {
		// The first byte is left free for a tilde that was held back.
		n, err := e.typed.Read(p[1:])
		out := p[:0]
		for _, c := range p[1 : 1+n] {
			switch {
			case e.tilde && c == '.':
				e.leave()
				return 0, io.EOF
			case e.tilde && c == '~':
				e.tilde = false
				out = append(out, c)
			case e.tilde:
				e.tilde = false
				out = append(out, '~', c)
			case e.newline && c == '~':
				e.tilde = true
			default:
				out = append(out, c)
			}
			e.newline = c == '\r' || c == '\n'
		}
		if len(out) > 0 || err != nil {
			return len(out), err
		}
	}
}

// screen receives the output. It keeps its write error, apart from that of the
// connection.
type screen struct {
	file *os.File
	err  error
}

func (s *screen) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	if err != nil {
		s.err = err
	}
	return n, err
}

// reset undoes what a program that was cut off may have done to the terminal:
// the alternate screen, a hidden cursor, mouse reports, bracketed paste,
// colors.
func reset(stdout *os.File) {
	if term.IsTerminal(int(stdout.Fd())) {
		_, _ = io.WriteString(stdout, "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[0m\r\n")
	}
}

// raw puts a terminal into raw mode.
func raw(stdin *os.File) (restore func() error, err error) {
	fd := int(stdin.Fd())
	if !term.IsTerminal(fd) {
		return func() error { return nil }, nil
	}
	state, err := term.MakeRaw(fd)
	if err != nil {
		return nil, err
	}
	return func() error { return term.Restore(fd, state) }, nil
}
