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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/terminal"
)

// terminalOptions select what runs in a terminal.
type terminalOptions struct {
	command   string // empty is the user's shell
	args      []string
	env       sandbox.Env
	workdir   string
	sudo      bool
	user      string
	keepAlive bool
}

// While a terminal is open or a command runs, the timeout is extended this long before
// its end, by this much. It is late, so that short commands do not cost more machine
// time.
const (
	keepAliveMargin = 10 * time.Second
	keepAliveStep   = 5 * time.Minute
)

// keepAlive extends the sandbox's timeout until the returned function is called.
func (p *deps) keepAlive(ctx context.Context, sb *sandbox.Sandbox, margin time.Duration, otherwise string) (stop func()) {
	return keepAlive(ctx, sb, margin, func(err error) {
		p.screen.Warn("the sandbox's timeout can't be extended any further: "+err.Error(), otherwise)
	})
}

// keepAlive is [sandbox.Sandbox.KeepAlive] until the returned function is called,
// and calls failed if the timeout can't be extended any further.
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

// userShell starts the shell of the user that it runs as: bash without the files
// that would change the prompt, as the official CLI does. Users such as nobody, who may
// not log in, get bash.
const userShell = `shell=${SHELL:-bash}
case $shell in */nologin | */false) shell=bash ;; esac
command -v "$shell" >/dev/null 2>&1 || shell=sh
case $shell in bash | */bash) exec "$shell" --norc -i ;; esac
exec "$shell" -i`

// inDirectory runs a program in a directory.
const inDirectory = `cd -- "$1" && shift && exec "$@"`

// shell is the command line that the sandbox runs.
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
		// The sandbox's own user need not be able to enter the directory.
		as = append(as, "--", "sh", "-c", inDirectory, "sh", o.workdir, s.Command)
		s.Command, s.Args, s.Cwd, s.Sudo = "sudo", append(as, s.Args...), "", false
	}
	return s
}

// terminal connects a terminal in the sandbox to this program's, which NeedTerminal has
// checked. The error contains the exit code of the remote program.
func (p *deps) terminal(ctx context.Context, sb *sandbox.Sandbox, o *terminalOptions) error {
	shell := o.shell()
	var overtime error // why the timeout is no longer extended
	stop := func() {}
	if o.keepAlive {
		stop = keepAlive(context.WithoutCancel(ctx), sb, keepAliveMargin, func(err error) { overtime = err })
	}
	defer guardTerminal(p.screen.In)()
	// While the terminal is open, signals go to it.
	code, err := terminal.Run(context.WithoutCancel(ctx), sb, shell, nil)
	if stop(); overtime != nil {
		p.screen.Warn("the sandbox's timeout could not be extended any further: "+overtime.Error(), "the terminal ends with the session")
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

type connectCommand struct {
	deps

	o       terminalOptions
	env     []line.Pair
	timeout time.Duration
	noKeep  bool
}

func (c *connectCommand) command() *line.Command {
	return &line.Command{
		Name: "connect", Aliases: []string{"ssh", "shell"}, Near: []string{"console", "enter", "terminal"}, First: true, Short: "Start a shell in a sandbox",
		Long: "Start the shell of the user, $SHELL, in a sandbox. A stopped sandbox is started first. The timeout is extended while the shell is open.",
		Args: []line.Argument{line.NameArg}, Options: c.define, Example: "ssh my-app", Run: c.run,
	}
}

func (c *connectCommand) define(flags *pflag.FlagSet) {
	line.Toggle(flags, &c.o.sudo, "sudo", "", "Start the shell as root")
	line.Option(flags, &c.o.user, "user", "u", "name", "", "Start the shell as another user of the sandbox", line.ParseUser)
	line.Option(flags, &c.o.workdir, "workdir", "w", "str", "", "The directory to start in", line.ParseDirectory)
	line.Variables(flags, &c.env, "An environment variable for the shell (repeatable)")
	line.Option(flags, &c.timeout, "timeout", "", "num UNIT", "", "Not allowed: a shell has no time limit of its own", line.ParseDuration)
	line.Toggle(flags, &c.noKeep, "no-extend-timeout", "", "Don't extend the sandbox's timeout while the shell is open")
}

func (c *connectCommand) run(cmd *cobra.Command, args []string) error {
	switch {
	case c.timeout > 0:
		return line.Usagef("--timeout can't be used with a shell")
	case c.o.sudo && c.o.user != "":
		return line.Usagef("--sudo and --user exclude each other")
	}
	name, err := c.account.CheckedName(args[0])
	if err != nil {
		return err
	}
	if err := c.screen.NeedTerminal("%s runs a command without one", screen.Try("exec %s -- COMMAND", name)); err != nil {
		return err
	}
	sb, err := c.account.Get(cmd.Context(), name, true)
	if err != nil {
		return err
	}
	if c.o.user != "" {
		if c.o.workdir, err = userDirectory(cmd.Context(), sb, c.o.user, c.o.workdir); err != nil {
			return err
		}
	}
	c.o.keepAlive = !c.noKeep
	c.o.env = c.pairs(c.env, "--env")
	return c.terminal(cmd.Context(), sb, &c.o)
}

type shCommand struct {
	deps

	s      settingsOptions
	remove bool
}

func (c *shCommand) command() *line.Command {
	return &line.Command{
		Name: "sh", Short: "Create a sandbox and start a shell in it", Foreign: "0",
		Long: "Create a sandbox and start a shell in it. With --rm the sandbox is removed when the shell ends.",
		Check: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &line.UsageError{Message: "sh starts a plain shell and takes no command", Hint: "to run it in a new sandbox: " + screen.Try("run -i -- %s", line.ShellWords(args))}
			}
			return nil
		},
		Options: func(flags *pflag.FlagSet) {
			c.s.define(flags, "An environment variable for all commands of the sandbox (repeatable)")
			line.Toggle(flags, &c.remove, "rm", "", "Remove the sandbox when the shell has ended")
		},
		Example: "sh --rm", Run: c.run,
	}
}

func (c *shCommand) run(cmd *cobra.Command, _ []string) error {
	if err := c.screen.NeedTerminal("%s runs a command without one", screen.Try("run -- COMMAND")); err != nil {
		return err
	}
	c.warnWithoutUnit(optionValue(cmd, "timeout"))
	o := &runOptions{settings: c.s, rm: c.remove}
	if c.remove {
		o.settings.nonPersistent = true
	}
	create, err := o.settings.createOptions(cmd.Context(), &c.deps)
	if err != nil {
		return err
	}
	sb, err := c.sandboxForRun(cmd.Context(), o, create)
	if err != nil {
		return err
	}
	return c.andThen(cmd.Context(), sb, func() error {
		if err := c.uploadFiles(cmd.Context(), sb, &o.settings); err != nil {
			return err
		}
		return c.terminal(cmd.Context(), sb, &terminalOptions{command: "sh", env: create.Env, keepAlive: true})
	}, cleanUp(c.remove, false))
}
