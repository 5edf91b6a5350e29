package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
)

// publicURL finds the address of a port, publishing it and waiting for its server
// if asked to.
func (p *place) publicURL(ctx context.Context, name, port string, publish, wait bool) (string, error) {
	number, err := parsePort(port)
	if err != nil {
		return "", usagef("%v", err)
	}
	if name, err = p.account.checkedName(name); err != nil {
		return "", err
	}
	sb, err := p.account.get(ctx, name, wait)
	if err != nil {
		return "", err
	}
	address, err := sb.URL(number)
	if errors.Is(err, sandbox.ErrNoRoute) && publish {
		ports := []int{number}
		for _, r := range sb.Routes() {
			if !r.System { // which can't be published: the service begins a new session if it is asked to
				ports = append(ports, r.Port)
			}
		}
		slices.Sort(ports)
		if err := sb.Update(ctx, &sandbox.UpdateOptions{Ports: ports}); err != nil {
			return "", err
		}
		address, err = sb.URL(number)
	}
	if err != nil {
		if errors.Is(err, sandbox.ErrNoRoute) {
			err = withHint(err, "--publish publishes it; %s needs no publishing", try("port-forward %s %d", name, number))
		}
		return "", err
	}
	if wait {
		return sb.WaitForPort(ctx, number, nil)
	}
	return address, nil
}

type urlView struct {
	URL string `json:"url"`
}

type urlCommand struct {
	place

	publish, wait bool
}

func (c *urlCommand) command() *command {
	return &command{
		name: "url", title: titleFiles, short: "Write the public address of a port", args: []argument{nameArg, {name: "port", text: "The port in the sandbox", parse: checked(parsePort)}},
		options: func(flags *pflag.FlagSet) {
			toggle(flags, &c.publish, "publish", "", "Publish the port if it is not")
			toggle(flags, &c.wait, "wait", "", "Wait until its server responds")
		},
		example: "url my-app 3000 --publish", doc: urlView{}, run: c.run,
	}
}

func (c *urlCommand) run(cmd *cobra.Command, args []string) error {
	address, err := c.publicURL(cmd.Context(), args[0], args[1], c.publish, c.wait)
	if err != nil {
		return err
	}
	if c.screen.opts.structured() {
		return c.screen.print(output{doc: urlView{address}, names: []string{address}})
	}
	_, err = fmt.Fprintln(c.screen.out, address)
	return err
}
