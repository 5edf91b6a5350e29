package cli

import (
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/agent"
)

func (a *app) mcpCommand() *cobra.Command {
	var only string
	cmd := &cobra.Command{
		Use: "mcp", Short: "Serve sandboxes as tools of an agent, by the Model Context Protocol", GroupID: groupTools, Args: positionals(),
		Long: "Serve sandboxes as tools of an agent over standard input and output: run commands, work with files, ports and snapshots. " +
			"With --only the tools work on one sandbox, and can neither create nor remove any.",
		Example: "  $ claude mcp add sandbox -- sandbox mcp --only my-app",
	}
	option(cmd.Flags(), &only, "only", "", "name", "", "The only sandbox that the tools may use", parseText)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		a.opts.noInput = true
		client, err := a.connect(cmd.Context())
		if err != nil {
			return err
		}
		if a.opts.local {
			a.warn("the sandboxes of --local are processes of this machine, and not isolated from it", "let only agents use them that may run commands here")
		}
		if only != "" {
			if only, err = a.resolveName(only); err != nil {
				return err
			}
		}
		return agent.NewServer(client, agent.Options{Version: Version(), Sandbox: only, Local: a.opts.local}).Run(cmd.Context(), &mcp.StdioTransport{})
	}
	return cmd
}
