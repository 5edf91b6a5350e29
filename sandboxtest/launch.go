package sandboxtest

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/clean"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

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

// launchCommand starts a command on the machine, with an ID that the caller
// has chosen or one of our own.
func (sess *session) launchCommand(ctx context.Context, machine *box.Box, chosen string, p *commandParams) (*command, error) {
	id, err := sess.takeID(ctx, chosen)
	if err != nil {
		return nil, err
	}
	defer sess.settleID(id)
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
		s.guard.Do("ending output", func() { stdout.Flush(); stderr.Flush() })
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
	own, name, args := clean.Of(p.Command, p.Args)
	if h := sess.sb.s.stubs.find(name, args); h != nil {
		if own != nil {
			env = clean.Env(env)
		}
		inv := &Invocation{
			Sandbox: sess.sb.key.name, Session: sess.id, Name: name, Args: slices.Clone(args),
			Cwd: cmd.cwd, Env: env, Sudo: p.Sudo, Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr,
			machine: machine,
		}
		if !p.attachesStdin() {
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
		Stdout: stdout, Stderr: early.tee(stderr), OpenStdin: p.attachesStdin(),
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
	if p.attachesStdin() {
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

// signalGrace is how long the end of a session waits for a command that got a
// signal before: over a network the one would not come on the heels of the other,
// and this machine may be busy.
const signalGrace = 2 * time.Second

// started returns the session's commands.
func (sess *session) started() []*command {
	st := sess.sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(sess.order)
}

// awaitSignals lets commands end of the signals that they got a moment ago.
func (sess *session) awaitSignals() {
	for _, cmd := range sess.started() {
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

// awaitCommands waits until the commands of a machine that was stopped have
// noticed.
func (sess *session) awaitCommands() {
	for _, cmd := range sess.started() {
		<-cmd.done
	}
}
