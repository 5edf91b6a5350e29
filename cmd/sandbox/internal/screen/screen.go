// Package screen writes results, questions, warnings and errors to the standard streams.
package screen

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/dotenv"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Options are the options of all commands that control how results are written and
// whether questions may be asked.
type Options struct {
	JSON         bool
	Quiet        bool
	Color        string
	NoInput, Yes bool
	Debug        string
}

// Screen has the program's standard streams, and the facts about the command line
// that messages need.
type Screen struct {
	In       *os.File
	Out, Err *console.Stream
	Env      *dotenv.Environment
	Opts     Options
	Now      func() time.Time
	Args     []string // the words of the command line

	Started      bool            // whether the command line was valid and its command was started
	Names        []string        // the sandboxes that the command line names or has created
	Source       string          // where the credentials come from
	AccountWords func() []string // returns the options of the command line that name the account

	caught atomic.Int32
}

// New returns the screen of a program with these arguments.
func New(args []string) *Screen {
	s := &Screen{In: os.Stdin, Now: time.Now, Args: args, AccountWords: func() []string { return nil }}
	s.Env = dotenv.NewEnvironment(func(err error) { fmt.Fprintf(s.Err, "note: %s\n", redact.Printable(err.Error())) })
	s.SetStreams(console.ColorAuto)
	return s
}

// SetStreams opens the standard streams.
func (s *Screen) SetStreams(mode console.ColorMode) {
	s.Out = console.NewStream(os.Stdout, mode, s.Env.Lookup)
	s.Err = console.NewStream(os.Stderr, mode, s.Env.Lookup)
}

// Signal returns the signal that ended the program, or 0.
func (s *Screen) Signal() syscall.Signal { return syscall.Signal(s.caught.Load()) }

// WatchSignals calls cancel when a signal arrives. A command that forwards signals also
// watches them itself.
func (s *Screen) WatchSignals(cancel context.CancelCauseFunc) (stop func()) {
	signals := make(chan os.Signal, 8)
	done := make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT) // by default, SIGQUIT prints the stacks of all goroutines
	go func() {
		for {
			select {
			case got := <-signals:
				if number, ok := got.(syscall.Signal); ok {
					s.caught.CompareAndSwap(0, int32(number))
				}
				cancel(context.Canceled)
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// Warn writes a warning and a hint to standard error.
func (s *Screen) Warn(text, hint string) {
	text, hint = s.Filled(text), s.Filled(hint)
	fmt.Fprintf(s.Err, "%s %s\n%s hint: %s\n", s.Err.Paint(console.Yellow, "warn:"), Lines(text), s.Err.Paint(console.Dim, "╰▶"), Lines(hint))
}

// Tree writes lines under a headline.
func (s *Screen) Tree(lines []string, dim func(string) string) {
	for i, l := range lines {
		mark := "   │ "
		if i == len(lines)-1 {
			mark = "   ╰ "
		}
		fmt.Fprintf(s.Err, "%s%s\n", dim(mark), l)
	}
}

// Spin shows a spinner until the returned function is called.
func (s *Screen) Spin(text string) (stop func()) {
	if s.Opts.Structured() && !s.Err.Terminal {
		return func() {}
	}
	return console.Spin(s.Err, text).Stop
}

// SpinUnless is Spin unless silent is set.
func (s *Screen) SpinUnless(silent bool, text string) (stop func()) {
	if silent {
		return func() {}
	}
	return s.Spin(text)
}

// NeedTerminal returns an error with a hint if the program has no terminal. Commands call
// it before they create a sandbox.
func (s *Screen) NeedTerminal(instead string, args ...any) error {
	if line.IsTerminal(s.In) && s.Out.Terminal {
		return nil
	}
	return WithHint(&line.UsageError{Message: "an interactive shell needs a terminal"}, instead, args...)
}

// Wrapped breaks text between words, so that lines fit into width columns after the indent.
func Wrapped(text string, indent, width int) string {
	var b strings.Builder
	at := indent
	for i, word := range strings.Fields(text) {
		n := ansi.StringWidth(word)
		switch {
		case i == 0:
		case at+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
