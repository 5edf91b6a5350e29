package engine

import (
	"context"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
)

// opening is the context of the request that starts a command. It outlives the
// caller's context for as long as the start is not known, and then ends with the
// context of the stream.
type opening struct {
	context.Context
	caller context.Context
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	known bool
	late  *time.Timer
	stop  func() bool
}

// newOpening returns a context that ends grace after ctx does, with the error of
// ctx, unless follow is called before. If ctx has ended, so has the context:
// nothing is sent then of which somebody would have to learn the outcome.
func newOpening(ctx context.Context, grace time.Duration) *opening {
	o := &opening{caller: ctx}
	o.Context, o.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !o.known {
			o.late = time.AfterFunc(grace, func() { o.cancel(api.ContextError(ctx)) })
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

// asker returns the caller's context.
func (o *opening) asker() context.Context {
	if o.caller != nil {
		return o.caller
	}
	return o.Context
}

// Err is the caller's error once the context has ended because of the caller.
func (o *opening) Err() error {
	err := o.Context.Err()
	if err != nil && o.caller != nil && o.caller.Err() != nil {
		return o.caller.Err()
	}
	return err
}

// follow is called when the command is known: from now on the context ends with
// live.
func (o *opening) follow(live context.Context) {
	if o.cancel == nil {
		return
	}
	o.settle()
	stop := context.AfterFunc(live, func() { o.cancel(api.ContextError(live)) })
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stop = stop
}

// release ends the context.
func (o *opening) release() {
	if o.cancel != nil {
		o.settle()
		o.cancel(nil)
	}
}

func (o *opening) settle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = true
	o.stop()
	if o.late != nil {
		o.late.Stop()
	}
}
