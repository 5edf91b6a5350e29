// Package durabletest tests workflows that use sandboxes, with real processes and skipped
// time. It combines Temporal's test environment with an emulator, and moves the emulator's
// clock with the workflow's.
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
	// Emulator configures the emulator. Its Start is replaced by the environment's.
	Emulator sandboxtest.Options
	// Timeout limits the real time of the test. Zero means a minute.
	Timeout time.Duration
	// Output is the output store. Nil means a temporary folder.
	Output durable.OutputStore
	// Metrics gets the metrics of workflows and activities. Nil discards them.
	Metrics client.MetricsHandler
}

// Format prints the options without secrets of the emulator, for every verb.
func (o Options) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// Env is a workflow's test environment with an emulator. Register the workflow, plan events
// with At, and execute the workflow.
type Env struct {
	*testsuite.TestWorkflowEnvironment
	// Server is the emulator, and Worker the registered worker.
	Server *sandboxtest.Server
	Worker *durable.Worker

	syncing sync.Mutex
}

// New returns an environment with the activities of package durable. It closes the emulator
// at the end of the test. opts may be nil.
func New(tb testing.TB, opts *Options) *Env {
	tb.Helper()
	o := *cmp.Or(opts, new(Options))
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
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
	// A busy machine may exceed the default of a second.
	e.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: o.Timeout, Interceptors: []interceptor.WorkerInterceptor{&testInterceptor{e: e}}})
	e.SetStartTime(start)
	e.Worker.Register(e.TestWorkflowEnvironment)
	return e
}

// testInterceptor adds what the test environment lacks. It synchronizes the clocks before
// each activity, and ends a canceled activity with WaitForCancellation as a server does.
type testInterceptor struct {
	interceptor.WorkerInterceptorBase
	e *Env

	cancellations sync.Map // channels by activity ID, each closed when the workflow cancels the activity
}

func (i *testInterceptor) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &workflowInterceptor{interceptor.WorkflowInboundInterceptorBase{Next: next}, i}
}

type workflowInterceptor struct {
	interceptor.WorkflowInboundInterceptorBase
	*testInterceptor
}

func (w *workflowInterceptor) Init(out interceptor.WorkflowOutboundInterceptor) error {
	return w.Next.Init(&outboundInterceptor{interceptor.WorkflowOutboundInterceptorBase{Next: out}, w.testInterceptor})
}

type outboundInterceptor struct {
	interceptor.WorkflowOutboundInterceptorBase
	*testInterceptor
}

func (c *outboundInterceptor) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	opts := workflow.GetActivityOptions(ctx)
	if !opts.WaitForCancellation {
		return c.Next.ExecuteActivity(ctx, name, args...)
	}
	canceled := make(chan struct{})
	opts.ActivityID = cmp.Or(opts.ActivityID, rand.Text())
	c.cancellations.Store(opts.ActivityID, canceled)
	workflow.Go(ctx, func(ctx workflow.Context) {
		ctx.Done().Receive(ctx, nil)
		close(canceled)
	})
	ctx, _ = workflow.NewDisconnectedContext(workflow.WithActivityOptions(ctx, opts))
	return c.Next.ExecuteActivity(ctx, name, args...)
}

func (i *testInterceptor) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &activityInterceptor{interceptor.ActivityInboundInterceptorBase{Next: next}, i}
}

type activityInterceptor struct {
	interceptor.ActivityInboundInterceptorBase
	*testInterceptor
}

func (a *activityInterceptor) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	a.e.SyncClocks()
	info := activity.GetInfo(ctx)
	value, ok := a.cancellations.Load(info.ActivityID)
	if !ok {
		return a.Next.ExecuteActivity(ctx, in)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	canceled := value.(chan struct{})
	select {
	case <-canceled: // canceled between two attempts
		return nil, temporal.NewCanceledError()
	default:
	}
	go func() {
		select {
		case <-canceled:
		case <-ctx.Done():
			return
		}
		// Only a heartbeat's response tells a worker about a cancellation. Without
		// heartbeats it never learns of it.
		if info.HeartbeatTimeout > 0 {
			defer time.AfterFunc(info.HeartbeatTimeout, cancel).Stop()
		}
		<-ctx.Done()
	}()
	return a.Next.ExecuteActivity(ctx, in)
}

// At calls f at a time after the workflow's start, by the workflow's clock.
func (e *Env) At(d time.Duration, f func()) {
	e.RegisterDelayedCallback(func() {
		e.SyncClocks()
		f()
	}, d)
}

// SyncClocks moves the emulator's clock to the workflow's time, so that leases end and
// snapshots expire. Each activity and each function of [Env.At] begins with it.
func (e *Env) SyncClocks() {
	e.syncing.Lock()
	defer e.syncing.Unlock()
	if by := e.Now().Sub(e.Server.Now()); by > 0 {
		e.Server.Advance(by)
	}
}
