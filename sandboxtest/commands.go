package sandboxtest

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

type commandParams struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Cwd     string            `json:"cwd"`
	Env     map[string]string `json:"env"`
	Sudo    bool              `json:"sudo"`
	Timeout *wire.Duration    `json:"timeout"`
	Wait    bool              `json:"wait"`
	Logs    bool              `json:"logs"`
	// AttachStdin leaves the standard input open for writes.
	AttachStdin *bool `json:"attachStdin"`
}

func (p *commandParams) spec() *store.CommandSpec {
	return &store.CommandSpec{
		Name: p.Command, Args: p.Args, Cwd: p.Cwd, Env: p.Env, Sudo: p.Sudo, Timeout: p.Timeout.Std(), OpenStdin: p.AttachStdin != nil && *p.AttachStdin,
	}
}

func (p *commandParams) check() error {
	if p.Command == "" {
		return reply.Invalid("missing required property `command`.")
	}
	if strings.ContainsRune(p.Command+p.Cwd+strings.Join(p.Args, ""), 0) {
		return reply.Invalid("`command`, `args` and `cwd` should NOT have NUL bytes.")
	}
	if p.Timeout != nil {
		switch t := time.Duration(*p.Timeout); {
		case t < wire.MinCommandTimeout:
			return reply.Invalid("`timeout` should be >= %d.", wire.MinCommandTimeout.Milliseconds())
		case t > wire.MaxCommandTimeout:
			return reply.Invalid("`timeout` should be <= %d.", wire.MaxCommandTimeout.Milliseconds())
		}
	}
	return checkEnv(p.Env)
}

// runCommand handles POST …/cmd, waited and detached.
func (c *call) runCommand() error {
	var p commandParams
	sess, err := c.sessionAndBody(&p)
	if err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	chosen, err := c.chosenID()
	if err != nil {
		return err
	}
	cmd, err := sess.RunCommand(c.ctx, chosen, p.spec())
	if err != nil {
		return err
	}
	if !p.Wait {
		return c.respond(http.StatusOK, wire.CommandResponse{Command: cmd.Describe()}, nil)
	}
	atStart := cmd.Describe()
	atStart.ExitCode, atStart.DurationMs = nil, nil
	stream := c.stream()
	if err := stream.record(wire.CommandResponse{Command: atStart}); err != nil {
		return nil // the client has gone; the command continues
	}
	if p.Logs {
		if err := cmd.CopyLog(c.ctx, c.w, stream.flush); err != nil {
			return stream.fail(err)
		}
	}
	select {
	case <-cmd.Ended():
	case <-c.ctx.Done():
		return stream.fail(c.ctx.Err())
	}
	if cmd.WasCut() {
		return stream.fail(errSessionEnded)
	}
	_ = stream.record(wire.CommandResponse{Command: cmd.Report()}) // the client may have gone
	return nil
}

// command returns the command in the path.
func (c *call) command() (*store.Command, error) {
	sess, err := c.session()
	if err != nil {
		return nil, err
	}
	return sess.Command(c.ctx, c.values[1])
}

// liveCommand is like command, for requests that need a running command: its error says
// that the command may have ended.
func (c *call) liveCommand() (*store.Command, error) {
	cmd, err := c.command()
	if err == reply.ErrCommandNotFound {
		err = reply.ErrCommandGone
	}
	return cmd, err
}

func (c *call) listCommands() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	if _, err := sess.Use(c.ctx); err != nil {
		return err
	}
	order := sess.Started()
	resp := wire.CommandsResponse{Commands: make([]wire.Command, 0, len(order))}
	slices.Reverse(order) // newest first
	for _, cmd := range order {
		resp.Commands = append(resp.Commands, cmd.Describe())
	}
	return c.respond(http.StatusOK, resp, nil)
}

func (c *call) getCommand() error {
	cmd, err := c.command()
	if err != nil {
		return err
	}
	wait, err := c.flag("wait")
	if err != nil {
		return err
	}
	if wait {
		select {
		case <-cmd.Ended():
			if cmd.SessionFailed() {
				return reply.ErrStopped
			}
			cmd.Report()
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
	return c.respond(http.StatusOK, wire.CommandResponse{Command: cmd.Describe()}, nil)
}

func (c *call) commandLogs() error {
	cmd, err := c.command()
	if err != nil {
		return err
	}
	stream := c.stream()
	if err := stream.start(); err != nil {
		return nil // the client has gone
	}
	err = cmd.CopyLog(c.ctx, c.w, stream.flush)
	if err == nil && cmd.WasCut() {
		err = errSessionEnded
	}
	return stream.fail(err)
}

type killParams struct {
	Signal *int `json:"signal"`
}

func (c *call) killCommand() error {
	cmd, err := c.liveCommand()
	if err != nil {
		return err
	}
	var p killParams
	if err := c.decode(&p); err != nil {
		return err
	}
	if p.Signal == nil {
		return reply.Invalid("missing required property `signal`.")
	}
	if *p.Signal < 1 || *p.Signal > 64 {
		return reply.Invalid("`signal` should be between 1 and 64.")
	}
	err = cmd.Signal(c.ctx, *p.Signal)
	return c.respond(http.StatusOK, wire.CommandResponse{Command: cmd.Describe()}, err)
}
