package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// publicURL returns the public address of a port. It can publish the port first, and wait
// until a server responds there.
func (p *deps) publicURL(ctx context.Context, name, port string, publish, wait bool) (string, error) {
	number, err := line.ParsePort(port)
	if err != nil {
		return "", line.Usagef("%v", err)
	}
	sb, err := p.account.Named(ctx, name, wait)
	if err != nil {
		return "", err
	}
	address, err := sb.URL(number)
	if errors.Is(err, sandbox.ErrNoRoute) && publish {
		ports := []int{number}
		for _, r := range sb.Routes() {
			if !r.System { // publishing a port of the system would make the service begin a new session
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
			err = screen.WithHint(err, "--publish publishes it; %s works without", screen.Try("port-forward %s %d", name, number))
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
	deps

	publish, wait bool
}

func (c *urlCommand) command() *line.Command {
	return &line.Command{
		Name: "url", Title: titleFiles, Short: "Write the public address of a port", Args: []line.Argument{line.NameArg, {Name: "port", Text: "The port in the sandbox", Parse: line.Checked(line.ParsePort)}},
		Options: func(flags *pflag.FlagSet) {
			line.Toggle(flags, &c.publish, "publish", "", "Publish the port if it is not published")
			line.Toggle(flags, &c.wait, "wait", "", "Wait until its server responds")
		},
		Example: "url my-app 3000 --publish", Doc: urlView{}, Run: c.run,
	}
}

func (c *urlCommand) run(cmd *cobra.Command, args []string) error {
	address, err := c.publicURL(cmd.Context(), args[0], args[1], c.publish, c.wait)
	if err != nil {
		return err
	}
	if c.screen.Opts.Structured() {
		return c.screen.Print(screen.Output{Doc: urlView{address}, Names: []string{address}})
	}
	_, err = fmt.Fprintln(c.screen.Out, address)
	return err
}
