package store

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/clean"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// CommandSpec describes a command to start.
type CommandSpec struct {
	Name      string
	Args      []string
	Cwd       string
	Env       map[string]string
	Sudo      bool
	Timeout   *time.Duration
	OpenStdin bool
}

// runner executes a command.
type runner interface {
	// Signal signals the process alone. It returns os.ErrProcessDone if the process has
	// ended.
	Signal(n int) error
	// SignalGroup also signals its children.
	SignalGroup(n int) error
	// Wait waits for the end and returns the exit code.
	Wait() int
}

// RunCommand starts a command on the machine, with the ID that the caller has chosen or a
// new one.
func (sess *Session) RunCommand(ctx context.Context, chosen string, p *CommandSpec) (*Command, error) {
	machine, err := sess.Use(ctx)
	if err != nil {
		return nil, err
	}
	cmd, err := sess.launchCommand(ctx, machine, chosen, p)
	if err != nil {
		return nil, sess.MachineError(ctx, err)
	}
	return cmd, nil
}

func (sess *Session) launchCommand(ctx context.Context, machine *box.Box, chosen string, p *CommandSpec) (*Command, error) {
	id, err := sess.reserveID(ctx, chosen)
	if err != nil {
		return nil, err
	}
	defer sess.endReservation(id)
	st := sess.sb.st
	st.mu.Lock()
	env := maps.Clone(sess.sb.rec.Settings.Env)
	st.mu.Unlock()
	if env == nil {
		env = make(map[string]string, len(p.Env))
	}
	maps.Copy(env, p.Env)
	cmd := &Command{
		sess: sess, id: id, name: p.Name, args: p.Args, cwd: absoluteCwd(machine.Account(), p.Cwd),
		startedAt: st.Clock.Now(), began: time.Now(), log: newCommandLog(st.logDir), done: make(chan struct{}),
	}
	stdout, stderr := newOutputWriter(cmd.log, "stdout"), newOutputWriter(cmd.log, "stderr")
	if !st.Enter() {
		return nil, reply.ErrClosing
	}
	proc, err := sess.launch(ctx, machine, cmd, p, env, stdout, stderr)
	if err != nil {
		st.Leave()
		cmd.log.Remove()
		return nil, err
	}
	cmd.mu.Lock()
	cmd.proc = proc
	if p.Timeout != nil {
		cmd.timeout = st.Clock.AfterFunc(*p.Timeout, func() { _ = proc.SignalGroup(SigKill) })
	}
	cmd.mu.Unlock()
	st.mu.Lock()
	sess.commands[id] = cmd
	sess.order = append(sess.order, cmd)
	st.mu.Unlock()
	go func() {
		defer st.Leave()
		code := proc.Wait()
		st.guard.Do("ending output", func() { stdout.Flush(); stderr.Flush() })
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

// launch starts the stub that matches the command, or else a process.
func (sess *Session) launch(ctx context.Context, machine *box.Box, cmd *Command, p *CommandSpec, env map[string]string, stdout, stderr *outputWriter) (runner, error) {
	own, name, args := clean.Of(p.Name, p.Args)
	if h := sess.sb.st.opts.Stub(name, args); h != nil {
		if own != nil {
			env = clean.Env(env)
		}
		inv := &Invocation{
			Sandbox: sess.sb.rec.Key.Name, Session: sess.rec.ID, Name: name, Args: slices.Clone(args),
			Cwd: cmd.cwd, Env: env, Sudo: p.Sudo, Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr,
			Machine: machine,
		}
		if !p.OpenStdin {
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
	spec := backend.Spec{
		Path: p.Name, Args: p.Args, Dir: p.Cwd, Env: environ(env),
		Stdout: stdout, Stderr: stderr, OpenStdin: p.OpenStdin,
	}
	if p.Sudo {
		spec.User = "root"
	}
	proc, err := machine.Start(ctx, spec)
	if failure, ok := errors.AsType[*backend.LaunchError](err); ok {
		if failure.Code == backend.CodeNotFound {
			return nil, reply.Fail(http.StatusBadRequest, "executable_not_found", "[invalid_argument] executable file not found in $PATH: %s", p.Name)
		}
		return nil, reply.BadRequest("[invalid_argument] %s", failure.Message)
	}
	if err != nil {
		return nil, err
	}
	if p.OpenStdin {
		cmd.input = &commandInput{pipe: proc.Input()}
	}
	return proc, nil
}

// environ returns KEY=value entries in a fixed order.
func environ(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

func (cmd *Command) finish(code int) {
	cut := cmd.sess.isEnding()
	cmd.mu.Lock()
	cmd.exitCode, cmd.cut = &code, cut
	cmd.duration = max(0, cmd.sess.sb.st.Clock.Now().Sub(cmd.startedAt))
	cmd.timeout.Stop()
	cmd.mu.Unlock()
	cmd.log.Close()
	close(cmd.done)
}

// signalGrace is how long the end of a session waits for a command that has just received a
// signal. With the service, the end of the session follows later, because of the network.
// Besides, this machine may be busy.
const signalGrace = 2 * time.Second

// Started returns the session's commands.
func (sess *Session) Started() []*Command {
	st := sess.sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(sess.order)
}

// awaitSignals waits for commands to end after the signals that they have just received.
func (sess *Session) awaitSignals() {
	for _, cmd := range sess.Started() {
		cmd.mu.Lock()
		left := signalGrace - time.Since(cmd.signalled)
		cmd.mu.Unlock()
		if left <= 0 {
			continue
		}
		t := time.NewTimer(left)
		select {
		case <-cmd.done:
		case <-t.C:
		}
		t.Stop()
	}
}

// awaitCommands waits until the commands of a stopped machine have ended.
func (sess *Session) awaitCommands() {
	for _, cmd := range sess.Started() {
		<-cmd.done
	}
}
