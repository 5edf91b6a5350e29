package cli

import (
	"context"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
)

// keepAlive extends the sandbox's timeout until the returned function is called.
func (p *place) keepAlive(ctx context.Context, sb *sandbox.Sandbox, margin time.Duration, otherwise string) (stop func()) {
	return keepAlive(ctx, sb, margin, func(err error) {
		p.screen.Warn("the sandbox's timeout can't be extended any further: "+err.Error(), otherwise)
	})
}

// keepAlive is [sandbox.Sandbox.KeepAlive] until the returned function is called,
// and calls failed if the timeout can't be extended any further.
func keepAlive(ctx context.Context, sb *sandbox.Sandbox, margin time.Duration, failed func(error)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := sb.KeepAlive(ctx, &sandbox.KeepAliveOptions{Margin: margin, Step: keepAliveStep}); err != nil && ctx.Err() == nil {
			failed(err)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
