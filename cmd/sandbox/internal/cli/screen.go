package cli

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
	"github.com/go-vercel/sandbox/internal/redact"
)

// screenOptions are the options of all commands that say how results are written
// and whether questions may be asked.
type screenOptions struct {
	json         bool
	quiet        bool
	color        string
	noInput, yes bool
	debug        string
}

// stdio is the program's standard streams, and what messages on them need to know
// of the command line.
type stdio struct {
	in       *os.File
	out, err *console.Stream
	env      *dotenv.Environment
	opts     screenOptions
	now      func() time.Time
	args     []string // the words of the command line

	started      bool            // whether a command was chosen and its options were right
	names        []string        // the sandboxes that the line is about
	source       string          // where the credentials come from
	accountWords func() []string // the options that name the account of the line

	caught atomic.Int32
}

func newScreen(args []string) *stdio {
	s := &stdio{in: os.Stdin, now: time.Now, args: args, accountWords: func() []string { return nil }}
	s.env = dotenv.NewEnvironment(func(err error) { fmt.Fprintf(s.err, "note: %s\n", redact.Printable(err.Error())) })
	s.setStreams(console.ColorAuto)
	return s
}

// setStreams opens the standard streams.
func (s *stdio) setStreams(mode console.ColorMode) {
	s.out = console.NewStream(os.Stdout, mode, s.env.Lookup)
	s.err = console.NewStream(os.Stderr, mode, s.env.Lookup)
}

// signal returns the signal that ended the program, or 0.
func (s *stdio) signal() syscall.Signal { return syscall.Signal(s.caught.Load()) }

// watchSignals ends the context when a signal ends the program. Commands that
// pass signals on take them for themselves meanwhile.
func (s *stdio) watchSignals(cancel context.CancelCauseFunc) (stop func()) {
	signals := make(chan os.Signal, 8)
	done := make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT) // the last would end with traces of all goroutines
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

// warn writes a warning and a hint to standard error.
func (s *stdio) warn(text, hint string) {
	text, hint = s.filled(text), s.filled(hint)
	fmt.Fprintf(s.err, "%s %s\n%s hint: %s\n", s.err.Paint(console.Yellow, "warn:"), lines(text), s.err.Paint(console.Dim, "╰▶"), lines(hint))
}

// tree writes lines under a headline.
func (s *stdio) tree(lines []string, dim func(string) string) {
	for i, l := range lines {
		mark := "   │ "
		if i == len(lines)-1 {
			mark = "   ╰ "
		}
		fmt.Fprintf(s.err, "%s%s\n", dim(mark), l)
	}
}

// spin shows that something goes on, until the returned function is called.
func (s *stdio) spin(text string) (stop func()) {
	if s.opts.structured() && !s.err.Terminal {
		return func() {}
	}
	return console.Spin(s.err, text).Stop
}

func (s *stdio) spinUnless(silent bool, text string) (stop func()) {
	if silent {
		return func() {}
	}
	return s.spin(text)
}

// needTerminal refuses to go on without a terminal, and says what to do instead:
// before a sandbox is made for it.
func (s *stdio) needTerminal(instead string, args ...any) error {
	if isTerminal(s.in) && s.out.Terminal {
		return nil
	}
	return withHint(&usageError{message: "an interactive shell needs a terminal"}, instead, args...)
}

func wrapped(text string, indent, width int) string {
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
