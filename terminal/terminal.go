// Package terminal joins a terminal in a sandbox to the terminal that this
// process runs in, for command-line tools:
//
//	code, err := terminal.Run(ctx, sb, nil, nil)
//
// What is typed goes to the sandbox key by key, the window's size follows, and
// the local terminal is as it was before when the call returns, whichever way it
// does.
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

	"github.com/go-vercel/sandbox"
	"golang.org/x/term"
)

// Options says what the sandbox's terminal is joined to. The zero value takes
// the standard streams of the process.
type Options struct {
	// Stdin is what the program reads. Nil means [os.Stdin]. A terminal is put
	// into raw mode. When anything else comes to its end, a Ctrl-D is sent.
	Stdin *os.File
	// Stdout is where the output goes. Nil means [os.Stdout]. The window's size
	// is that of Stdout, or else of Stdin, whichever is a terminal.
	Stdout *os.File
}

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

// size returns the window's size, and false when there is no window.
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

// Error names the signal.
func (e *SignalError) Error() string { return fmt.Sprint("terminal: ended by signal: ", e.Signal) }

// Run opens a terminal in the sandbox, as [sandbox.Sandbox.Shell] does, joins it
// to the local one as [Attach] does, and returns the exit code of the program.
// Unless shell says otherwise, its size is that of the window and its TERM that
// of this process. Both options may be nil.
func Run(ctx context.Context, sb *sandbox.Sandbox, shell *sandbox.ShellOptions, opts *Options) (exitCode int, err error) {
	o := opts.withDefaults()
	var s sandbox.ShellOptions
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
	sh, err := sb.Shell(ctx, &s)
	if err != nil {
		return 0, err
	}
	return Attach(ctx, sh, &o)
}

// Attach joins an open terminal of a sandbox to the local one until its program
// ends, and returns the exit code. It closes sh. A nil opts takes the standard
// streams.
//
// The error is a [*sandbox.ShellError] when the connection is lost, that of ctx
// when it ends, and a [*SignalError] when this process is told to end by SIGINT,
// SIGTERM, SIGHUP or SIGQUIT: Attach takes these signals while it runs, so that
// the terminal can be put back in order. Keys such as Ctrl-C are no signals
// here; they go to the sandbox. When Stdout can't be written to, that error ends
// it, and closing the terminal hangs up on the program.
//
// No goroutine is left, save on Windows, where one waits for the next key until
// it comes.
func Attach(ctx context.Context, sh *sandbox.Shell, opts *Options) (exitCode int, err error) {
	defer sh.Close()
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
	group.Go(func() {
		select {
		case sig := <-signals:
			cancel(&SignalError{sig})
		case <-ctx.Done():
		}
	})

	resize := func() {
		if cols, rows, ok := o.size(); ok {
			_ = sh.Resize(cols, rows) // Wait tells what is wrong
		}
	}
	resize()
	group.Go(func() { watchSize(ctx, &o, resize) })

	input, err := newInput(o.Stdin)
	if err != nil {
		return 0, fmt.Errorf("terminal: %w", err)
	}
	defer input.stop()
	input.start(func() {
		_, err := io.Copy(sh, input)
		if err == nil && ctx.Err() == nil && !term.IsTerminal(int(o.Stdin.Fd())) {
			_, _ = sh.Write([]byte{4}) // Ctrl-D; Wait tells what is wrong
		}
	})

	screen := &screen{file: o.Stdout}
	shown := make(chan struct{})
	group.Go(func() {
		defer close(shown)
		if _, err := io.Copy(screen, sh); err != nil && screen.err != nil {
			// Nobody takes the output any more, and a program whose output is
			// not taken is held up for ever.
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

// screen is where the output goes. It keeps the error that ends it, which is
// another one than that of the connection.
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
// the other screen, a hidden cursor, mouse reports, bracketed paste, colours.
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
