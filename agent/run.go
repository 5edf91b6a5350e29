package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"strings"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox"
)

func commandTools() []*tool {
	return []*tool{
		define("bash", "Run a command line in a new shell and return its output, standard error included, and its exit code. "+
			"Of an output that makes the result longer than {output} bytes the middle is left out. "+
			"Use start_command for servers and whatever else keeps running.", runShell).destroys(),
		define("start_command", "Start a command line, such as a server, and leave it running. Returns its command_id.", startCommand).destroys(),
		define("read_output", "Read what a started command has written since a cursor, and whether it has ended", readOutput).reads(),
		define("write_input", "Write to the standard input of a command that was started with input", writeInput).destroys(),
		define("stop_command", "Stop a started command and its children", stopCommand).destroys(),
		define("python", "Run Python in an interpreter whose variables stay from call to call, and return its output, "+
			"the value of a last expression, and the files that it made or changed", runPython).destroys(),
	}
}

type shellInput struct {
	Command string            `json:"command" is:"the command line, for bash"`
	Cwd     location          `json:"cwd,omitzero" is:"the directory to run it in; the sandbox's working directory by default"`
	Env     map[string]string `json:"env,omitempty" is:"environment variables to add"`
}

type runInput struct {
	shellInput
	Timeout float64 `json:"timeout_seconds,omitempty" is:"how long it may run; {timeout} by default, {longest} at most"`
}

func (in *shellInput) program() *Program {
	p := CommandLine(in.Command)
	p.Dir = in.Cwd.at
	if len(in.Env) > 0 {
		p.Env = maps.Clone(in.Env)
	}
	return &p
}

// longestArgument is what Linux takes as one argument or variable of a program.
const longestArgument = 128<<10 - 1

// check refuses a command that no program can be started with.
func (in *shellInput) check() error {
	if strings.TrimSpace(in.Command) == "" {
		return mistake("The command is empty.")
	}
	if n := len(in.Command); n > longestArgument {
		return mistake("The command has %d bytes; at most %d can be run. Write long text by write_file, and use the file.", n, longestArgument)
	}
	for name, value := range in.Env {
		if n := len(name) + len("=") + len(value); n > longestArgument {
			return mistake("The variable %s has %d bytes; at most %d fit. Write long text by write_file, and use the file.", line(name), n, longestArgument)
		}
	}
	return nil
}

// startError explains what is wrong with the directory if a command could not start
// because of it.
func (c *call) startError(ctx context.Context, cwd location, err error) error {
	if cwd.at == "" || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	info, statErr := c.sb.FS().Stat(ctx, cwd.at)
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		return mistake("There is no directory %s to run it in.", line(cwd.said))
	case statErr == nil && !info.IsDir():
		return mistake("%s, to run it in, is not a directory.", line(cwd.said))
	}
	return err
}

// killTime is how long a command may take to be killed.
const killTime = 10 * time.Second

func runShell(ctx context.Context, c *call, in *runInput) (Result, error) {
	if err := in.check(); err != nil {
		return Result{}, err
	}
	limit := c.limits().timeout(in.Timeout)
	out := newWindow(c.limits().data())
	var w io.Writer = out
	if c.t.opts.OnOutput != nil {
		w = io.MultiWriter(w, teller(func(p []byte) { c.t.opts.OnOutput(c.Call, p) }))
	}
	if p := progressOf(ctx); p != nil {
		w = io.MultiWriter(w, p)
	}
	copying, done := context.WithCancel(ctx)
	defer done()
	// Timeout ends the command if this program is gone by then. KillOnCancel also kills a
	// command if the call is canceled before the response to its start.
	cmd, err := c.sb.StartCommand(copying, "bash", []string{"-c", in.Command}, &sandbox.StartOptions{
		Cwd: in.Cwd.at, Env: in.Env, Stdout: w, Stderr: w, Timeout: min(limit+time.Minute, 5*time.Hour),
		KillOnCancel: true,
	})
	if err != nil {
		return Result{}, c.startError(ctx, in.Cwd, err)
	}
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ended, err := cmd.Wait(wait)
	data := map[string]any{"timed_out": false}
	var how string
	switch {
	case err == nil:
		data["exit_code"] = ended.ExitCode
		how = exitText(ended.ExitCode)
	case wait.Err() == nil:
		return soFar(out), err
	default:
		killErr := killTree(ctx, cmd)
		if errors.Is(killErr, sandbox.ErrStopped) {
			return soFar(out), killErr
		}
		if ctx.Err() != nil {
			return Result{}, errors.Join(err, killErr)
		}
		data["timed_out"] = true
		how = fmt.Sprintf("It had not ended after %v, and was stopped with its children.", limit)
		if killErr != nil {
			how = fmt.Sprintf("It had not ended after %v. Stopping it failed: some of it may still run.", limit)
		}
	}
	text, omitted := outputText(out)
	data["omitted_bytes"] = omitted
	return Result{Text: how + text, Failed: data["timed_out"] == true, Data: data}, nil
}

// soFar returns the result of a command whose session ended before it did.
func soFar(out *window) Result {
	text, omitted := outputText(out)
	return Result{Text: text, Data: map[string]any{"omitted_bytes": omitted}}
}

// killTree kills a command with its children, and waits for the end of its
// output, also if ctx has ended.
func killTree(ctx context.Context, cmd *sandbox.Command) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	err := cmd.SignalTree(ctx, sandbox.SIGKILL)
	if isDone(err) {
		err = nil
	}
	if err != nil && !errors.Is(err, sandbox.ErrChildren) {
		return err
	}
	_, waitErr := cmd.Wait(ctx)
	return errors.Join(err, waitErr)
}

// teller is a writer that calls a function with each piece.
type teller func(p []byte)

func (f teller) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

func outputText(w *window) (text string, omitted int64) {
	text, omitted = w.text()
	if text == "" {
		return " No output.", 0
	}
	if omitted > 0 {
		return fmt.Sprintf(" %d bytes of output are left out in the middle.\n%s", omitted, marked(text)), omitted
	}
	return "\n" + marked(text), 0
}

// exitText says how a command ended.
func exitText(code int) string {
	const bySignal = 128
	switch {
	case code == 127:
		return "Exit code 127 (command not found)."
	case code == 126:
		return "Exit code 126 (it can't be executed)."
	case code > bySignal && code <= bySignal+64:
		return fmt.Sprintf("Exit code %d (ended by %v).", code, sandbox.Signal(code-bySignal))
	}
	return fmt.Sprintf("Exit code %d.", code)
}
