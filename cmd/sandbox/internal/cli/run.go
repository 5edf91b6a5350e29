package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/files"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

type runOptions struct {
	settings  settingsOptions
	command   commandOptions
	connect   bool
	rm        bool
	downloads []string
}

type runCommand struct {
	deps

	o runOptions
}

func (c *runCommand) command() *line.Command {
	return &line.Command{
		Name: "run", First: true, Short: "Run a command in a new sandbox", Foreign: "0",
		Long: "Create a sandbox and run a command in it. With --name, use the sandbox of that name if it exists. " +
			"The exit code is the command's, and standard output has only what the command writes.",
		Args:    []line.Argument{{Name: "command", Text: "The program to run"}, line.MoreWords},
		Options: c.define, Example: "run --rm --upload . -- npm run build", Doc: commandView{}, Run: c.run,
	}
}

func (c *runCommand) define(flags *pflag.FlagSet) {
	c.o.settings.define(flags, "An environment variable for the command (repeatable)")
	c.o.command.define(flags, "")
	line.Toggle(flags, &c.o.connect, "connect", "", "Start a shell first, and then the command")
	line.Toggle(flags, &c.o.rm, "rm", "", "Remove the sandbox when the command has ended")
	line.Option(flags, &c.o.command.timeout, "exec-timeout", "", "num UNIT", "", "How long the command may run; it is then killed", line.ParseCommandTimeout)
	line.Options(flags, &c.o.downloads, "download", "", "PATH[:DEST]", "Copy a file or directory out of the sandbox when the command has ended (repeatable)", line.ParseText)
}

func (c *runCommand) run(cmd *cobra.Command, args []string) error {
	c.o.command.env, c.o.command.envFiles = c.o.settings.env, c.o.settings.envFiles
	if err := c.check(&c.o, args); err != nil {
		return err
	}
	c.o.settings.environment = c.o.command.environment
	c.warnWithoutUnit(optionValue(cmd, "exec-timeout"))
	c.o.command.limited = cmd.Flags().Changed("timeout")
	c.warnWithoutUnit(optionValue(cmd, "timeout"))
	return c.runInNew(cmd.Context(), &c.o, args)
}

// check refuses contradictory options.
func (c *runCommand) check(o *runOptions, words []string) error {
	if o.rm && o.command.stop {
		return line.Usagef("--rm and --stop exclude each other")
	}
	if err := c.checkCommand(&o.command, words); err != nil {
		return err
	}
	if o.rm && o.command.detach {
		return line.Usagef("--rm would remove the sandbox under the command that -d leaves running")
	}
	if o.command.interactive && o.settings.policy.file == "-" {
		return line.Usagef("-i and --network-policy-file=- both read standard input")
	}
	if o.connect {
		return c.screen.NeedTerminal("leave --connect out")
	}
	return nil
}

// runInNew creates or finds the sandbox, runs the command and cleans up. With --rm, it
// removes the sandbox even after an error.
func (c *runCommand) runInNew(ctx context.Context, o *runOptions, words []string) error {
	s := &o.settings
	if o.rm {
		s.nonPersistent = true
	}
	create, err := s.createOptions(ctx, &c.deps)
	if err != nil {
		return err
	}
	sb, err := c.sandboxForRun(ctx, o, create)
	if err != nil {
		return err
	}
	work := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.uploadFiles(ctx, sb, s); err != nil {
			return err
		}
		if o.connect {
			if err := c.terminal(ctx, sb, &terminalOptions{keepAlive: !o.command.noExtend, env: create.Env}); err != nil {
				return err
			}
		}
		err := imageHint(c.runRemote(ctx, sb, &o.command, words[0], words[1:]), sb, o, words[0])
		fetchErr := c.downloadAll(ctx, sb, o.downloads)
		if err == nil {
			return fetchErr
		}
		if fetchErr != nil {
			c.screen.Warn("the download failed: "+fetchErr.Error(), "the command itself failed as well")
		}
		return err
	}
	return c.runAndCleanUp(ctx, sb, work, cleanUp(o.rm, o.command.stop))
}

// imageHint adds a hint about --image to the error of a program that does not exist. The
// user may have given an image first, as with docker.
func imageHint(err error, sb *sandbox.Sandbox, o *runOptions, program string) error {
	exit, ok := errors.AsType[*screen.ExitError](err)
	if !ok || exit.Code != screen.ExitNoProgram || exit.Err == nil {
		return err
	}
	if _, advised := errors.AsType[*screen.Hinted](exit.Err); advised {
		return err
	}
	hint := "if that is an image: " + screen.Try("run --image %s -- COMMAND", line.ShellWord(program))
	if !o.rm {
		hint += "; " + screen.Try("rm %s", sb.Name()) + " removes the sandbox"
	}
	return &screen.ExitError{Code: exit.Code, Err: screen.WithHint(exit.Err, "%s", hint)}
}

// sandboxForRun finds the sandbox that --name names, or creates one. With --rm, a signal
// does not interrupt the creation. Otherwise the new sandbox might remain.
func (p *deps) sandboxForRun(ctx context.Context, o *runOptions, create *sandbox.CreateOptions) (*sandbox.Sandbox, error) {
	s := &o.settings
	if s.name != "" {
		sb, err := p.account.Get(ctx, s.name, true)
		if err == nil && o.rm {
			p.screen.Warn("sandbox "+s.name+" existed before, and --rm will remove it", "leave --rm out to keep it")
		}
		if !errors.Is(err, sandbox.ErrNotFound) {
			return sb, err
		}
	}
	making := ctx
	if o.rm {
		create.Name = cmp.Or(create.Name, "run-"+strings.ToLower(rand.Text()[:12]))
		var cancel context.CancelFunc
		making, cancel = withDeadline(ctx, createTimeout)
		defer cancel()
	}
	if _, err := p.account.Connect(ctx); err != nil {
		return nil, err
	}
	stop := p.screen.SpinUnless(s.silent, "Creating sandbox...")
	sb, err := p.account.Create(making, create)
	stop()
	if err != nil {
		if o.rm && errors.Is(err, sandbox.ErrOutcomeUnknown) {
			err = errors.Join(err, p.removeIfThere(ctx, create.Name))
		}
		return nil, err
	}
	return sb, p.announce(sb, s, "created", false, false)
}

// downloadAll downloads paths of a sandbox, each given as SOURCE[:DEST].
func (c *runCommand) downloadAll(ctx context.Context, sb *sandbox.Sandbox, downloads []string) error {
	for _, d := range downloads {
		from, to := files.SplitUpload(d)
		one := &files.Copy{Screen: c.screen, O: &files.CopyOptions{Mkdir: true}, From: files.Location{Sandbox: sb.Name(), Path: from}, To: files.Location{Path: to}, Source: sb}
		if err := one.Run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// removeIfThere removes a sandbox if it exists.
func (p *deps) removeIfThere(ctx context.Context, name string) error {
	late, cancel := withDeadline(ctx, cleanUpTimeout)
	defer cancel()
	client, err := p.account.Connect(late)
	if err != nil {
		return err
	}
	if err := client.Delete(late, name, nil); !errors.Is(err, sandbox.ErrNotFound) {
		return err
	}
	return nil
}
