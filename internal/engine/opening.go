package engine

import (
	"context"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
)

// startContext is the context of the request that starts a command. Until the command is known
// it outlives the caller's context by a grace period. After that it ends with the context of
// the stream.
type startContext struct {
	context.Context
	caller context.Context
	cancel context.CancelCauseFunc

	mu         sync.Mutex
	known      bool        // the command is known
	graceTimer *time.Timer // nil before the caller's context ends
	stop       func() bool // stops following the caller's context, or live
}

// newStartContext returns a context that ends grace after ctx, with the error of ctx,
// unless follow is called before. If ctx has already ended, so has the new context, and
// nothing is sent.
func newStartContext(ctx context.Context, grace time.Duration) *startContext {
	o := &startContext{caller: ctx}
	o.Context, o.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !o.known {
			o.graceTimer = time.AfterFunc(grace, func() { o.cancel(api.ContextError(ctx)) })
		}
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stop = stop
	if ctx.Err() != nil {
		o.cancel(api.ContextError(ctx))
	}
	return o
}

// callerContext returns the caller's context.
func (o *startContext) callerContext() context.Context {
	if o.caller != nil {
		return o.caller
	}
	return o.Context
}

// Err returns the caller's error if the context has ended because of the caller.
func (o *startContext) Err() error {
	err := o.Context.Err()
	if err != nil && o.caller != nil && o.caller.Err() != nil {
		return o.caller.Err()
	}
	return err
}

// follow makes the context end with live, once the command is known.
func (o *startContext) follow(live context.Context) {
	if o.cancel == nil {
		return
	}
	o.stopCallerTimer()
	stop := context.AfterFunc(live, func() { o.cancel(api.ContextError(live)) })
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stop = stop
}

// release cancels the context.
func (o *startContext) release() {
	if o.cancel != nil {
		o.stopCallerTimer()
		o.cancel(nil)
	}
}

func (o *startContext) stopCallerTimer() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = true
	o.stop()
	if o.graceTimer != nil {
		o.graceTimer.Stop()
	}
}
