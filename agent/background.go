package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
)

// background is a command that runs in the background.
type background struct {
	cmd   *sandbox.Command
	ended bool // known to have ended; guarded by sandboxState.mu

	writing     sync.Mutex // held during a write to stdin
	stdin       io.WriteCloser
	cancelStdin context.CancelFunc
}

type startInput struct {
	shellInput
	Input bool `json:"input,omitempty" is:"whether write_input will be used"`
}

func (in *startInput) program() *Program {
	p := in.shellInput.program()
	p.StdinOpen = in.Input
	return p
}

func startCommand(ctx context.Context, c *call, in *startInput) (Result, error) {
	if err := in.check(); err != nil {
		return Result{}, err
	}
	err := c.reserveCommand(ctx)
	var b *background // nil until the command has started
	defer func() {
		c.state.mu.Lock()
		defer c.state.mu.Unlock()
		c.state.starting--
		if b != nil {
			c.state.commands[b.cmd.ID()] = b
		}
	}()
	if err != nil {
		return Result{}, err
	}
	live, end, started := startContext(ctx, context.WithoutCancel(ctx))
	cmd, err := c.sb.StartCommand(live, "bash", []string{"-c", in.Command}, &sandbox.StartOptions{Cwd: in.Cwd.abs, Env: in.Env, AttachStdin: in.Input, KillOnCancel: true})
	if !started() || err != nil {
		end()
		if err == nil {
			err = ctx.Err()
		}
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return Result{}, modelErrorf("This sandbox can't give input to a running command. Start it without input, and redirect its input from a file.")
	}
	if err != nil {
		return Result{}, c.startError(ctx, in.Cwd, err)
	}
	b = &background{cmd: cmd}
	return Result{Text: "Started. command_id: " + cmd.ID(), Data: map[string]any{"command_id": cmd.ID()}}, nil
}

// startContext returns a context for starting a command with KillOnCancel. Until started is
// called, the context also ends when ctx does: a call that is canceled during the start kills
// its command. After that the command continues without the call, until base ends or the
// caller calls end. started reports whether it was called before the call was canceled.
func startContext(ctx, base context.Context) (live context.Context, end context.CancelFunc, started func() bool) {
	live, end = context.WithCancel(base)
	return live, end, context.AfterFunc(ctx, end)
}

// reserveCommand counts one more command as starting, even if it fails. It fails if too many
// commands run already. Those that other calls are starting count as well.
func (c *call) reserveCommand(ctx context.Context) error {
	c.state.mu.Lock()
	starting := c.state.starting
	c.state.starting++
	var running []*background
	for id, b := range c.state.commands {
		if b.ended || b.cmd.SessionID() != sessionID(c.sb) {
			delete(c.state.commands, id)
			continue
		}
		running = append(running, b)
	}
	c.state.mu.Unlock()
	if starting+len(running) < c.limits().Background {
		return nil
	}
	left := starting
	for _, b := range running { // this makes a request for each, but only at the limit
		cmd, err := c.sb.GetCommand(ctx, b.cmd.ID())
		switch {
		case isGone(err):
		case err != nil:
			return err
		default:
			if _, ended := cmd.ExitStatus(); !ended {
				left++
				continue
			}
		}
		c.state.mu.Lock()
		b.ended = true
		c.state.mu.Unlock()
	}
	if left >= c.limits().Background {
		return modelErrorf("%d commands are already running in the background. Stop one first.", left)
	}
	return nil
}

func sessionID(sb *sandbox.Sandbox) string {
	if s := sb.CurrentSession(); s != nil {
		return s.ID()
	}
	return ""
}

func isProcessDone(err error) bool { return errors.Is(err, os.ErrProcessDone) }

// isGone reports whether err means that a sandbox or a command no longer exists, or that its
// session has ended.
func isGone(err error) bool {
	return errors.Is(err, sandbox.ErrStopped) || errors.Is(err, sandbox.ErrNotFound)
}

type commandInput struct {
	ID string `json:"command_id" is:"the command, as start_command has returned it"`
}

// findCommand returns the background command with this ID. Another Toolset may have started it.
func (c *call) findCommand(ctx context.Context, id string) (*background, error) {
	gone := modelErrorf("There is no command %q in this session of the sandbox. Commands end when the sandbox stops: start it again.", oneLine(id))
	c.state.mu.Lock()
	b := c.state.commands[id]
	c.state.mu.Unlock()
	if b != nil && b.cmd.SessionID() == sessionID(c.sb) {
		return b, nil
	}
	cmd, err := c.sb.GetCommand(ctx, id)
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil, gone
	}
	if err != nil {
		return nil, err
	}
	b = &background{cmd: cmd}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if known := c.state.commands[id]; known != nil && known.cmd.SessionID() == cmd.SessionID() {
		return known, nil
	}
	c.state.commands[id] = b
	return b, nil
}

type outputInput struct {
	commandInput
	Cursor string  `json:"cursor,omitempty" is:"where the last read_output ended; the beginning by default"`
	Wait   float64 `json:"wait_seconds,omitempty" is:"how long to wait for the command's end; 1 by default, 60 at most"`
}

// maxWait is the maximum of wait_seconds.
const maxWait = 60

// readOutput reads the log to its current end. The service serves a log only from its start,
// so readOutput discards the output before the cursor. The time for that does not count toward
// wait_seconds.
func readOutput(ctx context.Context, c *call, in *outputInput) (Result, error) {
	var from, at [2]int64 // byte offsets in standard output and in standard error
	if in.Cursor != "" {
		if n, err := fmt.Sscanf(in.Cursor, "%d.%d", &from[0], &from[1]); n != 2 || err != nil || from[0] < 0 || from[1] < 0 {
			return Result{}, modelErrorf("The cursor is not from read_output.")
		}
	}
	b, err := c.findCommand(ctx, in.ID)
	if err != nil {
		return Result{}, err
	}
	seconds := min(max(in.Wait, 0), maxWait)
	if in.Wait <= 0 {
		seconds = 1
	}
	patience := time.Duration(seconds * float64(time.Second))
	reading, stop := context.WithTimeout(ctx, c.limits().MaxTimeout)
	defer stop()
	waiting := time.AfterFunc(patience, stop)
	defer waiting.Stop()
	if from != at {
		waiting.Stop()
	}
	out := newWindow(c.limits().dataBytes())
	for chunk, chunkErr := range b.cmd.LogChunks(reading) {
		if err = chunkErr; err != nil {
			break
		}
		i := 0
		if chunk.Stream == sandbox.Stderr {
			i = 1
		}
		skip := min(max(from[i]-at[i], 0), int64(len(chunk.Data)))
		at[i] += int64(len(chunk.Data))
		behind := at[0] < from[0] || at[1] < from[1]
		if skip > 0 && !behind {
			waiting.Reset(patience)
		}
		_, _ = out.Write(chunk.Data[skip:]) // it never fails
	}
	at[0], at[1] = max(at[0], from[0]), max(at[1], from[1])
	cursor := fmt.Sprintf("%d.%d", at[0], at[1])
	data := map[string]any{"cursor": cursor}
	state := "It is still running."
	switch {
	case err != nil && ctx.Err() != nil:
		return Result{}, err
	case err != nil && reading.Err() != nil:
	case err != nil:
		return partialResult(out), err
	default:
		ended, err := b.cmd.Wait(ctx)
		if err != nil {
			return Result{}, err
		}
		c.state.mu.Lock()
		b.ended = true
		c.state.mu.Unlock()
		data["exit_code"] = ended.ExitCode
		state = "It has ended. " + describeExit(ended.ExitCode)
	}
	text, omitted := outputText(out)
	data["omitted_bytes"] = omitted
	return Result{Text: state + " cursor: " + cursor + "." + text, Data: data}, nil
}

type writeInputInput struct {
	commandInput
	Text  string `json:"text,omitempty" is:"what to write; add a newline where the program expects one"`
	Close bool   `json:"close,omitempty" is:"whether the input ends after it"`
}

func (in *writeInputInput) program() *Program {
	return &Program{CommandID: in.ID, Stdin: in.Text, StdinOpen: !in.Close}
}

func writeInput(ctx context.Context, c *call, in *writeInputInput) (Result, error) {
	b, err := c.findCommand(ctx, in.ID)
	if err != nil {
		return Result{}, err
	}
	b.writing.Lock()
	defer b.writing.Unlock()
	if b.stdin == nil {
		ctx, cancel := context.WithCancel(c.t.ctx)
		b.stdin, b.cancelStdin = b.cmd.Stdin(ctx), cancel
	}
	done := make(chan error, 1)
	go func() {
		_, err := io.WriteString(b.stdin, in.Text)
		if err == nil && in.Close {
			err = b.stdin.Close()
		}
		done <- err
	}()
	wait, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	select {
	case err = <-done:
	case <-wait.Done(): // the program does not read its input
		b.cancelStdin()
		b.stdin = nil
		if err = <-done; err == nil {
			break
		}
		return Result{}, modelErrorf("The command does not read its input. It is unknown how much of this has arrived.")
	}
	switch {
	case errors.Is(err, sandbox.ErrStopped):
		return Result{}, err
	case errors.Is(err, io.ErrClosedPipe), errors.Is(err, os.ErrClosed):
		return Result{}, modelErrorf("The command takes no more input: it has ended or closed it, or was started without input.")
	case err != nil:
		return Result{}, err
	case in.Close:
		return Result{Text: fmt.Sprintf("%d bytes written, and the input ended.", len(in.Text))}, nil
	}
	return Result{Text: fmt.Sprintf("%d bytes written.", len(in.Text))}, nil
}

func stopCommand(ctx context.Context, c *call, in *commandInput) (Result, error) {
	b, err := c.findCommand(ctx, in.ID)
	if err != nil {
		return Result{}, err
	}
	err = b.cmd.SignalTree(ctx, sandbox.SIGTERM)
	alone := errors.Is(err, sandbox.ErrChildren)
	if err != nil && !alone && !isProcessDone(err) {
		return Result{}, err
	}
	const grace = 3 * time.Second
	wait, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if _, err := b.cmd.Wait(wait); err != nil {
		if err := killTree(ctx, b.cmd); err != nil && !errors.Is(err, sandbox.ErrChildren) {
			return Result{}, err
		}
	}
	c.state.mu.Lock()
	b.ended = true
	c.state.mu.Unlock()
	text := "Stopped, with its children."
	if alone {
		text = "Stopped. Its children may still be running: they could not be found."
	}
	return Result{Text: text}, nil
}
