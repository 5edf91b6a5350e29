// Package cli is the command tree of the sandbox command line.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/local"
)

// globals are the options that every command has.
type globals struct {
	token, project, scope string

	output   string
	json     bool
	jq       string
	format   string
	quiet    bool
	noHeader bool

	color          string
	noInput, yes   bool
	debug          string
	profile        string
	apiURL         string
	requestTimeout time.Duration
	local          bool
}

// app is one run of the program.
type app struct {
	args     []string
	in       *os.File
	out, err *console.Stream
	env      *environment
	opts     globals
	now      func() time.Time

	started bool // whether a command was chosen and its options were right
	caught  atomic.Int32

	connecting sync.Mutex // several sandboxes may be looked for at the same time
	client     *sandbox.Client
	scope      auth.Credentials
	source     string            // where the credentials come from
	gateway    string            // the token of --ai
	emulator   *local.Connection // of --local
	completes  bool              // nothing is started for a completion
}

// signal returns the signal that ended the program, or 0.
func (a *app) signal() syscall.Signal { return syscall.Signal(a.caught.Load()) }

// guardArgument makes the program the guard of a terminal; see guardTerminal.
const guardArgument = "__guard-terminal"

// Main runs the program with the arguments behind its name and returns the exit
// code.
func Main(args []string) int {
	if len(args) == 1 && args[0] == guardArgument {
		return runGuard()
	}
	if len(args) == 4 && args[0] == daemonArgument {
		return runDaemon(args[1:])
	}
	a := &app{args: args, in: os.Stdin, now: time.Now, env: newEnvironment()}
	a.setStreams(console.ColorAuto)
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

// noticeBrokenPipes makes a write to a pipe that nobody reads an error, where it
// would end the program at once: what is to be cleaned up could not be. Programs
// that are started are not concerned.
func noticeBrokenPipes() (stop func()) {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	return func() { signal.Stop(broken) }
}

func (a *app) setStreams(mode console.ColorMode) {
	a.out = console.NewStream(os.Stdout, mode, a.env.lookup)
	a.err = console.NewStream(os.Stderr, mode, a.env.lookup)
}

// watchSignals ends the context when the program is told to end. Commands that
// pass signals on take them for themselves meanwhile.
func (a *app) watchSignals(cancel context.CancelCauseFunc) (stop func()) {
	signals := make(chan os.Signal, 8)
	done := make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for {
			select {
			case s := <-signals:
				if number, ok := s.(syscall.Signal); ok {
					a.caught.CompareAndSwap(0, int32(number))
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
		root.SetArgs(append(a.args[:1:1], arrangeForCompletion(root, a.args[1:])...))
		return root.ExecuteContext(ctx)
	}
	args, taken, err := arrange(root, a.args)
	if err != nil {
		return err
	}
	if len(taken) > 0 {
		fmt.Fprintf(a.err, "note: %s is taken for sandbox run; write -- before the command to pass options to it\n", shellWords(taken))
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
