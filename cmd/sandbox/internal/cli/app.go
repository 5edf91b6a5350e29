// Package cli is the command tree of the sandbox command line.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/internal/redact"
)

// globals are the options that every command has.
type globals struct {
	token, project, scope string

	json  bool
	quiet bool

	color          string
	noInput, yes   bool
	debug          string
	apiURL         string
	requestTimeout time.Duration
	local          bool
}

// stdio is what the program reads and writes, and how: the options of all
// commands and the environment.
type stdio struct {
	in       *os.File
	out, err *console.Stream
	env      *environment
	opts     globals
	now      func() time.Time
	caught   atomic.Int32
	args     []string // the words of the command line
}

// app is one run of the program.
type app struct {
	*stdio
	*connection
	*printer

	path    string // the words of the command
	started bool   // whether a command was chosen and its options were right

}

func newApp(args []string) *app {
	io := &stdio{in: os.Stdin, now: time.Now, args: args}
	io.env = newEnvironment(func(err error) { fmt.Fprintf(io.err, "note: %s\n", redact.Printable(err.Error())) })
	io.setStreams(console.ColorAuto)
	a := &app{path: "sandbox", stdio: io, connection: &connection{stdio: io}, printer: &printer{io}}
	a.fail = func(err error) { os.Exit(a.report(err)) }
	return a
}

// signal returns the signal that ended the program, or 0.
func (s *stdio) signal() syscall.Signal { return syscall.Signal(s.caught.Load()) }

// guardArgument makes the program the guard of a terminal; see guardTerminal.
const guardArgument = "__guard-terminal"

// Main runs the program with the arguments after its name and returns the exit
// code.
func Main(args []string) int {
	if len(args) == 1 && args[0] == guardArgument {
		return runGuard()
	}
	if len(args) == 4 && args[0] == daemonArgument {
		return runDaemon(args[1:])
	}
	a := newApp(args)
	defer noticeBrokenPipes()()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer a.watchSignals(cancel)()
	code := a.run(ctx)
	if err := a.close(); err != nil {
		code = max(code, a.report(err))
	}
	return code
}

// noticeBrokenPipes makes a write to a pipe without a reader an error, where it
// would end the program at once: what is to be cleaned up could not be. Programs
// that are started are not concerned.
func noticeBrokenPipes() (stop func()) {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	return func() { signal.Stop(broken) }
}

func (s *stdio) setStreams(mode console.ColorMode) {
	s.out = console.NewStream(os.Stdout, mode, s.env.lookup)
	s.err = console.NewStream(os.Stderr, mode, s.env.lookup)
}

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

func (a *app) run(ctx context.Context) int {
	root := a.rootCommand()
	err := a.execute(ctx, root)
	if err == nil {
		return 0
	}
	var usage *usageError
	if !a.started && !errors.As(err, &usage) {
		err = &usageError{message: err.Error(), hint: "for more information, try 'sandbox --help'"}
	}
	return a.report(err)
}

func (a *app) execute(ctx context.Context, root *cobra.Command) error {
	if n := len(a.args); n > 1 && (a.args[0] == cobra.ShellCompRequestCmd || a.args[0] == cobra.ShellCompNoDescRequestCmd) {
		a.completes = true
		root.SetArgs(a.args)
		return root.ExecuteContext(ctx)
	}
	args, taken, err := arrange(root, a.args)
	if err != nil {
		return err
	}
	if len(taken) > 0 {
		fmt.Fprintf(a.err, "note: %s is taken for run itself; write -- before the command to pass options to it\n", shellWords(taken))
	}
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

func (a *app) close() error {
	if a.client != nil {
		a.client.CloseIdleConnections()
	}
	if a.emulator != nil {
		return a.emulator.Close()
	}
	return nil
}
