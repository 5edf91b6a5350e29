package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/auth/device"
	"github.com/go-vercel/sandbox/proxy"
)

// pipes is a listener for connections in memory. Real connections would stop the clock of a
// synctest bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

// Accept implements [net.Listener].
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. The server calls it once.
func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

// Addr implements [net.Listener].
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// driver runs the steps of one scenario with the SDK.
type driver struct {
	scenario *Scenario
	server   *Server      // the scripted server, or nil with a real API
	api      string       // the URL of a real API, or ""
	http     *http.Client // the SDK's HTTP client, which sends all requests to the server

	mu         sync.Mutex
	saved      sync.Map
	hooks      []any    // the hooks that have run during the running step
	rules      []string // the rules that the steps have used
	login      sync.Mutex
	creds      auth.Provider // the provider whose credentials a call has found at a terminal
	inParallel atomic.Int32
	fetches    atomic.Int64
	keys       *proxy.Keys // all handlers share the keys, so that they fetch them once
}

// newDriver returns a driver that sends all requests, for any host, to one server without
// TLS. The server distinguishes hosts by the Host header.
func newDriver(s *Scenario, server *Server, to *pipes) *driver {
	// Don't keep idle connections. net/http retries a GET if an idle connection turns out
	// to be closed, but the scenarios are about the retries of the SDK.
	transport := &http.Transport{DisableKeepAlives: true, DialContext: to.dial, DialTLSContext: to.dial}
	// Make sure that no other client in this process reaches the real hosts.
	http.DefaultTransport = transport
	http.DefaultClient.Transport = transport
	d := newRealDriver(s, "", &http.Client{Transport: transport})
	d.server = server
	return d
}

// newRealDriver returns a driver that runs steps against a real API.
func newRealDriver(s *Scenario, api string, hc *http.Client) *driver {
	return &driver{
		scenario: s, api: api, http: hc,
		keys: &proxy.Keys{HTTPClient: hc},
	}
}

func (d *driver) run(ctx context.Context) []any {
	results := []any{}
	for i := range d.scenario.Steps {
		if d.server != nil {
			d.server.begin(i)
		}
		result := d.step(ctx, &d.scenario.Steps[i], false)
		if d.server != nil {
			d.server.logOmitted(result)
		}
		results = append(results, result)
	}
	if d.server != nil {
		time.Sleep(time.Second) // until pending aborts have happened, and open connections are closed
		d.server.finish()
	}
	return results
}

// environment returns the provider for a call without its own credentials. At a terminal,
// outside of CI and production, the official SDK starts a login. With this SDK, a program must
// request the login, and the driver does so. It keeps credentials that it has found at a
// terminal for later calls, but repeats failures.
func (d *driver) environment() auth.Provider {
	opts := &auth.Options{HTTPClient: d.http}
	found := auth.Default(opts)
	if !d.scenario.TTY {
		return found
	}
	asked := device.Login(device.PromptOn(io.Discard), opts)
	return auth.ProviderFunc(func(ctx context.Context) (auth.Credentials, error) {
		if ci := os.Getenv("CI"); ci == "1" || ci == "true" || os.Getenv("NODE_ENV") == "production" {
			return found.Credentials(ctx)
		}
		d.login.Lock()
		defer d.login.Unlock()
		if d.creds != nil {
			return d.creds.Credentials(ctx)
		}
		var used auth.Provider = found
		cr, err := found.Credentials(ctx)
		if errors.Is(err, auth.ErrNoCredentials) {
			used = asked
			cr, err = asked.Credentials(ctx)
		}
		if err == nil {
			d.creds = used
		}
		return cr, err
	})
}

// rule records that the step has used a rule.
func (c *call) rule(name string) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.rules = append(c.d.rules, name)
}

// step runs one step and returns its result. A branch is a step directly inside parallel. The
// result of the parallel step lists the hooks of its branches.
func (d *driver) step(ctx context.Context, s *Step, branch bool) object {
	out := object{"op": s.Op}
	if d.api != "" {
		s = d.withIDs(s)
	}
	var outer []any
	if !branch {
		outer = d.swapHooks(nil)
	}
	c := &call{d: d, ctx: ctx, step: s, out: out}
	start := time.Now()
	value, err := c.do()
	c.finish(value, err)
	switch took := time.Since(start); {
	case s.MinMs != nil && took < millis(*s.MinMs):
		out["timing"] = "too fast"
	case s.MaxMs != nil && took > millis(*s.MaxMs):
		out["timing"] = "too slow"
	case s.MinMs != nil || s.MaxMs != nil:
		out["timing"] = "ok"
	}
	if branch {
		return out
	}
	if hooks := d.swapHooks(outer); len(hooks) > 0 {
		out["hooks"] = hooks
	}
	if !s.Background && d.inParallel.Load() == 0 && d.server != nil {
		out["seen"] = d.server.count()
	}
	return out
}

// swapHooks replaces the list of hooks that have run, and returns the previous list.
func (d *driver) swapHooks(hooks []any) []any {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.hooks
	d.hooks = hooks
	return before
}

var snapshotOf = regexp.MustCompile(`@snapshot:(\w+)`)

// withIDs replaces the names of saved snapshots in the arguments by their IDs, because a real
// API chooses the IDs.
func (d *driver) withIDs(s *Step) *Step {
	s = new(*s)
	s.Args = snapshotOf.ReplaceAllFunc(s.Args, func(m []byte) []byte {
		v, _ := d.saved.Load(string(snapshotOf.FindSubmatch(m)[1]))
		if snap, ok := v.(*sandbox.Snapshot); ok {
			return []byte(snap.ID())
		}
		return m
	})
	return s
}

// call is one running step.
type call struct {
	d       *driver
	ctx     context.Context
	step    *Step
	out     object
	target  any
	partial []any // the results before an error
	pair    *captured
}

// operation returns the function of an op, or nil for an unknown op.
func operation(op string) func(*call) (any, error) {
	if spec, ok := calls[op]; ok {
		return func(c *call) (any, error) {
			if all, ok := calls[op+" all"]; ok && decoded[struct{ Recursive bool }](c.step.Args).Recursive {
				spec = all
			}
			return c.method(spec)
		}
	}
	if spec, ok := listings[op]; ok {
		return func(c *call) (any, error) { return c.list(spec) }
	}
	return ops[op]
}

// op returns an operation on an object of type T, with arguments of type A.
func op[T, A any](do func(c *call, on T, args A) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		on, _ := c.target.(T)
		return do(c, on, decoded[A](c.step.Args))
	}
}

// do runs the step's operation, with the context that the step's abort signal cancels.
func (c *call) do() (any, error) {
	op := operation(c.step.Op)
	if c.step.On != nil {
		var ok bool
		if c.target, ok = c.d.saved.Load(*c.step.On); !ok {
			return nil, fmt.Errorf("nothing saved as %s", *c.step.On)
		}
	}
	ctx, stop := c.d.abortable(c.ctx, c.step.Abort)
	c.ctx = ctx
	defer stop(c.step.Background)
	return op(c)
}

func (c *call) finish(value any, err error) {
	if err != nil {
		c.out["error"] = normError(err, c)
		if c.partial != nil {
			c.out["partial"] = c.partial
		}
	} else {
		if c.step.Save != "" {
			c.d.saved.Store(c.step.Save, value)
		}
		c.out["value"] = normValue(value)
	}
	if c.pair != nil && c.step.Save != "" && (err != nil || !c.pair.detached) {
		c.out["piped"] = c.pair.value()
	}
}

// abortable returns the context of a call, and a function that releases the context. With
// keep, the context does not end, because work continues in the background.
func (d *driver) abortable(parent context.Context, spec *AbortSpec) (context.Context, func(keep bool)) {
	ctx, cancel := context.WithCancel(parent)
	switch {
	case spec == nil:
		return ctx, func(keep bool) {
			if !keep {
				cancel()
			}
		}
	case spec.Before:
		cancel()
	default:
		plus := 60.0
		if spec.PlusMs != nil {
			plus = *spec.PlusMs
		}
		go func() {
			for d.server.count() < spec.WhenSeen && parent.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(millis(plus))
			cancel()
		}()
	}
	return ctx, func(bool) {}
}

// hook returns the callback that a scenario passes to the SDK.
func (d *driver) hook(name string, raw json.RawMessage) func(context.Context, any) error {
	spec := decoded[struct {
		Bind, Throw string
		Steps       []Step
	}](raw)
	return func(ctx context.Context, sb any) error {
		fired := object{"hook": name, "results": []any{}}
		d.mu.Lock()
		d.hooks = append(d.hooks, fired)
		d.mu.Unlock()
		if spec.Bind != "" {
			d.saved.Store(spec.Bind, sb)
		}
		results := []any{}
		for i := range spec.Steps {
			results = append(results, d.step(ctx, &spec.Steps[i], false))
			fired["results"] = results
		}
		if spec.Throw != "" {
			return textError(spec.Throw)
		}
		return nil
	}
}
