package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/tunnel"
)

// publicURL finds the address of a port, publishing it and waiting for its server
// if asked to.
func (a *app) publicURL(ctx context.Context, name, port string, publish, wait bool) (string, error) {
	number, err := parsePort(port)
	if err != nil {
		return "", usagef("%v", err)
	}
	if name, err = a.checkedName(name); err != nil {
		return "", err
	}
	sb, err := a.get(ctx, name, wait)
	if err != nil {
		return "", err
	}
	address, err := sb.URL(number)
	if errors.Is(err, sandbox.ErrNoRoute) && publish {
		ports := []int{number}
		for _, r := range sb.Routes() {
			ports = append(ports, r.Port)
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
	app *app

	publish, wait bool
}

func (c *urlCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "url <name> <port>", Short: "Write the public address of a port", GroupID: groupFiles, Args: positionals("name", "port"),
	}
	toggle(cmd.Flags(), &c.publish, "publish", "", "Publish the port if it is not")
	toggle(cmd.Flags(), &c.wait, "wait", "", "Wait until its server responds")
	cmd.RunE = c.run
	return cmd
}

func (c *urlCommand) run(cmd *cobra.Command, args []string) error {
	address, err := c.app.publicURL(cmd.Context(), args[0], args[1], c.publish, c.wait)
	if err != nil {
		return err
	}
	if c.app.opts.structured() {
		return c.app.print(output{doc: urlView{address}, names: []string{address}})
	}
	_, err = fmt.Fprintln(c.app.out, address)
	return err
}

// waiting says what wait-for waits for.
type waiting struct {
	status  string
	port    int
	log     string
	timeout time.Duration
}

type waitForCommand struct {
	app *app

	w waiting
}

func (c *waitForCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "wait-for <name> [command_id]", Short: "Wait for a status, a port or a line of output", GroupID: groupCommands, Args: positionals("name", "[command_id]"),
		Long: "Wait until a sandbox has a status, a server listens on one of its ports (published or not), or a command has written a line that matches " +
			"a pattern: that of command_id, or else the last one. The exit code is 6 when the time is up.",
		Example: "  $ sandbox wait-for web --port 3000 --timeout 1m\n  $ sandbox wait-for web --log 'listening on'",
	}
	flags := cmd.Flags()
	option(flags, &c.w.status, "status", "", "status", "", "Wait for this status, such as running or stopped", parseStatuses)
	option(flags, &c.w.port, "port", "", "port", "", "Wait until something listens on this port", parseBetween(1, 65535, "port"))
	option(flags, &c.w.log, "log", "", "pattern", "", "Wait for a line of output that matches this regular expression", parseText)
	option(flags, &c.w.timeout, "timeout", "", "num UNIT", "", "Give up after this time", parseDuration)
	cmd.RunE = c.run
	return cmd
}

func (c *waitForCommand) run(cmd *cobra.Command, args []string) error {
	given := 0
	for _, is := range []bool{c.w.status != "", c.w.port != 0, c.w.log != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return usagef("give one of --status, --port and --log")
	}
	ctx := cmd.Context()
	if c.w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.w.timeout)
		defer cancel()
	}
	err := c.waitFor(ctx, &c.w, args)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &exitError{code: exitTimeout, err: fmt.Errorf("%s after %s", c.w.missing(), longDuration(c.w.timeout))}
	}
	return err
}

// missing says what has not come.
func (w *waiting) missing() string {
	switch {
	case w.port != 0:
		return fmt.Sprintf("nothing in the sandbox listens on port %d", w.port)
	case w.log != "":
		return "no line of output matches " + quote(w.log)
	}
	return "the status is not " + w.status
}

const lookEvery = 500 * time.Millisecond

func (c *waitForCommand) waitFor(ctx context.Context, w *waiting, args []string) error {
	name, err := c.app.checkedName(args[0])
	if err != nil {
		return err
	}
	switch {
	case w.log != "":
		pattern, err := regexp.Compile(w.log)
		if err != nil {
			return usagef("--log: %v", err)
		}
		id := ""
		if len(args) == 2 {
			id = args[1]
		}
		remote, err := c.app.remoteCommand(ctx, name, id)
		if err != nil {
			return err
		}
		line, err := remote.WaitForLog(ctx, pattern)
		if err != nil {
			return err
		}
		if c.app.opts.structured() {
			return c.app.print(output{doc: waitView{Name: name, Line: line}, names: []string{name}})
		}
		_, err = fmt.Fprintln(c.app.out, line)
		return err
	case w.port != 0:
		sb, err := c.app.get(ctx, name, true)
		if err != nil {
			return err
		}
		if err := poll(ctx, func() (bool, error) {
			conn, err := tunnel.Dial(ctx, sb, w.port)
			if errors.Is(err, tunnel.ErrRefused) {
				return false, nil
			}
			if err != nil {
				return false, err
			}
			return true, conn.Close()
		}); err != nil {
			return err
		}
		return c.app.result(waitView{Name: name, Port: w.port}, name)
	}
	sb, err := c.app.get(ctx, name, false)
	if err != nil {
		return err
	}
	wanted := strings.Split(w.status, ",")
	if err := poll(ctx, func() (bool, error) {
		if slices.Contains(wanted, string(sb.Status())) {
			return true, nil
		}
		return false, sb.Refresh(ctx)
	}); err != nil {
		return err
	}
	return c.app.result(waitView{Name: name, Status: string(sb.Status())}, name)
}

// waitView is what a wait has come to: one of the three.
type waitView struct {
	Name   string `json:"name"`
	Status string `json:"status,omitempty"`
	Port   int    `json:"port,omitempty"`
	Line   string `json:"line,omitempty"`
}

// poll looks until it is done or the context ends.
func poll(ctx context.Context, look func() (bool, error)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
