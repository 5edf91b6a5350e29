package conformance

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// runner is a sandbox, a session or a user. All of these can run commands.
type runner interface {
	RunCommand(ctx context.Context, name string, args []string, opts *sandbox.CommandOptions) (*sandbox.CommandResult, error)
	StartCommand(ctx context.Context, name string, args []string, opts *sandbox.StartOptions) (*sandbox.Command, error)
}

type runArgs struct {
	Cmd, Form                string
	Args                     []string
	Detached, Stdout, Stderr bool
}

func opRunCommand(c *call, t runner, a runArgs) (any, error) {
	var o sandbox.StartOptions
	given := decoded[arguments](c.step.Args)
	if a.Form == "string" {
		given, a = arguments{"timeoutMs": given["timeoutMs"]}, runArgs{Cmd: a.Cmd, Args: a.Args}
	}
	check(c.options(reflect.ValueOf(&o).Elem(), given))
	for stream, w := range map[string]*io.Writer{"stdout": &o.Stdout, "stderr": &o.Stderr} {
		if stream == "stdout" && a.Stdout || stream == "stderr" && a.Stderr {
			if c.pair == nil {
				c.pair = &captured{detached: a.Detached, ended: make(chan struct{}), got: map[string]*testkit.LockedBuffer{}}
				c.d.saved.Store("the writers of "+c.step.Save, c.pair)
			}
			c.pair.got[stream] = &testkit.LockedBuffer{}
			*w = c.pair.got[stream]
		}
	}
	if a.Detached {
		cmd, err := once(c, func() (*sandbox.Command, error) { return t.StartCommand(c.ctx, a.Cmd, a.Args, &o) })
		if err == nil && c.pair != nil {
			go func() {
				defer close(c.pair.ended)
				if err := cmd.WaitOutput(context.WithoutCancel(c.ctx)); err != nil && c.ctx.Err() == nil {
					c.pair.failed.Store(normError(err, c))
				}
			}()
		}
		return cmd, err
	}
	run := &sandbox.CommandOptions{Cwd: o.Cwd, Env: o.Env, Sudo: o.Sudo, Timeout: o.Timeout, Stdout: o.Stdout, Stderr: o.Stderr}
	return once(c, func() (*sandbox.CommandResult, error) { return t.RunCommand(c.ctx, a.Cmd, a.Args, run) })
}

// captured contains the data that the writers of one command have received. For a detached
// command, the channel ended is closed after its output has been copied. If copying has failed,
// failed is the error. In JavaScript, the writer emits this error.
type captured struct {
	detached bool
	got      map[string]*testkit.LockedBuffer
	ended    chan struct{}
	failed   atomic.Value
}

func (p *captured) value() object {
	out := object{}
	for stream, text := range p.got {
		out[stream] = normText(text.String())
	}
	if failed := p.failed.Load(); failed != nil {
		out["error"] = failed
	}
	return out
}

// opPiped waits until the output of a command has been copied. Unlike JavaScript, it waits
// until this SDK has also confirmed that the log is complete. Otherwise the requests for this
// could mix with those of the next step.
func opPiped(c *call, _, _ any) (any, error) {
	writers, _ := c.d.saved.Load("the writers of " + *c.step.On)
	select {
	case <-writers.(*captured).ended:
	case <-time.After(3 * time.Second):
	}
	return writers.(*captured).value(), nil
}

// command returns the running or ended command on which the step operates.
func (c *call) command() *sandbox.Command {
	if done, ok := c.target.(*sandbox.CommandResult); ok {
		return done.Command
	}
	return c.target.(*sandbox.Command)
}

// opOutput returns the output in the order in which it arrived.
func opOutput(c *call, _ any, a struct{ Stream string }) (any, error) {
	t := c.command()
	switch a.Stream {
	case "stdout":
		return t.Stdout(c.ctx)
	case "stderr":
		return t.Stderr(c.ctx)
	}
	return t.CombinedOutput(c.ctx)
}

func opKill(c *call, _ any, a struct{ Signal any }) (_ any, err error) {
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
	return once(c, func() (any, error) { return nil, c.command().Signal(c.ctx, sig) })
}

type logsArgs struct {
	Take  *int
	Close bool
}

// opLogs reads the log. With the argument close, it reads only some lines and closes the log.
// A Go program does that by canceling the context, so opLogs cancels it and then reads once
// more.
func opLogs(c *call, _ any, a logsArgs) (any, error) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	next, stop := iter.Pull2(c.command().Logs(ctx))
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

type reviveArgs struct {
	Class, From string
	Data        json.RawMessage
}

// opDeserialize restores an object from JSON. In JavaScript, such an object creates a client
// from the environment. In Go, the driver binds the object to a client.
func opDeserialize(c *call, _ any, a reviveArgs) (any, error) {
	if a.From != "" {
		saved, _ := c.d.saved.Load(a.From)
		a.Data = saved.(json.RawMessage)
	}
	v := map[string]sandbox.Handle{
		"Sandbox": &sandbox.Sandbox{}, "Session": &sandbox.Session{}, "Snapshot": &sandbox.Snapshot{}, "Drive": &sandbox.Drive{},
		"Command": &sandbox.Command{}, "CommandFinished": &sandbox.CommandResult{},
	}[a.Class]
	if err := json.Unmarshal(a.Data, v); err != nil {
		return nil, err
	}
	c.client(nil).Bind(v)
	return v, nil
}
