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
		newTool("bash", "Run a command line in a new shell and return its output, standard error included, and its exit code. "+
			"If the result would be longer than {output} bytes, the middle of the output is left out. "+
			"Use start_command for servers and other programs that keep running.", runShell).asDestructive(),
		newTool("start_command", "Start a command line, such as a server, and leave it running. Returns its command_id.", startCommand).asDestructive(),
		newTool("read_output", "Read what a started command has written since a cursor, and whether it has ended", readOutput).asReadOnly(),
		newTool("write_input", "Write to the standard input of a command that was started with input", writeInput).asDestructive(),
		newTool("stop_command", "Stop a started command and its children", stopCommand).asDestructive(),
		newTool("python", "Run Python in an interpreter whose variables stay from call to call, and return its output, "+
			"the value of a last expression, and the files that it made or changed", runPython).asDestructive(),
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
	p.Dir = in.Cwd.abs
	if len(in.Env) > 0 {
		p.Env = maps.Clone(in.Env)
	}
	return &p
}

// longestArgument is the maximum size of one argument or variable on Linux.
const longestArgument = 128<<10 - 1

// check returns an error for a command that can't be started.
func (in *shellInput) check() error {
	if strings.TrimSpace(in.Command) == "" {
		return modelErrorf("The command is empty.")
	}
	if n := len(in.Command); n > longestArgument {
		return modelErrorf("The command has %d bytes; at most %d can be run. Write long text by write_file, and use the file.", n, longestArgument)
	}
	for name, value := range in.Env {
		if n := len(name) + len("=") + len(value); n > longestArgument {
			return modelErrorf("The variable %s has %d bytes; at most %d fit. Write long text by write_file, and use the file.", oneLine(name), n, longestArgument)
		}
	}
	return nil
}

// startError explains to the model what is wrong with the directory in which a command could
// not start. It returns other errors unchanged.
func (c *call) startError(ctx context.Context, cwd location, err error) error {
	if cwd.abs == "" || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	info, statErr := c.sb.FS().Stat(ctx, cwd.abs)
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		return modelErrorf("There is no directory %s to run it in.", oneLine(cwd.given))
	case statErr == nil && !info.IsDir():
		return modelErrorf("%s is not a directory, so nothing can run in it.", oneLine(cwd.given))
	}
	return err
}

// killTime is how long killing a command, or writing to its input, may take.
const killTime = 10 * time.Second

func runShell(ctx context.Context, c *call, in *runInput) (Result, error) {
	if err := in.check(); err != nil {
		return Result{}, err
	}
	limit := c.limits().timeout(in.Timeout)
	out := newWindow(c.limits().dataBytes())
	var w io.Writer = out
	if c.t.opts.OnOutput != nil {
		w = io.MultiWriter(w, writerFunc(func(p []byte) { c.t.opts.OnOutput(c.Call, p) }))
	}
	if p := progressFrom(ctx); p != nil {
		w = io.MultiWriter(w, p)
	}
	copying, done := context.WithCancel(ctx)
	defer done()
	// Timeout ends the command even if this program has ended. KillOnCancel also kills a
	// command whose call is canceled before the start is confirmed.
	cmd, err := c.sb.StartCommand(copying, "bash", []string{"-c", in.Command}, &sandbox.StartOptions{
		Cwd: in.Cwd.abs, Env: in.Env, Stdout: w, Stderr: w, Timeout: min(limit+time.Minute, 5*time.Hour),
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
		how = describeExit(ended.ExitCode)
	case wait.Err() == nil:
		return partialResult(out), err
	default:
		killErr := killTree(ctx, cmd)
		if errors.Is(killErr, sandbox.ErrStopped) {
			return partialResult(out), killErr
		}
		if ctx.Err() != nil {
			return Result{}, errors.Join(err, killErr)
		}
		data["timed_out"] = true
		how = fmt.Sprintf("It was still running after %v and was stopped, with its children.", limit)
		if killErr != nil {
			how = fmt.Sprintf("It was still running after %v and could not be stopped: parts of it may still be running.", limit)
		}
	}
	text, omitted := outputText(out)
	data["omitted_bytes"] = omitted
	return Result{Text: how + text, Failed: data["timed_out"] == true, Data: data}, nil
}

// partialResult returns the output of a command whose session ended before the command did.
func partialResult(out *window) Result {
	text, omitted := outputText(out)
	return Result{Text: text, Data: map[string]any{"omitted_bytes": omitted}}
}

// killTree kills a command with its children and waits for the end of its output, even if
// ctx has ended.
func killTree(ctx context.Context, cmd *sandbox.Command) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	err := cmd.SignalTree(ctx, sandbox.SIGKILL)
	if isProcessDone(err) {
		err = nil
	}
	if err != nil && !errors.Is(err, sandbox.ErrChildren) {
		return err
	}
	_, waitErr := cmd.Wait(ctx)
	return errors.Join(err, waitErr)
}

// writerFunc is a function that implements io.Writer.
type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

func outputText(w *window) (text string, omitted int64) {
	text, omitted = w.text()
	if text == "" {
		return " No output.", 0
	}
	if omitted > 0 {
		return fmt.Sprintf(" %d bytes of output are left out in the middle.\n%s", omitted, wrapData(text)), omitted
	}
	return "\n" + wrapData(text), 0
}

// describeExit says how a command ended.
func describeExit(code int) string {
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
