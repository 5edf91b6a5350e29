package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/go-vercel/sandbox"
)

// runner is what runs commands: a sandbox, a session or a user.
type runner interface {
	RunCommand(ctx context.Context, name string, args []string, opts *sandbox.CommandOptions) (*sandbox.CommandResult, error)
	StartCommand(ctx context.Context, name string, args []string, opts *sandbox.CommandOptions) (*sandbox.Command, error)
}

func opRunCommand(c *call) (any, error) {
	t, err := on[runner](c)
	if err != nil {
		return nil, err
	}
	var a struct {
		Cmd       string            `json:"cmd"`
		Args      []string          `json:"args"`
		Cwd       string            `json:"cwd"`
		Env       map[string]string `json:"env"`
		Sudo      bool              `json:"sudo"`
		Detached  bool              `json:"detached"`
		TimeoutMs float64           `json:"timeoutMs"`
		Stdout    bool              `json:"stdout"`
		Stderr    bool              `json:"stderr"`
		Form      string            `json:"form"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	o := sandbox.CommandOptions{Timeout: millis(a.TimeoutMs)}
	if a.Form != "string" {
		o.Cwd, o.Env, o.Sudo = a.Cwd, a.Env, a.Sudo
		if a.Stdout || a.Stderr {
			c.pipe(&o, a.Stdout, a.Stderr, a.Detached)
		}
		if a.Detached {
			cmd, err := once(c, func() (*sandbox.Command, error) { return t.StartCommand(c.ctx, a.Cmd, a.Args, &o) })
			if err == nil {
				c.watch(cmd)
			}
			return cmd, err
		}
	}
	done, err := once(c, func() (*sandbox.CommandResult, error) { return t.RunCommand(c.ctx, a.Cmd, a.Args, &o) })
	if err == nil {
		c.d.mu.Lock()
		c.d.waited[done] = true
		c.d.mu.Unlock()
	}
	return done, err
}

// pipe sets the writers of a command, kept under the name that the command is
// saved under.
func (c *call) pipe(o *sandbox.CommandOptions, stdout, stderr, detached bool) {
	c.pair = &capturePair{detached: detached, ended: make(chan struct{})}
	if stdout {
		c.pair.stdout = &capture{}
		o.Stdout = c.pair.stdout
	}
	if stderr {
		c.pair.stderr = &capture{}
		o.Stderr = c.pair.stderr
	}
	if c.step.Save != "" {
		c.d.mu.Lock()
		c.d.piped[c.step.Save] = c.pair
		c.d.mu.Unlock()
	}
}

// watch records how copying a detached command's output ended, which JavaScript
// emits as an error of the writer.
func (c *call) watch(cmd *sandbox.Command) {
	if c.pair == nil {
		return
	}
	pair, ctx := c.pair, c.ctx
	go func() {
		defer close(pair.ended)
		if err := cmd.WaitOutput(context.WithoutCancel(ctx)); err != nil && ctx.Err() == nil {
			pair.setFailed(normError(err, c))
		}
	}()
}

func opGetCommand(c *call) (any, error) {
	t, err := on[interface {
		GetCommand(context.Context, string) (*sandbox.Command, error)
	}](c)
	if err != nil {
		return nil, err
	}
	var a struct {
		CmdID string `json:"cmdId"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	return t.GetCommand(c.ctx, a.CmdID)
}

// command returns the command that the step is about, running or ended.
func (c *call) command() (*sandbox.Command, error) {
	if done, ok := c.target.(*sandbox.CommandResult); ok {
		return done.Command, nil
	}
	return on[*sandbox.Command](c)
}

func opStdout(c *call) (any, error) {
	t, err := c.command()
	if err != nil {
		return nil, err
	}
	return t.Stdout(c.ctx)
}

func opStderr(c *call) (any, error) {
	t, err := c.command()
	if err != nil {
		return nil, err
	}
	return t.Stderr(c.ctx)
}

func opOutput(c *call) (any, error) {
	t, err := c.command()
	if err != nil {
		return nil, err
	}
	var a struct {
		Stream string `json:"stream"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	switch a.Stream {
	case "stdout":
		return t.Stdout(c.ctx)
	case "stderr":
		return t.Stderr(c.ctx)
	case "", "both":
		return c.bothStreams(t)
	default:
		return nil, fmt.Errorf("conformance: unknown stream %q", a.Stream)
	}
}

// bothStreams returns the output in the order in which it arrived. For a
// command that was waited for, JavaScript puts stderr after stdout; if that is
// the only difference, the rule accounts for it.
func (c *call) bothStreams(t *sandbox.Command) (any, error) {
	both, err := t.Output(c.ctx)
	if err != nil {
		return nil, err
	}
	done, _ := c.target.(*sandbox.CommandResult)
	c.d.mu.Lock()
	waited := c.d.waited[done]
	c.d.mu.Unlock()
	if !waited {
		return both, nil
	}
	stdout, err := t.Stdout(c.ctx)
	if err != nil {
		return nil, err
	}
	stderr, err := t.Stderr(c.ctx)
	if err != nil {
		return nil, err
	}
	if both != stdout+stderr && interleaved(both, stdout, stderr) {
		c.rule(ruleOutputOrder)
		return stdout + stderr, nil
	}
	return both, nil
}

// interleaved reports whether both consists of a and b, each in its own order.
func interleaved(both, a, b string) bool {
	if len(both) != len(a)+len(b) {
		return false
	}
	// reach[j] reports whether a[:i] and b[:j] can form the text so far.
	reach := make([]bool, len(b)+1)
	for i := 0; i <= len(a); i++ {
		for j := 0; j <= len(b); j++ {
			switch {
			case i == 0 && j == 0:
				reach[0] = true
			default:
				fromA := i > 0 && reach[j] && both[i+j-1] == a[i-1]
				fromB := j > 0 && reach[j-1] && both[i+j-1] == b[j-1]
				reach[j] = fromA || fromB
			}
		}
	}
	return reach[len(b)]
}

func opWait(c *call) (any, error) {
	if done, ok := c.target.(*sandbox.CommandResult); ok {
		return done, nil
	}
	t, err := c.command()
	if err != nil {
		return nil, err
	}
	return t.Wait(c.ctx)
}

func opKill(c *call) (any, error) {
	t, err := c.command()
	if err != nil {
		return nil, err
	}
	var a struct {
		Signal json.RawMessage `json:"signal"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	sig := sandbox.SIGTERM
	if !isNull(a.Signal) {
		var name string
		if json.Unmarshal(a.Signal, &name) == nil {
			if sig, err = sandbox.ParseSignal(name); err != nil {
				return nil, &textError{fmt.Sprintf("Unknown signal name: %s", name), err}
			}
		} else if err := json.Unmarshal(a.Signal, &sig); err != nil {
			return nil, err
		}
	}
	return once(c, func() (any, error) { return nil, t.Signal(c.ctx, sig) })
}

func opLogs(c *call) (any, error) {
	t, err := c.command()
	if err != nil {
		return nil, err
	}
	var a struct {
		Take  *int `json:"take"`
		Close bool `json:"close"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	lines := []any{}
	line := func(l sandbox.LogEntry) {
		lines = append(lines, map[string]any{"stream": string(l.Stream), "data": normText(l.Data)})
	}
	if a.Close {
		return c.closedLogs(t, a.Take, line, &lines)
	}
	for l, err := range t.Logs(c.ctx) {
		if err != nil {
			c.partial = lines
			return nil, err
		}
		if line(l); a.Take != nil && len(lines) >= *a.Take {
			break
		}
	}
	return map[string]any{"lines": lines}, nil
}

// closedLogs reads some lines, closes the logs by cancelling their context, as
// Go programs do, and reads once more.
func (c *call) closedLogs(t *sandbox.Command, take *int, line func(sandbox.LogEntry), lines *[]any) (any, error) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	next, stop := iter.Pull2(t.Logs(ctx))
	defer stop()
	for i := 0; take != nil && i < *take; i++ {
		l, err, ok := next()
		if err != nil {
			c.partial = *lines
			return nil, err
		}
		if !ok {
			break
		}
		line(l)
	}
	cancel()
	after := map[string]any{}
	if _, err, ok := next(); err != nil {
		after["error"] = normError(err, c)
	} else {
		after["done"] = !ok
	}
	return map[string]any{"lines": *lines, "after": after}, nil
}
