package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/files"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

type createCommand struct {
	deps

	s     settingsOptions
	shell bool
}

func (c *createCommand) command() *line.Command {
	return &line.Command{
		Name: "create", Near: []string{"new", "launch", "up"}, First: true, Short: "Create a sandbox",
		Long: "Create a sandbox. Its name is written to standard output, without a newline.\n\n" +
			"With the name of a coding agent (" + strings.Join(agentNames(), ", ") + "), it also starts that agent in the sandbox; this needs a terminal.",
		Args:    []line.Argument{{Name: "agent", Text: "A coding agent to start", Optional: true, Values: agentNames()}},
		Check:   c.checkArgs,
		Options: c.define, Example: "create --name my-app --network-policy deny-all", Doc: sandboxView{}, Run: c.run,
	}
}

func (c *createCommand) define(flags *pflag.FlagSet) {
	c.s.define(flags, "An environment variable for all commands of the sandbox (repeatable)")
	line.Toggle(flags, &c.shell, "connect", "", "Start a shell in the new sandbox")
}

func (c *createCommand) checkArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || len(args) == 1 && findAgent(args[0]) != nil {
		return nil
	}
	if findAgent(args[0]) == nil {
		return &line.UsageError{Message: strconv.Quote(args[0]) + " is not an agent; use " + strings.Join(agentNames(), ", "), Hint: "the name of a sandbox is given with --name"}
	}
	return &line.UsageError{Message: "unknown argument " + strconv.Quote(args[1]), Hint: line.MoreAbout(cmd)}
}

func (c *createCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	var agent *codingAgent
	var err error
	switch {
	case len(args) == 1:
		agent = findAgent(args[0])
		err = c.checkAgent(agent, &c.s)
		c.shell = false // the agent runs in the terminal instead of a shell
	case c.shell:
		err = c.screen.NeedTerminal("leave --connect out")
	}
	if err != nil {
		return err
	}
	c.warnWithoutUnit(optionValue(cmd, "timeout"))
	o, err := c.s.createOptions(ctx, &c.deps)
	if err != nil {
		return err
	}
	if agent != nil {
		o.Image = universalImage
	}
	if _, err := c.account.Connect(cmd.Context()); err != nil {
		return err
	}
	stop := c.screen.SpinUnless(c.s.silent, "Creating sandbox...")
	sb, err := c.account.Create(ctx, o)
	stop()
	if err != nil {
		return err
	}
	if err := c.uploadFiles(ctx, sb, &c.s); err != nil {
		return err
	}
	inside := c.shell || agent != nil
	if err := c.announce(sb, &c.s, "created", !inside, agent == nil); err != nil {
		return err
	}
	switch {
	case agent != nil:
		return c.startAgent(ctx, agent, sb, &c.s, o.Env)
	case c.shell:
		return c.terminal(ctx, sb, &terminalOptions{keepAlive: true, env: o.Env})
	}
	return nil
}

// uploadFiles uploads the files of --upload to a new sandbox.
func (p *deps) uploadFiles(ctx context.Context, sb *sandbox.Sandbox, s *settingsOptions) error {
	for _, upload := range s.uploads {
		from, to := files.SplitUpload(upload)
		if err := files.Upload(ctx, p.screen, sb, []string{from}, to, &files.CopyOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// announce reports a new sandbox: the name on standard output if nameOut is set, everything
// else on standard error.
func (p *deps) announce(sb *sandbox.Sandbox, s *settingsOptions, what string, hint, nameOut bool) error {
	switch o := p.screen.Opts; {
	case o.JSON && nameOut:
		return p.screen.Result(viewHandle(sb))
	case o.JSON, s.silent, o.Quiet && !nameOut:
		return nil
	case o.Quiet:
		_, err := fmt.Fprint(p.screen.Out, sb.Name())
		return err
	}
	e := p.screen.Err
	dim := func(s string) string { return e.Paint(console.Dim, s) }
	cyan := func(s string) string { return e.Paint(console.Cyan, s) }
	fmt.Fprint(e, "✅ Sandbox ")
	if nameOut {
		if _, err := fmt.Fprint(p.screen.Out, sb.Name()); err != nil {
			return err
		}
	} else {
		fmt.Fprint(e, cyan(sb.Name()))
	}
	fmt.Fprintf(e, " %s.\n", what)
	info := sb.Info()
	lines := []string{"team: " + cyan(p.account.Scope.TeamID), "region: " + cyan(info.Region), "project: " + cyan(p.account.Scope.ProjectID)}
	if routes := sb.Routes(); len(routes) > 0 {
		lines = append(lines, "ports:")
		for _, r := range routes {
			lines = append(lines, fmt.Sprintf("• %d -> %s", r.Port, cyan(r.URL)))
		}
	}
	if hint {
		lines = append(lines, "connect with: "+cyan(p.screen.Filled(screen.Try("ssh %s", sb.Name()))))
	}
	p.screen.Tree(lines, dim)
	return nil
}
