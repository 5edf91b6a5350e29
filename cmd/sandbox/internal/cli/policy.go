package cli

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

type policyCommand struct{ deps }

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

// presentPolicy returns the policy in force: that of the running session, or of the next
// one if none runs. Info leaves the policy nil if everything can be reached.
func presentPolicy(sb *sandbox.Sandbox) *sandbox.NetworkPolicy {
	if p := sb.Info().NetworkPolicy; p != nil {
		return p
	}
	return sandbox.AllowAll()
}

// maxPolicy is the maximum size of a policy file.
const maxPolicy = 1 << 20

// readPolicy reads a policy from a file or a pipe, or from standard input for "-". It stops
// waiting for input when ctx ends.
func (p *deps) readPolicy(ctx context.Context, name string) (*sandbox.NetworkPolicy, error) {
	type reading struct {
		data []byte
		err  error
	}
	done := make(chan reading, 1)
	go func() {
		file, err := p.screen.In, error(nil)
		if name != "-" {
			if file, err = os.Open(name); err != nil {
				done <- reading{err: err}
				return
			}
			defer file.Close()
		}
		data, err := io.ReadAll(io.LimitReader(file, maxPolicy+1))
		done <- reading{data, err}
	}()
	var got reading
	select {
	case got = <-done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if got.err != nil {
		return nil, got.err
	}
	if name == "-" {
		name = "standard input"
	}
	if len(got.data) > maxPolicy {
		return nil, line.Usagef("--network-policy-file: %s has more than 1 MiB", name)
	}
	policy, err := sandbox.ParseNetworkPolicy(got.data)
	if err != nil {
		message := strings.TrimPrefix(err.Error(), "sandbox: "+sandbox.ErrInvalid.Error()+": ")
		return nil, line.Usagef("--network-policy-file: %s, %s", name, message)
	}
	return policy, nil
}
