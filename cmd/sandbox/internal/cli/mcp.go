package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/agent/mcptools"
)

// localMachine is what an agent and its user go by: it must not promise what is
// not so.
const localMachine = "Your tools work in sandboxes of an emulator on the user's own machine, to try code in. They are NOT isolated: what runs in them is a process " +
	"of this machine, can reach its network, and may be able to read and change its files. Run nothing in them that you would not run on the machine itself."

type mcpCommand struct {
	app *app

	only string
}

func (c *mcpCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "mcp", Short: "Serve sandboxes as tools of an agent, by the Model Context Protocol", GroupID: groupTools, Args: positionals(),
		Long: "Serve sandboxes as tools of an agent over standard input and output: run commands and Python, work with files, ports and snapshots. " +
			"With --only the tools work on one sandbox, and can neither create nor remove any. " +
			"A sandbox that was used is kept running while the client is connected, as far as the plan lets.",
		Example: "  $ claude mcp add sandbox -- sandbox mcp --only my-app",
	}
	option(cmd.Flags(), &c.only, "only", "", "name", "", "The only sandbox that the tools may use", parseText)
	cmd.RunE = c.run
	return cmd
}

func (c *mcpCommand) run(cmd *cobra.Command, _ []string) (err error) {
	c.app.opts.noInput = true
	opts := &agent.Options{KeepRunning: true, OnError: func(call agent.Call, err error) {
		c.app.warn(fmt.Sprintf("%s: %v", call.Tool, err), "the agent got a message of its own")
	}}
	if c.app.opts.local {
		c.app.warn("the sandboxes of --local are processes of this machine, and not isolated from it", "let only agents use them that may run commands here")
		opts.Environment = localMachine
	}
	if c.only != "" {
		if c.only, err = c.app.checkedName(c.only); err != nil {
			return err
		}
	}
	client, err := c.app.connect(cmd.Context())
	if err != nil {
		// An agent's program shows its user what a tool says, and not why a server
		// has ended.
		why := c.app.explain(err)
		c.app.warn(why.Message, why.Hint)
		opts.Before = func(context.Context, agent.Call) error {
			return agent.Refuse(fmt.Sprintf("%s; %s; then start this server again (tell the user)", why.Message, why.Hint))
		}
		if client, err = sandbox.NewClient(nil); err != nil {
			return err
		}
	}
	tools := agent.ForProject(client, opts)
	if c.only != "" {
		tools = agent.ForConversation(agent.ByName(client), c.only, opts)
	}
	defer func() { err = errors.Join(err, tools.Close()) }()
	server := mcptools.NewServer(tools, &mcp.Implementation{Name: "sandbox", Title: "Vercel Sandbox", Version: Version()})
	return server.Run(cmd.Context(), &mcp.StdioTransport{})
}
