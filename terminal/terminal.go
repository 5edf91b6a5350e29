// Package terminal opens terminals in a sandbox and connects them to the terminal of this
// process, for command-line tools:
//
//	code, err := terminal.Run(ctx, sb, nil, nil)
//
// Run sends keys to the sandbox as they are typed, forwards changes of the window's size,
// and restores the local terminal however it returns. As in ssh, Enter, ~ and . leave a
// terminal that hangs.
package terminal

import (
	"cmp"
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
	// Stdin is the program's input. Nil means [os.Stdin]. A terminal is put into raw
	// mode. At the end of any other file, Attach sends Ctrl-D. If the file does not end in
	// a newline, it sends Ctrl-D twice, because the first one only ends the line. It
	// repeats Ctrl-D every second until the program ends, because a program that does not
	// read yet may miss it. A program that continues to read gets EOF again.
	Stdin *os.File
	// Stdout receives the output. Nil means [os.Stdout]. The window's size is that of
	// Stdout, or of Stdin if Stdout is not a terminal.
	Stdout *os.File
}

// ErrLeft is returned if the user has left the terminal with "~."; see [Attach].
// The program in the sandbox receives SIGHUP.
var ErrLeft = errors.New("terminal: left by the user")

func (o *Options) withDefaults() Options {
	f := *cmp.Or(o, new(Options))
	f.Stdin = cmp.Or(f.Stdin, os.Stdin)
	f.Stdout = cmp.Or(f.Stdout, os.Stdout)
	return f
}

// size returns the window's size. ok is false if there is no window.
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

// Run opens a terminal in the sandbox with [Open], connects it to the local one like
// [Attach], and returns the exit code of the program. By default it has the window's size
// and the TERM of this process. Both options may be nil.
func Run(ctx context.Context, sb *sandbox.Sandbox, shell *ShellOptions, opts *Options) (exitCode int, err error) {
	if err := entry.Check(ctx, sb != nil, "terminal", "the Sandbox"); err != nil {
		return 0, err
	}
	o := opts.withDefaults()
	s := *cmp.Or(shell, new(ShellOptions))
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
// The error is a [*ShellError] if the connection is lost, the error of ctx if ctx ends, and
// a [*SignalError] if this process receives SIGINT, SIGTERM, SIGHUP or SIGQUIT. Attach
// catches these signals while it runs, to restore the terminal. Keys such as Ctrl-C do not
// cause signals but are sent to the sandbox. If Stdin is a terminal, "~." at
// the beginning of a line ends the call with [ErrLeft], and "~~" sends one "~". If writing to
// Stdout fails, Attach returns that error, and the program receives SIGHUP.
//
// No goroutine remains, except on Windows, where one waits for the next key.
func Attach(ctx context.Context, sh *Shell, opts *Options) (exitCode int, err error) {
	if err := entry.Check(ctx, sh.isOpen(), "terminal", "the Shell"); err != nil {
		return 0, err
	}
	defer sh.Close()
	return attach(ctx, sh, opts)
}

func attach(ctx context.Context, sh *Shell, opts *Options) (exitCode int, err error) {
	o := opts.withDefaults()
	restore, err := prepareTerminal(o.Stdin, o.Stdout)
	if err != nil {
		return 0, fmt.Errorf("terminal: %w", err)
	}
	programEnded := false
	defer func() {
		if !programEnded {
			resetScreen(o.Stdout)
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
	signal.Notify(signals, exitSignals...)
	defer signal.Stop(signals)
	group.Go(func() { cancelOnSignal(ctx, signals, cancel) })

	resize := func() {
		if cols, rows, ok := o.size(); ok {
			_ = sh.Resize(cols, rows) // Wait returns the error
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
		if !term.IsTerminal(int(o.Stdin.Fd())) {
			sendFile(ctx, sh, input)
			return
		}
		_, _ = io.Copy(sh, &escapeReader{typed: input, leave: func() { cancel(ErrLeft) }, newline: true}) // Wait returns the error
	})

	screen := &screen{file: o.Stdout}
	outputDone := make(chan struct{})
	group.Go(func() {
		defer close(outputDone)
		if _, err := io.Copy(screen, sh); err != nil && screen.err != nil {
			// Unread output would block the program forever.
			cancel(fmt.Errorf("terminal: %w", screen.err))
		}
	})
	code, err := sh.Wait(ctx)
	if err != nil {
		sh.Close() // ends the output
		<-outputDone
		return 0, err
	}
	<-outputDone // the output ends with the program
	if screen.err != nil {
		return code, fmt.Errorf("terminal: %w", screen.err)
	}
	programEnded = true
	return code, nil
}

// cancelOnSignal cancels at the first signal, until ctx ends.
func cancelOnSignal(ctx context.Context, signals <-chan os.Signal, cancel context.CancelCauseFunc) {
	select {
	case sig := <-signals:
		cancel(&SignalError{sig})
	case <-ctx.Done():
	}
}

// ctrlD ends the input of a program that reads lines from a terminal.
const ctrlD = 4

// sendFile sends a file that is not a terminal, and then EOF once a second until ctx ends.
func sendFile(ctx context.Context, sh io.Writer, file io.Reader) {
	dst := &lastByteWriter{w: sh, last: '\n'}
	if _, err := io.Copy(dst, file); err != nil || ctx.Err() != nil {
		return // Wait returns the error
	}
	eof := []byte{ctrlD}
	if dst.last != '\n' {
		eof = []byte{ctrlD, ctrlD}
	}
	ticker := time.NewTicker(eofInterval)
	defer ticker.Stop()
	for {
		if _, err := sh.Write(eof); err != nil {
			return
		}
		eof = []byte{ctrlD}
		if dst.last != '\n' { // a line editor ignores Ctrl-D within a line, so end the line first
			eof, dst.last = []byte{'\n', ctrlD}, '\n'
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// eofInterval is the time between two sends of EOF. A shell that starts its line editor
// after Ctrl-D has arrived needs another one.
const eofInterval = time.Second

// lastByteWriter remembers the last byte that was written.
type lastByteWriter struct {
	w    io.Writer
	last byte
}

func (l *lastByteWriter) Write(p []byte) (int, error) {
	n, err := l.w.Write(p)
	if n > 0 {
		l.last = p[n-1]
	}
	return n, err
}

// escapeReader reads typed keys and calls leave for "~." at the beginning of a line.
type escapeReader struct {
	typed io.Reader
	leave func()
	// newline and tilde tell whether the last key was one.
	newline, tilde bool
}

func (e *escapeReader) Read(p []byte) (int, error) {
	if len(p) < 2 {
		return e.typed.Read(p) // io.Copy never does this
	}
	for {
		// The first byte is reserved for a withheld tilde.
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

// screen writes the output and keeps the write error, to distinguish it from an error of
// the connection.
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

// resetScreen undoes what a program that did not end normally may have done to the terminal: the
// alternate screen, a hidden cursor, mouse reports, bracketed paste, colors.
func resetScreen(stdout *os.File) {
	if term.IsTerminal(int(stdout.Fd())) {
		_, _ = io.WriteString(stdout, "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[0m\r\n")
	}
}

// makeRaw puts a terminal into raw mode.
func makeRaw(stdin *os.File) (restore func() error, err error) {
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
