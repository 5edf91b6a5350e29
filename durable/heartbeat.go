package durable

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
)

// heartbeat sends heartbeats until stop is called. It cancels the returned context when the
// worker stops, so that another worker takes over at once.
func heartbeat(ctx context.Context) (_ context.Context, stop func()) {
	return heartbeatWith(ctx, func() []any { return nil })
}

// heartbeatWith is heartbeat with details.
func heartbeatWith(ctx context.Context, details func() []any) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	every := max(activity.GetInfo(ctx).HeartbeatTimeout/3, 100*time.Millisecond)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				activity.RecordHeartbeat(ctx, details()...)
			case <-activity.GetWorkerStopChannel(ctx):
				cancel()
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}
