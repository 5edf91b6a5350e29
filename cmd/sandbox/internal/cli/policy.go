package cli

import (
	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
)

type policyCommand struct{ place }

func (c *policyCommand) command() *command {
	return &command{name: "policy", short: "Show what a sandbox can reach", sub: []*command{{
		name: "show", short: "Write the network policy as --network-policy-file reads it, but without the values of headers; with --json always as an object",
		args: []argument{nameArg}, example: "config policy show my-app", doc: policyView{},
		run: func(cmd *cobra.Command, args []string) error {
			sb, err := c.account.named(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			policy := presentPolicy(sb)
			if v := viewPolicy(policy); c.screen.opts.structured() {
				return c.screen.print(output{doc: v, names: []string{policyText(v)}})
			}
			return writeJSON(c.screen.out, policy, true)
		},
	}}}
}

// presentPolicy is the policy in force: that of the session, or else what new
// sessions start with. None means that everything can be reached.
func presentPolicy(sb *sandbox.Sandbox) *sandbox.NetworkPolicy {
	if p := sb.Info().NetworkPolicy; p != nil {
		return p
	}
	return sandbox.AllowAll()
}
