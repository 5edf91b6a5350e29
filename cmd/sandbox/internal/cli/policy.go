package cli

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
)

type policyCommand struct{ app *app }

func (c *policyCommand) command() *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Show and change what a sandbox can reach"}
	show := &cobra.Command{
		Use: "show <name>", Short: "Write the network policy as --network-policy-file reads it, but without the values of headers; with --json always as an object", Args: c.app.oneName(),
		RunE: func(cmd *cobra.Command, args []string) error {
			sb, err := c.app.getOnly(cmd.Context(), args, false)
			if err != nil {
				return err
			}
			policy := presentPolicy(sb)
			if v := viewPolicy(policy); c.app.opts.structured() {
				return c.app.print(output{doc: v, names: []string{policyText(v)}})
			}
			return writeJSON(c.app.out, policy, true)
		},
	}
	allow := &cobra.Command{
		Use: "allow <name> <domain> [...domain]", Short: "Add domains to those that a sandbox can reach", Args: positionals("name", "domain", "[...domain]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := rehearseUpdate(cmd.Context(), &sandbox.UpdateOptions{NetworkPolicy: &sandbox.NetworkPolicy{Allow: args[1:]}}); err != nil {
				return err
			}
			return c.setPolicy(cmd.Context(), args[0], func(p *sandbox.NetworkPolicy) (*sandbox.NetworkPolicy, error) { return allowed(p, args[1:]), nil })
		},
	}
	deny := &cobra.Command{
		Use: "deny <name> <domain> [...domain]", Short: "Remove domains from those that a sandbox can reach", Args: positionals("name", "domain", "[...domain]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.setPolicy(cmd.Context(), args[0], func(p *sandbox.NetworkPolicy) (*sandbox.NetworkPolicy, error) { return denied(p, args[1:]) })
		},
	}
	cmd.AddCommand(show, allow, deny)
	return group(cmd)
}

// presentPolicy is the policy in force: that of the session, or else what new
// sessions start with. None means that everything can be reached.
func presentPolicy(sb *sandbox.Sandbox) *sandbox.NetworkPolicy {
	if p := sb.Info().NetworkPolicy; p != nil {
		return p
	}
	return sandbox.AllowAll()
}

func (c *policyCommand) setPolicy(ctx context.Context, name string, change func(*sandbox.NetworkPolicy) (*sandbox.NetworkPolicy, error)) error {
	return c.app.update(ctx, name, "network policy", func(sb *sandbox.Sandbox) (*sandbox.UpdateOptions, func(*sandbox.Sandbox) []string, error) {
		policy, err := change(presentPolicy(sb))
		if err != nil {
			return nil, nil, err
		}
		text, err := json.Marshal(policy)
		return &sandbox.UpdateOptions{NetworkPolicy: policy}, func(*sandbox.Sandbox) []string { return []string{"policy: " + string(text)} }, err
	})
}

// allowed is a policy that also lets domains through.
func allowed(p *sandbox.NetworkPolicy, domains []string) *sandbox.NetworkPolicy {
	if p.Mode == "allow-all" {
		return p
	}
	q := *p
	if p.Mode == "deny-all" {
		q = sandbox.NetworkPolicy{}
	}
	q.Allow = slices.Clone(q.Allow)
	for _, d := range domains {
		if _, ruled := q.Rules[d]; !ruled && !slices.Contains(q.Allow, d) {
			q.Allow = append(q.Allow, d)
		}
	}
	return &q
}

// denied is a policy that does not let domains through anymore.
func denied(p *sandbox.NetworkPolicy, domains []string) (*sandbox.NetworkPolicy, error) {
	if p.Mode == "allow-all" {
		return nil, withHint(usagef("everything can be reached; single domains can't be taken away from that"),
			"start from nothing: %s, then policy allow", try("config network-policy NAME --network-policy deny-all"))
	}
	q := *p
	q.Rules = map[string][]sandbox.PolicyRule{}
	for d, rules := range p.Rules {
		if !slices.Contains(domains, d) {
			q.Rules[d] = rules
		}
	}
	if len(q.Rules) == 0 {
		q.Rules = nil
	}
	q.Allow = slices.DeleteFunc(slices.Clone(p.Allow), func(d string) bool { return slices.Contains(domains, d) })
	if len(q.Allow) == 0 && q.Rules == nil && q.AllowSubnets == nil && q.DenySubnets == nil {
		return sandbox.DenyAll(), nil
	}
	return &q, nil
}
