// Package cli contains the commands of the program sandbox.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/account"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// deps is what most commands need: the screen and the account.
type deps struct {
	screen  *screen.Screen
	account *account.Account
}

// app is one run of the program.
type app struct {
	deps
}

func newApp(args []string) *app {
	s := screen.New(args)
	return &app{deps: deps{screen: s, account: account.New(s, Version())}}
}

// With guardArgument as its only argument, the program restores a terminal; see
// guardTerminal.
const guardArgument = "__guard-terminal"

// Main runs the program with the arguments after its name and returns the exit
// code.
func Main(args []string) int {
	if len(args) == 1 && args[0] == guardArgument {
		return runGuard()
	}
	if len(args) == 4 && args[0] == account.DaemonArgument {
		return runDaemon(args[1:])
	}
	a := newApp(args)
	defer catchBrokenPipes()()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer a.screen.WatchSignals(cancel)()
	code := a.run(ctx)
	if err := a.account.Close(); err != nil {
		code = max(code, a.screen.Report(err))
	}
	return code
}

// catchBrokenPipes makes a write to a pipe without a reader fail with an error. By default,
// SIGPIPE would end the program, and it could not clean up. Child processes are not
// affected.
func catchBrokenPipes() (stop func()) {
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
	var usage *line.UsageError
	if !a.screen.Started && !errors.As(err, &usage) {
		err = &line.UsageError{Message: err.Error(), Hint: "for more information, try 'sandbox --help'"}
	}
	return a.screen.Report(err)
}

func (a *app) execute(ctx context.Context, root *cobra.Command) error {
	if n := len(a.screen.Args); n > 1 && (a.screen.Args[0] == cobra.ShellCompRequestCmd || a.screen.Args[0] == cobra.ShellCompNoDescRequestCmd) {
		a.account.Completes = true
		root.SetArgs(a.screen.Args)
		return root.ExecuteContext(ctx)
	}
	args, ofRun, err := line.Arrange(root, a.screen.Args)
	if err != nil {
		return err
	}
	if len(ofRun) > 0 {
		fmt.Fprintf(a.screen.Err, "note: %s is read as an option of run; write -- before the command to pass it on\n", line.ShellWords(ofRun))
	}
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// withDeadline returns a context for cleaning up, which does not end with ctx.
func withDeadline(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}
