// Package cli is the command tree of the sandbox command line.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// app is one run of the program.
type app struct {
	place
}

func newApp(args []string) *app {
	s := newScreen(args)
	return &app{place: place{screen: s, account: newConnection(s, Version())}}
}

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
	defer a.screen.watchSignals(cancel)()
	code := a.run(ctx)
	if err := a.account.close(); err != nil {
		code = max(code, a.screen.report(err))
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

func (a *app) run(ctx context.Context) int {
	root := a.rootCommand()
	err := a.execute(ctx, root)
	if err == nil {
		return 0
	}
	var usage *usageError
	if !a.screen.started && !errors.As(err, &usage) {
		err = &usageError{message: err.Error(), hint: "for more information, try 'sandbox --help'"}
	}
	return a.screen.report(err)
}

func (a *app) execute(ctx context.Context, root *cobra.Command) error {
	if n := len(a.screen.args); n > 1 && (a.screen.args[0] == cobra.ShellCompRequestCmd || a.screen.args[0] == cobra.ShellCompNoDescRequestCmd) {
		a.account.completes = true
		root.SetArgs(a.screen.args)
		return root.ExecuteContext(ctx)
	}
	args, taken, err := arrange(root, a.screen.args)
	if err != nil {
		return err
	}
	if len(taken) > 0 {
		fmt.Fprintf(a.screen.err, "note: %s is taken for run itself; write -- before the command to pass options to it\n", shellWords(taken))
	}
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}
