package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/terminal"
)

// terminalOptions select what runs in a terminal.
type terminalOptions struct {
	command   string // empty for the user's shell
	args      []string
	env       sandbox.Env
	workdir   string
	sudo      bool
	user      string
	keepAlive bool
}

// While a terminal is open or a command runs, the sandbox's timeout is extended by
// keepAliveStep when keepAliveMargin is left. The margin is short, so that short commands
// do not prolong the session.
const (
	keepAliveMargin = 10 * time.Second
	keepAliveStep   = 5 * time.Minute
)

// keepAlive extends the sandbox's timeout until the returned function is called. If it
// can't, it warns the user, with consequence as the hint.
func (p *deps) keepAlive(ctx context.Context, sb *sandbox.Sandbox, margin time.Duration, consequence string) (stop func()) {
	return keepAlive(ctx, sb, margin, func(err error) {
		p.screen.Warn("the sandbox's timeout can't be extended any further: "+err.Error(), consequence)
	})
}

// keepAlive runs [sandbox.Sandbox.KeepAlive] until the returned function is called. It
// calls failed if the timeout can't be extended any further.
func keepAlive(ctx context.Context, sb *sandbox.Sandbox, margin time.Duration, failed func(error)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := sb.KeepAlive(ctx, &sandbox.KeepAliveOptions{Margin: margin, Step: keepAliveStep}); err != nil && ctx.Err() == nil {
			failed(err)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// prompt is the prompt of a plain shell.
const prompt = "▲ \x01\x1b[2m\x02$PWD/\x01\x1b[0m\x02 "

// userShell starts the shell of the current user. Like the official CLI, it starts bash
// without the files that would change the prompt. Users who may not log in, such as nobody,
// get bash.
const userShell = `shell=${SHELL:-bash}
case $shell in */nologin | */false) shell=bash ;; esac
command -v "$shell" >/dev/null 2>&1 || shell=sh
case $shell in bash | */bash) exec "$shell" --norc -i ;; esac
exec "$shell" -i`

// inDirectory is a shell script that runs a program in a directory.
const inDirectory = `cd -- "$1" && shift && exec "$@"`

// shell returns the program that the sandbox runs in the terminal.
func (o *terminalOptions) shell() *terminal.ShellOptions {
	s := &terminal.ShellOptions{Command: o.command, Args: o.args, Env: o.env, Cwd: o.workdir, Sudo: o.sudo}
	if s.Command == "" {
		s.Command, s.Args = "sh", []string{"-c", userShell}
	}
	if o.command == "" || o.command == "sh" && len(o.args) == 0 {
		s.Env = sandbox.Env{"PS1": prompt}
		maps.Copy(s.Env, o.env)
	}
	if o.user != "" {
		as := []string{"-u", o.user}
		if len(s.Env) > 0 {
			as = append(as, "--preserve-env="+strings.Join(slices.Sorted(maps.Keys(s.Env)), ","))
		}
		// Let the other user change to the directory: the sandbox's default user may not be
		// allowed to.
		as = append(as, "--", "sh", "-c", inDirectory, "sh", o.workdir, s.Command)
		s.Command, s.Args, s.Cwd, s.Sudo = "sudo", append(as, s.Args...), "", false
	}
	return s
}

// terminal connects a new terminal in the sandbox to this program's terminal. The caller
// has called NeedTerminal. The error contains the exit code of the remote program.
func (p *deps) terminal(ctx context.Context, sb *sandbox.Sandbox, o *terminalOptions) error {
	shell := o.shell()
	var extendErr error // why the timeout can't be extended any further
	stop := func() {}
	if o.keepAlive {
		stop = keepAlive(context.WithoutCancel(ctx), sb, keepAliveMargin, func(err error) { extendErr = err })
	}
	defer guardTerminal(p.screen.In)()
	// While the terminal is open, signals do not end this program: they belong to the
	// remote program.
	code, err := terminal.Run(context.WithoutCancel(ctx), sb, shell, nil)
	if stop(); extendErr != nil {
		p.screen.Warn("the sandbox's timeout could not be extended any further: "+extendErr.Error(), "the terminal ends with the session")
	}
	fmt.Fprintf(p.screen.Err, "%s connection to ▲ %s closed.\n", p.screen.Err.Paint(console.Dim, "╰▶"), sb.Name())
	if ended, ok := errors.AsType[*terminal.SignalError](err); ok {
		if number, ok := ended.Signal.(syscall.Signal); ok {
			return screen.ExitWith(128 + int(number))
		}
	}
	if errors.Is(err, terminal.ErrLeft) {
		return screen.ExitWith(255)
	}
	if err != nil {
		return err
	}
	return screen.ExitWith(code)
}
