package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"sync"
	"time"
	"unicode/utf16"

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
		Cmd, Form                string
		Args                     []string
		Detached, Stdout, Stderr bool
		TimeoutMs                float64
	}
	given := arguments{}
	if err := errors.Join(c.args(&a), c.args(&given)); err != nil {
		return nil, err
	}
	o := sandbox.CommandOptions{Timeout: millis(a.TimeoutMs)}
	if a.Form != "string" {
		if err := c.options(reflect.ValueOf(&o).Elem(), given); err != nil {
			return nil, err
		}
		if a.Stdout || a.Stderr {
			c.pipe(&o, a.Stdout, a.Stderr, a.Detached)
		}
	}
	if a.Form != "string" && a.Detached {
		cmd, err := once(c, func() (*sandbox.Command, error) { return t.StartCommand(c.ctx, a.Cmd, a.Args, &o) })
		if err == nil && c.pair != nil {
			go c.watch(cmd)
		}
		return cmd, err
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
	defer close(c.pair.ended)
	if err := cmd.WaitOutput(context.WithoutCancel(c.ctx)); err != nil && c.ctx.Err() == nil {
		failed := normError(err, c)
		c.pair.mu.Lock()
		defer c.pair.mu.Unlock()
		c.pair.failed = failed
	}
}

// capture is a writer that records what is written to it.
type capture struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(p)
}

func (c *capture) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.String()
}

// has reports whether at least n characters were written. A nil capture never
// has any.
func (c *capture) has(n int) bool {
	if c == nil {
		return n == 0
	}
	return len(utf16.Encode([]rune(c.text()))) >= n
}

// capturePair holds the writers of one command. When copying the output of a
// detached command has ended, ended is closed, and failed holds the error, if
// any.
type capturePair struct {
	stdout, stderr *capture
	detached       bool
	ended          chan struct{}

	mu     sync.Mutex
	failed any
}

func (p *capturePair) value() object {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := object{}
	if p.stdout != nil {
		out["stdout"] = normText(p.stdout.text())
	}
	if p.stderr != nil {
		out["stderr"] = normText(p.stderr.text())
	}
	if p.failed != nil {
		out["error"] = p.failed
	}
	return out
}

// opPiped waits until the writers of a command have received the given number
// of characters, for at most a minute. When the stream isn't held open, it also
// waits until copying has ended: after all the output is written, this SDK
// still confirms that the log is complete, and that request must not mix with
// those of the next step.
func opPiped(c *call) (any, error) {
	var a struct {
		Stdout, Stderr int
		Error          bool
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	c.d.mu.Lock()
	p := c.d.piped[*c.step.On]
	c.d.mu.Unlock()
	if p == nil {
		return nil, fmt.Errorf("conformance: %s has no writers", *c.step.On)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), time.Minute)
	defer cancel()
	for !(p.stdout.has(a.Stdout) && p.stderr.has(a.Stderr) && (!a.Error || p.value()["error"] != nil)) {
		if !pause(ctx, 20*time.Millisecond) {
			break
		}
	}
	if !c.d.scenario.holds() {
		select {
		case <-p.ended:
		case <-ctx.Done():
		}
	}
	return p.value(), nil
}

// command returns the command that the step is about, running or ended.
func (c *call) command() (*sandbox.Command, error) {
	if done, ok := c.target.(*sandbox.CommandResult); ok {
		return done.Command, nil
	}
	return on[*sandbox.Command](c)
}

// opOutput returns the output in the order in which it arrived. For a command
// that was waited for, JavaScript puts stderr after stdout; if that is the only
// difference, the rule accounts for it.
func opOutput(c *call) (any, error) {
	t, err := c.command()
	var a struct{ Stream string }
	if err := errors.Join(err, c.args(&a)); err != nil {
		return nil, err
	}
	switch a.Stream {
	case "stdout":
		return t.Stdout(c.ctx)
	case "stderr":
		return t.Stderr(c.ctx)
	case "", "both":
	default:
		return nil, fmt.Errorf("conformance: unknown stream %q", a.Stream)
	}
	both, err := t.Output(c.ctx)
	done, _ := c.target.(*sandbox.CommandResult)
	c.d.mu.Lock()
	waited := c.d.waited[done]
	c.d.mu.Unlock()
	if err != nil || !waited {
		return both, err
	}
	stdout, err := t.Stdout(c.ctx)
	stderr, err2 := t.Stderr(c.ctx)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	if both != stdout+stderr && interleaved(both, stdout, stderr) {
		c.rule("output-in-order")
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
	for i := range len(a) + 1 {
		for j := range len(b) + 1 {
			fromA := i > 0 && reach[j] && both[i+j-1] == a[i-1]
			fromB := j > 0 && reach[j-1] && both[i+j-1] == b[j-1]
			reach[j] = i+j == 0 || fromA || fromB
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
	var a struct{ Signal any }
	if err := errors.Join(err, c.args(&a)); err != nil {
		return nil, err
	}
	sig := sandbox.SIGTERM
	switch v := a.Signal.(type) {
	case string:
		sig, err = sandbox.ParseSignal(v)
	case float64:
		sig = sandbox.Signal(v)
	}
	if err != nil {
		return nil, err
	}
	return once(c, func() (any, error) { return nil, t.Signal(c.ctx, sig) })
}

// opLogs reads the log, or with close some lines of it; it closes the log by
// cancelling its context, as Go programs do, and reads once more.
func opLogs(c *call) (any, error) {
	t, err := c.command()
	var a struct {
		Take  *int
		Close bool
	}
	if err := errors.Join(err, c.args(&a)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	next, stop := iter.Pull2(t.Logs(ctx))
	defer stop()
	lines := []any{}
	for a.Take == nil && !a.Close || a.Take != nil && (len(lines) < *a.Take || !a.Close && len(lines) == 0) {
		l, err, ok := next()
		if err != nil {
			c.partial = lines
			return nil, err
		}
		if !ok {
			break
		}
		lines = append(lines, object{"stream": string(l.Stream), "data": normText(l.Data)})
	}
	if !a.Close {
		return object{"lines": lines}, nil
	}
	cancel()
	after := object{}
	if _, err, ok := next(); err != nil {
		after["error"] = normError(err, c)
	} else {
		after["done"] = !ok
	}
	return object{"lines": lines, "after": after}, nil
}

// opDeserialize revives an object. In JavaScript the object makes a client from
// the environment; here it is attached to one.
func opDeserialize(c *call) (any, error) {
	var a struct {
		Class, From string
		Data        json.RawMessage
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	if a.From != "" {
		saved, _ := c.d.load(a.From)
		var ok bool
		if a.Data, ok = saved.(json.RawMessage); !ok {
			return nil, fmt.Errorf("conformance: nothing serialized as %s", a.From)
		}
	}
	v, ok := map[string]sandbox.Handle{
		"Sandbox": &sandbox.Sandbox{}, "Session": &sandbox.Session{}, "Snapshot": &sandbox.Snapshot{}, "Drive": &sandbox.Drive{},
		"Command": &sandbox.Command{}, "CommandFinished": &sandbox.CommandResult{},
	}[a.Class]
	if !ok {
		return nil, fmt.Errorf("conformance: unknown class %q", a.Class)
	}
	client, err := c.client(arguments{})
	if err := errors.Join(err, json.Unmarshal(a.Data, v)); err != nil {
		return nil, err
	}
	client.Bind(v)
	return v, nil
}
