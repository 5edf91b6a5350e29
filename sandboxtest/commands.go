package sandboxtest

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

// command is a process in a session, or a stub in its place. What is not
// guarded by mu never changes.
type command struct {
	sess      *session
	id        string
	name      string
	args      []string
	cwd       string
	startedAt time.Time
	began     time.Time // by the machine's clock
	log       *commandLog
	input     *commandInput // nil without an open standard input
	done      chan struct{} // closed at the end

	mu       sync.Mutex
	proc     runner
	exitCode *int
	duration time.Duration
	timeout  *timer
	// waited says that somebody has waited for the end: before that nobody is
	// told of it.
	waited bool
	// cut says that the end of the session has ended it.
	cut bool
	// signalled is when it last got a signal, by the machine's clock.
	signalled time.Time
}

// exited reports whether the command has ended.
func (cmd *command) exited() bool {
	cmd.mu.Lock()
	defer cmd.mu.Unlock()
	return cmd.exitCode != nil
}

// report describes a command that has ended to who has waited for it, and from
// now on to everybody.
func (cmd *command) report() wire.Command {
	cmd.mu.Lock()
	cmd.waited = true
	cmd.mu.Unlock()
	return cmd.wire()
}

func (cmd *command) wire() wire.Command {
	cmd.mu.Lock()
	defer cmd.mu.Unlock()
	w := wire.Command{
		ID: cmd.id, Name: cmd.name, Args: cmd.args, Cwd: cmd.cwd, SessionID: cmd.sess.id,
		StartedAt: wire.At(cmd.startedAt),
	}
	if w.Args == nil {
		w.Args = []string{}
	}
	if cmd.exitCode != nil && cmd.waited {
		w.ExitCode, w.DurationMs = cmd.exitCode, new(wholeMillis(cmd.duration))
	}
	return w
}

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

func (p *commandParams) attachesStdin() bool { return p.AttachStdin != nil && *p.AttachStdin }

func (p *commandParams) check() error {
	if p.Command == "" {
		return invalid("missing required property `command`.")
	}
	if strings.ContainsRune(p.Command+p.Cwd+strings.Join(p.Args, ""), 0) {
		return invalid("`command`, `args` and `cwd` should NOT have NUL bytes.")
	}
	if p.Timeout != nil {
		switch t := time.Duration(*p.Timeout); {
		case t < wire.MinCommandTimeout:
			return invalid("`timeout` should be >= %d.", wire.MinCommandTimeout.Milliseconds())
		case t > wire.MaxCommandTimeout:
			return invalid("`timeout` should be <= %d.", wire.MaxCommandTimeout.Milliseconds())
		}
	}
	return checkEnv(p.Env)
}

// runCommand handles POST …/cmd, waited and detached.
func (c *call) runCommand() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	var p commandParams
	if err := c.decode(&p); err != nil {
		return err
	}
	if p.AttachStdin != nil && c.s.opts.Stdin == NoStdin {
		return invalid("should NOT have additional property `attachStdin`.")
	}
	if err := p.check(); err != nil {
		return err
	}
	chosen, err := c.chosenID()
	if err != nil {
		return err
	}
	machine, err := sess.use(c.ctx)
	if err != nil {
		return err
	}
	cmd, err := sess.launchCommand(c.ctx, machine, chosen, &p)
	if err != nil {
		return sess.machineError(c.ctx, err)
	}
	if !p.Wait {
		writeJSON(c.w, http.StatusOK, wire.CommandResponse{Command: cmd.wire()})
		return nil
	}
	stream := c.stream()
	if err := stream.record(wire.CommandResponse{Command: cmd.running()}); err != nil {
		return nil // the client has gone; the command goes on
	}
	if p.Logs {
		if err := cmd.log.CopyTo(c.ctx, c.w, stream.flush); err != nil {
			return stream.broken(err)
		}
	}
	select {
	case <-cmd.done:
	case <-c.ctx.Done():
		return stream.broken(c.ctx.Err())
	}
	if cmd.wasCut() {
		return stream.broken(errSessionEnded)
	}
	_ = stream.record(wire.CommandResponse{Command: cmd.report()}) // as above
	return nil
}

// running describes the command as it was at its start.
func (cmd *command) running() wire.Command {
	w := cmd.wire()
	w.ExitCode, w.DurationMs = nil, nil
	return w
}

// wasCut reports whether the end of the session has ended the command.
func (cmd *command) wasCut() bool {
	cmd.mu.Lock()
	defer cmd.mu.Unlock()
	return cmd.cut
}

// command gives the command that the path names.
func (c *call) command() (*command, error) {
	sess, err := c.session()
	if err != nil {
		return nil, err
	}
	if _, err := sess.use(c.ctx); err != nil {
		return nil, err
	}
	c.s.store.mu.Lock()
	defer c.s.store.mu.Unlock()
	if cmd := sess.commands[c.values[1]]; cmd != nil {
		return cmd, nil
	}
	return nil, errCommandNotFound
}

// minSignalAge is how old a command is at least when a signal reaches it.
const minSignalAge = 50 * time.Millisecond

// liveCommand is command for requests that only a running command takes.
func (c *call) liveCommand() (*command, error) {
	cmd, err := c.command()
	if err == errCommandNotFound {
		err = errCommandGone
	}
	return cmd, err
}

func (c *call) listCommands() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	if _, err := sess.use(c.ctx); err != nil {
		return err
	}
	order := sess.started()
	resp := wire.CommandsResponse{Commands: make([]wire.Command, 0, len(order))}
	slices.Reverse(order) // newest first
	for _, cmd := range order {
		resp.Commands = append(resp.Commands, cmd.wire())
	}
	writeJSON(c.w, http.StatusOK, resp)
	return nil
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
		case <-cmd.done:
			if cmd.sess.hasFailed() {
				return errStopped
			}
			cmd.report()
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
	writeJSON(c.w, http.StatusOK, wire.CommandResponse{Command: cmd.wire()})
	return nil
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
	err = cmd.log.CopyTo(c.ctx, c.w, stream.flush)
	if err == nil && cmd.wasCut() {
		err = errSessionEnded
	}
	return stream.broken(err)
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
		return invalid("missing required property `signal`.")
	}
	if *p.Signal < 1 || *p.Signal > 64 {
		return invalid("`signal` should be between 1 and 64.")
	}
	cmd.mu.Lock()
	proc := cmd.proc
	cmd.mu.Unlock()
	// Over a network no signal comes before the program has set its traps.
	if early := minSignalAge - time.Since(cmd.began); early > 0 && !c.wait(early) {
		return c.ctx.Err()
	}
	cmd.mu.Lock()
	cmd.signalled = time.Now()
	cmd.mu.Unlock()
	switch err := proc.Signal(*p.Signal); {
	case errors.Is(err, os.ErrProcessDone):
		return errCommandGone
	case err != nil:
		return fmt.Errorf("signal: %w", err)
	}
	writeJSON(c.w, http.StatusOK, wire.CommandResponse{Command: cmd.wire()})
	return nil
}
