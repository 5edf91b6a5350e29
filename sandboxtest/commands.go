package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
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
}

// exited reports whether the command has ended.
func (cmd *command) exited() bool {
	cmd.mu.Lock()
	defer cmd.mu.Unlock()
	return cmd.exitCode != nil
}

// ended describes a command that has ended to who has waited for it, and from
// now on to everybody.
func (cmd *command) ended() wire.Command {
	cmd.mu.Lock()
	cmd.waited = true
	cmd.mu.Unlock()
	return cmd.wire()
}

// runner is what a command runs on.
type runner interface {
	// Signal is for the process alone, and os.ErrProcessDone once it has ended.
	Signal(n int) error
	// SignalGroup is for its children as well.
	SignalGroup(n int) error
	// Wait waits for the end and gives the exit code.
	Wait() int
}

// process is the runner that is a real process.
type process struct{ *box.Process }

func (p process) Wait() int { return p.Process.Wait().ExitCode }

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

// The limits of a command's timeout.
const (
	minCommandTimeout = 100 * time.Millisecond
	maxCommandTimeout = 5 * time.Hour
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
	AttachStdin bool `json:"attachStdin"`
}

func (p *commandParams) check() error {
	if p.Command == "" {
		return invalid("missing required property `command`.")
	}
	if strings.ContainsRune(p.Command+p.Cwd+strings.Join(p.Args, ""), 0) {
		return invalid("`command`, `args` and `cwd` should NOT have NUL bytes.")
	}
	if p.Timeout != nil {
		switch t := time.Duration(*p.Timeout); {
		case t < minCommandTimeout:
			return invalid("`timeout` should be >= %d.", minCommandTimeout.Milliseconds())
		case t > maxCommandTimeout:
			return invalid("`timeout` should be <= %d.", maxCommandTimeout.Milliseconds())
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
	present, err := c.decode(&p)
	if err != nil {
		return err
	}
	if _, ok := present["attachStdin"]; ok && c.s.opts.Stdin == NoStdin {
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
	_ = stream.record(wire.CommandResponse{Command: cmd.ended()}) // as above
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

// launchCommand starts a command on the machine, with an ID that the caller
// has chosen or one of our own.
func (sess *session) launchCommand(ctx context.Context, machine *box.Box, chosen string, p *commandParams) (*command, error) {
	id, err := sess.takeID(chosen)
	if err != nil {
		return nil, err
	}
	defer sess.dropID(id) // unless it has started
	s, st := sess.sb.s, sess.sb.s.store
	st.mu.Lock()
	env := maps.Clone(sess.sb.settings.Env)
	st.mu.Unlock()
	if env == nil {
		env = make(map[string]string, len(p.Env))
	}
	maps.Copy(env, p.Env)
	cmd := &command{
		sess: sess, id: id, name: p.Command, args: p.Args, cwd: absolute(machine.Account(), p.Cwd),
		startedAt: s.clock.Now(), began: time.Now(), log: newCommandLog(s.spool), done: make(chan struct{}),
	}
	stdout, stderr := newOutputWriter(cmd.log, "stdout"), newOutputWriter(cmd.log, "stderr")
	if !s.enter() {
		return nil, errClosing
	}
	proc, err := sess.launch(ctx, machine, cmd, p, env, stdout, stderr)
	if err != nil {
		s.leave()
		cmd.log.Remove()
		return nil, err
	}
	cmd.mu.Lock()
	cmd.proc = proc
	if p.Timeout != nil {
		cmd.timeout = s.clock.AfterFunc(time.Duration(*p.Timeout), func() { _ = proc.SignalGroup(sigKill) })
	}
	cmd.mu.Unlock()
	st.mu.Lock()
	sess.commands[id] = cmd
	sess.order = append(sess.order, cmd)
	st.mu.Unlock()
	go func() {
		defer s.leave()
		code := proc.Wait()
		stdout.Flush()
		stderr.Flush()
		cmd.finish(code)
		st.mu.Lock()
		late := sess.machine == nil
		st.mu.Unlock()
		if late { // it was started while the session ended
			cmd.log.Remove()
		}
	}()
	return cmd, nil
}

// launch starts the stub that fits the command, or a process.
func (sess *session) launch(ctx context.Context, machine *box.Box, cmd *command, p *commandParams, env map[string]string, stdout, stderr *outputWriter) (runner, error) {
	if h := sess.sb.s.stubs.find(p.Command, p.Args); h != nil {
		inv := &Invocation{
			Sandbox: sess.sb.key.name, Session: sess.id, Name: p.Command, Args: slices.Clone(p.Args),
			Cwd: cmd.cwd, Env: env, Sudo: p.Sudo, Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr,
			machine: machine,
		}
		if !p.AttachStdin {
			return startStub(h, inv), nil
		}
		ours, its := net.Pipe()
		cmd.input, inv.Stdin = &commandInput{pipe: ours}, its
		return startStub(func(ctx context.Context, inv *Invocation) int {
			defer ours.Close()
			defer its.Close()
			return h(ctx, inv)
		}, inv), nil
	}
	early := &firstLine{}
	spec := box.Spec{
		Path: p.Command, Args: p.Args, Dir: p.Cwd, Env: environ(env),
		Stdout: stdout, Stderr: early.tee(stderr), OpenStdin: p.AttachStdin,
	}
	if p.Sudo {
		spec.User = "root"
	}
	proc, err := machine.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	if proc.Pid() == 0 {
		// The machine tells it as a shell does; the API refuses the request.
		if res := proc.Wait(); res.ExitCode == 127 {
			return nil, fail(http.StatusBadRequest, "executable_not_found", "[invalid_argument] executable file not found in $PATH: %s", p.Command)
		}
		return nil, badRequest("[invalid_argument] %s", early.text())
	}
	if p.AttachStdin {
		cmd.input = &commandInput{pipe: proc.Input()}
	}
	return process{proc}, nil
}

// environ makes KEY=value entries, in a fixed order.
func environ(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

func (cmd *command) finish(code int) {
	cut := cmd.sess.isEnding()
	cmd.mu.Lock()
	cmd.exitCode, cmd.cut = &code, cut
	cmd.duration = max(0, cmd.sess.sb.s.clock.Now().Sub(cmd.startedAt))
	cmd.timeout.Stop()
	cmd.mu.Unlock()
	cmd.log.Close()
	close(cmd.done)
}

// awaitCommands waits until the commands of a machine that was stopped have
// noticed.
func (sess *session) awaitCommands() {
	st := sess.sb.s.store
	st.mu.Lock()
	commands := slices.Clone(sess.order)
	st.mu.Unlock()
	for _, cmd := range commands {
		<-cmd.done
	}
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

// liveCommand is command for what only a command that runs can be asked.
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
	c.s.store.mu.Lock()
	order := slices.Clone(sess.order)
	c.s.store.mu.Unlock()
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
			cmd.ended()
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

func (c *call) killCommand() error {
	cmd, err := c.liveCommand()
	if err != nil {
		return err
	}
	var p struct {
		Signal *int `json:"signal"`
	}
	if _, err := c.decode(&p); err != nil {
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
	switch err := proc.Signal(*p.Signal); {
	case errors.Is(err, os.ErrProcessDone):
		return errCommandGone
	case err != nil:
		return fmt.Errorf("signal: %w", err)
	}
	writeJSON(c.w, http.StatusOK, wire.CommandResponse{Command: cmd.wire()})
	return nil
}
