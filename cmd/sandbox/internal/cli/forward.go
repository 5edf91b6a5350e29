package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/preview"
	"github.com/go-vercel/sandbox/tunnel"
)

// forwarding maps a local port to a port of the sandbox.
type forwarding struct{ local, remote int }

// parseForwarding parses [LOCAL:]REMOTE. :REMOTE selects a free local port.
func parseForwarding(s string) (forwarding, error) {
	local, remote, ok := strings.Cut(s, ":")
	if !ok {
		local, remote = s, s
	}
	f := forwarding{}
	var err error
	if local != "" {
		if f.local, err = line.ParseBetween(0, 65535, "port")(local); err != nil {
			return f, err
		}
	}
	f.remote, err = line.ParseBetween(1, 65535, "port")(remote)
	return f, err
}

type forwardCommand struct {
	deps

	address string
	overWeb bool
	noKeep  bool
}

func (c *forwardCommand) command() *line.Command {
	return &line.Command{
		Name: "port-forward", Aliases: []string{"forward"}, Near: []string{"proxy", "tunnel"}, Title: titleFiles, Short: "Make ports of a sandbox reachable on this machine",
		Long: "Make TCP ports of a sandbox reachable on this machine, whether they are published or not. Each connection goes through a " +
			"terminal of its own, which needs stty and python3 or node in the sandbox. :PORT takes any free port of this machine.",
		Args: []line.Argument{
			line.NameArg, {Name: "[local:]port", Text: "The port in the sandbox, after the local port if that differs", Parse: line.Checked(parseForwarding)},
			{Name: "port", Text: "More ports", Several: true, Parse: line.Checked(parseForwarding)},
		},
		Options: c.define, Example: "port-forward my-app 3000 5433:5432", Run: c.run,
	}
}

func (c *forwardCommand) define(flags *pflag.FlagSet) {
	line.Option(flags, &c.address, "address", "", "ip", "127.0.0.1", "The address to listen on", line.ParseText)
	line.Toggle(flags, &c.overWeb, "http", "", "Forward HTTP through the published address instead")
	line.Toggle(flags, &c.noKeep, "no-extend-timeout", "", "Don't extend the sandbox's timeout while ports are forwarded")
}

func (c *forwardCommand) run(cmd *cobra.Command, args []string) error {
	var forwards []forwarding
	for _, s := range args[1:] {
		f, err := parseForwarding(s)
		if err != nil {
			return &line.UsageError{Message: err.Error(), Hint: line.MoreAbout(cmd)}
		}
		forwards = append(forwards, f)
	}
	sb, err := c.account.Named(cmd.Context(), args[0], true)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	if !c.noKeep {
		defer c.keepAlive(ctx, sb, 0, "the ports end with the session")()
	}
	failed := make(chan error, len(forwards))
	for _, f := range forwards {
		listener, err := net.Listen("tcp", net.JoinHostPort(c.address, strconv.Itoa(f.local)))
		if err != nil {
			cancel()
			return err
		}
		context.AfterFunc(ctx, func() { listener.Close() })
		serve := c.serveTunnel
		if c.overWeb {
			serve = c.serveWeb
		}
		fmt.Fprintf(c.screen.Err, "Forwarding %s -> %s:%d\n", listener.Addr(), args[0], f.remote)
		wg.Go(func() { failed <- serve(ctx, listener, sb, f.remote) })
	}
	select {
	case err := <-failed:
		cancel()
		return err
	case <-ctx.Done():
		return screen.ExitWith(signalExitCode(c.screen.Signal()))
	}
}

// serveTunnel opens a tunnel for each connection until ctx ends.
func (c *forwardCommand) serveTunnel(ctx context.Context, listener net.Listener, sb *sandbox.Sandbox, port int) error {
	return tunnel.Forward(ctx, listener, sb, port, &tunnel.ForwardOptions{NoKeepAlive: true, OnError: func(err error) { // run extends the timeout itself
		if errors.Is(err, tunnel.ErrRefused) {
			c.screen.Warn(fmt.Sprintf("nothing listens on port %d of %s", port, sb.Name()), "start the server, then connect again")
			return
		}
		c.screen.Warn("the tunnel failed: "+c.screen.Explain(err).Message, "it needs stty and python3 or node in the sandbox")
	}})
}

// serveWeb forwards HTTP requests to the public address of a port.
func (c *forwardCommand) serveWeb(ctx context.Context, listener net.Listener, sb *sandbox.Sandbox, port int) error {
	if _, err := sb.URL(port); err != nil {
		return screen.WithHint(err, "publish it with: %s", screen.Try("url --publish %s %d", sb.Name(), port))
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: preview.ReverseProxy(sb, port, nil)}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
		return err
	}
	return nil
}
