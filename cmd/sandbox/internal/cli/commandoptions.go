package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/internal/wire"
)

// commandOptions describe how exec and run start a command.
type commandOptions struct {
	sudo        bool
	user        string
	interactive bool
	tty, noTTY  bool
	workdir     string
	env         []line.Pair
	envFiles    []string
	timeout     time.Duration
	noExtend    bool
	limited     bool // --timeout limits the session, and so the command: don't extend it
	detach      bool
	binary      bool
	noEcho      bool
	killOnExit  bool
	stop        bool

	environment sandbox.Env // the variables of env and envFiles together
}

// define defines the options that exec and run share.
func (o *commandOptions) define(flags *pflag.FlagSet, ttyShort string) {
	line.Toggle(flags, &o.sudo, "sudo", "", "Run the command as root")
	line.Option(flags, &o.user, "user", "u", "name", "", "Run the command as another user of the sandbox", line.ParseUser)
	line.Toggle(flags, &o.interactive, "interactive", "i", "Pass standard input on: key by key from a terminal, as it arrives from a pipe")
	line.Toggle(flags, &o.tty, "tty", ttyShort, "Run the command in a terminal")
	line.Toggle(flags, &o.noTTY, "no-tty", "T", "Never run the command in a terminal")
	line.Toggle(flags, &o.noExtend, "no-extend-timeout", "", "Don't extend the sandbox's timeout while the command runs")
	line.Option(flags, &o.workdir, "workdir", "w", "str", "", "The directory to run the command in", line.ParseDirectory)
	line.Toggle(flags, &o.detach, "detach", "d", "Start the command, write its ID to standard output and leave it running")
	line.Toggle(flags, &o.binary, "binary", "", "Pass standard output on byte for byte, for output that is not text")
	line.Toggle(flags, &o.noEcho, "no-echo", "", "Don't show the command line on standard error")
	line.Toggle(flags, &o.killOnExit, "kill-on-exit", "", "Kill the command at once when a signal ends this program")
	line.Toggle(flags, &o.stop, "stop", "", "Stop the sandbox when the command has ended")
}

// checkCommand reads the environment, and reports contradictory options and invalid
// arguments. It makes no request.
func (p *deps) checkCommand(o *commandOptions, words []string) (err error) {
	if o.environment, err = p.readEnv(o.env, o.envFiles); err != nil {
		return err
	}
	if err := wire.CheckEnv(o.environment); err != nil {
		return line.Usagef("--env: %v", err)
	}
	for _, word := range words {
		if err := wire.CheckText(word); err != nil {
			return line.Usagef("an argument of the command %v", err)
		}
	}
	terminal, err := p.inTerminal(o)
	switch {
	case err != nil:
		return err
	case terminal && o.timeout > 0:
		return line.Usagef("--timeout can't be used with a command in a terminal")
	case o.interactive && o.timeout > 0:
		return line.Usagef("--timeout can't be used with -i or --stdin")
	case o.interactive && o.detach:
		return line.Usagef("-i and -d exclude each other")
	case o.sudo && o.user != "":
		return line.Usagef("--sudo and --user exclude each other")
	case o.binary && (terminal || o.detach):
		return line.Usagef("--binary is for commands whose output is piped")
	}
	return nil
}

// inTerminal reports whether the command is to run in a terminal.
func (p *deps) inTerminal(o *commandOptions) (bool, error) {
	stdin, stdout := line.IsTerminal(p.screen.In), p.screen.Out.Terminal
	switch {
	case o.noTTY || o.detach:
		return false, nil
	case o.tty && o.interactive && (!stdin || !stdout):
		return false, line.Usagef("-it needs a terminal; use -i alone to pipe standard input")
	case o.interactive && stdin && stdout:
		return true, nil
	}
	return o.tty && stdin && stdout, nil
}

// runRemote runs a command in a sandbox and returns its exit code.
func (p *deps) runRemote(ctx context.Context, sb *sandbox.Sandbox, o *commandOptions, name string, args []string) error {
	terminal, err := p.inTerminal(o)
	if err != nil {
		return err
	}
	if o.user != "" {
		if o.workdir, err = userDirectory(ctx, sb, o.user, o.workdir); err != nil {
			return err
		}
	}
	if terminal {
		return p.terminal(ctx, sb, &terminalOptions{
			command: name, args: args, env: o.environment, workdir: o.workdir, sudo: o.sudo, user: o.user, keepAlive: !o.noExtend,
		})
	}
	r := &remoteRun{deps: *p, sb: sb, o: o, name: name, args: args}
	return r.run(ctx)
}

// commandTarget is a sandbox or one of its users.
type commandTarget interface {
	StartCommand(ctx context.Context, name string, args []string, opts *sandbox.StartOptions) (*sandbox.Command, error)
	RunCommand(ctx context.Context, name string, args []string, opts *sandbox.CommandOptions) (*sandbox.CommandResult, error)
	CommandContext(ctx context.Context, name string, arg ...string) *sandbox.Cmd
}

// remoteRun is a running command whose output this program shows.
type remoteRun struct {
	deps
	sb   *sandbox.Sandbox
	o    *commandOptions
	name string
	args []string
}

func (r *remoteRun) target() (commandTarget, error) {
	if r.o.user == "" {
		return r.sb, nil
	}
	return r.sb.AsUser(r.o.user)
}

// maxEcho is the maximum length of a command line that echo shows.
const maxEcho = 2000

// truncate cuts a text to most characters.
func truncate(text string, most int) string {
	r := []rune(text)
	if len(r) <= most {
		return text
	}
	return string(r[:most-1]) + "…"
}

// echo shows the command line.
func (r *remoteRun) echo() {
	if !r.o.noEcho && !r.screen.Opts.Quiet && !r.screen.Opts.JSON {
		line := screen.Lines(truncate(line.ShellWords(append([]string{r.name}, r.args...)), maxEcho))
		fmt.Fprintln(r.screen.Err, r.screen.Err.Paint(console.Gray, "$ "+line))
	}
}

func (r *remoteRun) run(ctx context.Context) error {
	target, err := r.target()
	if err != nil {
		return err
	}
	r.echo()
	if r.o.detach {
		return r.detach(ctx, target, r.name, r.args)
	}
	if !r.o.noExtend && !r.o.limited {
		defer r.keepAlive(context.WithoutCancel(ctx), r.sb, keepAliveMargin, "the command ends with the session")()
	}
	opts := &sandbox.CommandOptions{
		Cwd: r.o.workdir, Env: r.o.environment, Sudo: r.o.sudo, Timeout: r.o.timeout, Stdout: r.screen.Out.Raw, Stderr: r.screen.Err.Raw, Binary: r.o.binary,
	}
	code, err := r.follow(ctx, target, r.name, r.args, opts)
	if err != nil {
		return r.hintAboutEnd(ctx, r.shellHint(startError(err)))
	}
	if code == 128+int(syscall.SIGKILL) && r.o.timeout > 0 {
		fmt.Fprintln(r.screen.Err, "Command was killed (SIGKILL, exit code 137).")
	}
	return screen.ExitWith(code)
}

// lookTimeout limits the time for finding out whether a command is still running.
const lookTimeout = 10 * time.Second

// hintAboutEnd adds a hint to the error of a command whose output was cut off. The hint
// says whether the command is still running, so hintAboutEnd asks the API about the
// sandbox.
func (r *remoteRun) hintAboutEnd(ctx context.Context, err error) error {
	stream, cut := errors.AsType[*sandbox.StreamError](err)
	unknown := errors.Is(err, sandbox.ErrOutcomeUnknown)
	if !cut && !unknown && !errors.Is(err, sandbox.ErrStopped) {
		return err
	}
	if written, ok := errors.AsType[*fs.PathError](err); ok {
		err = written // this program's output can't be written
	}
	late, cancel := withDeadline(ctx, lookTimeout)
	defer cancel()
	name, session := r.sb.Name(), r.sb.CurrentSession().ID()
	now, getErr := r.account.Client.Get(late, name, &sandbox.GetOptions{NoResume: true})
	switch {
	case errors.Is(getErr, sandbox.ErrNotFound):
		return screen.WithHint(err, "sandbox %s was removed, and the command ended with it", name)
	case getErr != nil:
		return err
	case now.Status() != sandbox.StatusRunning || now.CurrentSession().ID() != session:
		hint := "the session of " + name + " has ended, and the command with it"
		if r.o.limited {
			hint += "; --timeout is how long a session runs"
		}
		return screen.WithHint(err, "%s", hint)
	case unknown:
		return screen.WithHint(err, "whether the command runs is not known: see %s", screen.Try("ps %s", name))
	case cut && stream.CommandID != "":
		return screen.WithHint(err, "the command may still be running: see %s", screen.Try("logs %s %s", name, stream.CommandID))
	}
	return err
}

// builtins are commands of shells that are not programs.
var builtins = []string{"cd", "export", "source", ".", "alias", "set", "unset", "eval", "exec", "ulimit", "umask"}

// shellHint adds a hint if the user gave a whole command line, or a shell's builtin, as the
// program.
func (r *remoteRun) shellHint(err error) error {
	exit, ok := errors.AsType[*screen.ExitError](err)
	if ok && exit.Code == screen.ExitNoProgram && (strings.ContainsAny(r.name, " ;|&<>$") || slices.Contains(builtins, r.name)) {
		return &screen.ExitError{Code: exit.Code, Err: screen.WithHint(exit.Err, "a command line needs a shell: sh -c %s", line.ShellWord(strings.Join(append([]string{r.name}, r.args...), " ")))}
	}
	return err
}

// notRunnable matches the API's message about a program that exists but can't be run.
var notRunnable = regexp.MustCompile(`(?i)permission denied|is a directory`)

// startError sets the exit code of a command that did not start, as shells and docker do.
func startError(err error) error {
	if _, coded := errors.AsType[*screen.ExitError](err); coded {
		return err
	}
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return &screen.ExitError{Code: screen.ExitNoProgram, Err: err}
	case errors.Is(err, sandbox.ErrRefused) && notRunnable.MatchString(err.Error()):
		return &screen.ExitError{Code: screen.ExitNotRunnable, Err: err}
	case errors.Is(err, sandbox.ErrRefused):
		return &screen.ExitError{Code: screen.ExitNotStarted, Err: err}
	}
	return err
}

func (r *remoteRun) detach(ctx context.Context, target commandTarget, name string, args []string) error {
	cmd, err := target.StartCommand(ctx, name, args, &sandbox.StartOptions{
		Cwd: r.o.workdir, Env: r.o.environment, Sudo: r.o.sudo, Timeout: r.o.timeout, Binary: r.o.binary,
	})
	if err != nil {
		return startError(err)
	}
	if r.screen.Opts.Structured() && !r.screen.Opts.Quiet {
		return r.screen.Print(screen.Output{Doc: viewCommand(cmd), Names: []string{cmd.ID()}})
	}
	_, err = fmt.Fprintln(r.screen.Out, cmd.ID())
	return err
}

// follow runs the command, forwards signals to it, and returns its exit code.
func (r *remoteRun) follow(ctx context.Context, target commandTarget, name string, args []string, opts *sandbox.CommandOptions) (int, error) {
	pass := forwardSignals(ctx, r.screen, r.o.killOnExit)
	defer pass.stop()
	// The first signal ends ctx, but the command continues until it has handled the signal.
	// So follow waits for it with another context.
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	pass.giveUp = cancel
	if r.o.interactive {
		return r.withInput(live, target, name, args, opts, pass)
	}
	// Choose the ID here, so that a signal can find the command as soon as it runs.
	opts.ID = "cli" + strings.ToLower(rand.Text())
	pass.started(func(s sandbox.Signal) error { return r.killByID(live, opts.ID, s) })
	result, err := target.RunCommand(live, name, args, opts)
	if errors.Is(err, syscall.EPIPE) {
		// As in a shell's pipe, end a command whose output has no reader.
		_ = r.killByID(live, opts.ID, sandbox.SIGTERM) // it may have ended
	}
	if err != nil {
		return 0, pass.exitError(err)
	}
	return result.ExitCode, nil
}

const (
	killTimeout = 10 * time.Second
	killRetry   = 50 * time.Millisecond
)

// killByID sends a signal to a command that may be about to start, and to its
// children.
func (r *remoteRun) killByID(live context.Context, id string, sig sandbox.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	for {
		cmd, err := r.sb.CurrentSession().GetCommand(ctx, id)
		if err == nil {
			return cmd.SignalTree(ctx, sig)
		}
		if !errors.Is(err, sandbox.ErrNotFound) {
			return err
		}
		select {
		case <-time.After(killRetry):
		case <-live.Done():
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// withInput runs a command that reads standard input. It sends a file as a whole, and
// other input as it arrives.
func (r *remoteRun) withInput(ctx context.Context, target commandTarget, name string, args []string, opts *sandbox.CommandOptions, pass *signalForwarder) (int, error) {
	cmd := target.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Sudo, cmd.Binary, cmd.Stdout, cmd.Stderr = opts.Cwd, opts.Sudo, opts.Binary, opts.Stdout, opts.Stderr
	for k, v := range opts.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if info, err := r.screen.In.Stat(); err == nil && info.Mode().IsRegular() {
		cmd.Stdin = r.screen.In
	} else {
		// Use a pipe: Wait would otherwise wait for a read of standard input that is in
		// flight.
		pipe, err := cmd.StdinPipe()
		if err != nil {
			return 0, err
		}
		go r.passInput(pipe)
	}
	if err := cmd.Start(); err != nil {
		return 0, pass.exitError(err)
	}
	pass.started(func(s sandbox.Signal) error { return cmd.Process.SignalTree(s) })
	err := cmd.Wait()
	if errors.Is(err, syscall.EPIPE) {
		_ = cmd.Process.SignalTree(sandbox.SIGTERM) // it may have ended
	}
	if _, exited := errors.AsType[*sandbox.ExitError](err); err != nil && !exited {
		return 0, pass.exitError(err)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// passInput forwards standard input and its end to a command. If the command does not read
// everything, that is not an error. If standard input can't be read, passInput prints a
// warning.
func (p *deps) passInput(w io.WriteCloser) {
	in := &errorRecorder{r: p.screen.In}
	_, _ = io.Copy(w, in)
	if in.err != nil {
		p.screen.Warn("standard input can't be read: "+in.err.Error(), "the command gets what was read before that")
	}
	_ = w.Close()
}

// errorRecorder is a reader that records its error, except io.EOF.
type errorRecorder struct {
	r   io.Reader
	err error
}

func (e *errorRecorder) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil && err != io.EOF {
		e.err = err
	}
	return n, err
}
