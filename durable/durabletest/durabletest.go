// Package durabletest tests workflows that use sandboxes, with real processes and
// skipped time: Temporal's test environment with an emulator whose clock moves
// with the workflow's.
package durabletest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// Options configures [New]. The zero value works.
type Options struct {
	// Emulator is that of the sandboxes. Its Start is set to the environment's.
	Emulator sandboxtest.Options
	// Timeout bounds the test in real time. Zero means a minute.
	Timeout time.Duration
	// Output is the store. Nil means a folder of the test.
	Output durable.OutputStore
	// Metrics gets what workflows and activities count. Nil discards it.
	Metrics client.MetricsHandler
}

// Format prints the options without secrets of the emulator, for every verb.
func (o Options) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// Env is a workflow's test environment with an emulator. Register the workflow,
// plan what happens with At, and execute the workflow.
type Env struct {
	*testsuite.TestWorkflowEnvironment
	// Server is the emulator, Worker what is registered.
	Server *sandboxtest.Server
	Worker *durable.Worker

	joining sync.Mutex
}

// New returns an environment in which the activities of package durable are
// registered. The emulator is closed when the test ends. opts may be nil.
func New(tb testing.TB, opts *Options) *Env {
	tb.Helper()
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Output == nil {
		o.Output = durable.Dir(tb.TempDir())
	}
	start := time.Now()
	o.Emulator.Start = start
	srv := sandboxtest.New(tb, &o.Emulator)
	var suite testsuite.WorkflowTestSuite
	suite.SetMetricsHandler(o.Metrics)
	e := &Env{
		TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(),
		Server:                  srv,
		Worker:                  &durable.Worker{Client: srv.Client(), Output: o.Output, Fleet: "durabletest"},
	}
	e.SetTestTimeout(o.Timeout)
	// A second, which is the default, may pass on a machine that does other things.
	e.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: o.Timeout, Interceptors: []interceptor.WorkerInterceptor{&intercepts{e: e}}})
	e.SetStartTime(start)
	e.Worker.Register(e.TestWorkflowEnvironment)
	return e
}

// intercepts does what the test environment does not: it joins the clocks before each
// activity, and ends one that the workflow waits for also when that is cancelled
// (WaitForCancellation) as a server does.
type intercepts struct {
	interceptor.WorkerInterceptorBase
	e *Env

	asked sync.Map // channels by the activities' IDs, closed when they are to be cancelled
}

func (i *intercepts) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &interceptsWorkflow{interceptor.WorkflowInboundInterceptorBase{Next: next}, i}
}

type interceptsWorkflow struct {
	interceptor.WorkflowInboundInterceptorBase
	*intercepts
}

func (w *interceptsWorkflow) Init(out interceptor.WorkflowOutboundInterceptor) error {
	return w.Next.Init(&interceptsCalls{interceptor.WorkflowOutboundInterceptorBase{Next: out}, w.intercepts})
}

type interceptsCalls struct {
	interceptor.WorkflowOutboundInterceptorBase
	*intercepts
}

func (c *interceptsCalls) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	opts := workflow.GetActivityOptions(ctx)
	if !opts.WaitForCancellation {
		return c.Next.ExecuteActivity(ctx, name, args...)
	}
	asked := make(chan struct{})
	opts.ActivityID = cmp.Or(opts.ActivityID, rand.Text())
	c.asked.Store(opts.ActivityID, asked)
	workflow.Go(ctx, func(ctx workflow.Context) {
		ctx.Done().Receive(ctx, nil)
		close(asked)
	})
	ctx, _ = workflow.NewDisconnectedContext(workflow.WithActivityOptions(ctx, opts))
	return c.Next.ExecuteActivity(ctx, name, args...)
}

func (i *intercepts) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &interceptsActivity{interceptor.ActivityInboundInterceptorBase{Next: next}, i}
}

type interceptsActivity struct {
	interceptor.ActivityInboundInterceptorBase
	*intercepts
}

func (a *interceptsActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	a.e.Join()
	info := activity.GetInfo(ctx)
	value, ok := a.asked.Load(info.ActivityID)
	if !ok {
		return a.Next.ExecuteActivity(ctx, in)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := value.(chan struct{})
	select {
	case <-asked: // between two attempts
		return nil, temporal.NewCanceledError()
	default:
	}
	go func() {
		select {
		case <-asked:
		case <-ctx.Done():
			return
		}
		// A worker hears of it by the answer to a heartbeat, and never without any.
		if info.HeartbeatTimeout > 0 {
			defer time.AfterFunc(info.HeartbeatTimeout, cancel).Stop()
		}
		<-ctx.Done()
	}()
	return a.Next.ExecuteActivity(ctx, in)
}

// At plans f for a time after the workflow's start, by the workflow's clock.
func (e *Env) At(d time.Duration, f func()) {
	e.RegisterDelayedCallback(func() {
		e.Join()
		f()
	}, d)
}

// Join moves the emulator's clock to the workflow's time: leases end and snapshots
// expire as they would have. It is done before each activity and each function of
// [Env.At].
func (e *Env) Join() {
	e.joining.Lock()
	defer e.joining.Unlock()
	if by := e.Now().Sub(e.Server.Now()); by > 0 {
		e.Server.Advance(by)
	}
}
