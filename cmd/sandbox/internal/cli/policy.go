package cli

import (
	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

type policyCommand struct{ place }

func (c *policyCommand) command() *line.Command {
	return &line.Command{Name: "policy", Short: "Show what a sandbox can reach", Sub: []*line.Command{{
		Name: "show", Short: "Write the network policy in the form that --network-policy-file reads, without the values of headers; --json always writes an object",
		Args: []line.Argument{line.NameArg}, Example: "config policy show my-app", Doc: policyView{},
		Run: func(cmd *cobra.Command, args []string) error {
			sb, err := c.account.Named(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			policy := presentPolicy(sb)
			if v := viewPolicy(policy); c.screen.Opts.Structured() {
				return c.screen.Print(screen.Output{Doc: v, Names: []string{policyText(v)}})
			}
			return screen.WriteJSON(c.screen.Out, policy, true)
		},
	}}}
}

// presentPolicy returns the policy in force: the running session's, or else that of new
// sessions. Nil means that everything can be reached.
func presentPolicy(sb *sandbox.Sandbox) *sandbox.NetworkPolicy {
	if p := sb.Info().NetworkPolicy; p != nil {
		return p
	}
	return sandbox.AllowAll()
}
