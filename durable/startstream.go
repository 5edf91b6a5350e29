package durable

import (
	"bytes"
	"context"
	"iter"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/go-vercel/sandbox"
)

// handed is the output of a command in the response to its start. If the same worker
// executes the activity that follows the command, it reads the log and the end from here,
// without a request.
type handed struct {
	cmd    *sandbox.Command
	pieces chan sandbox.LogChunk
	over   chan struct{} // closed when there will be no more
	taken  chan struct{} // closed when somebody reads
	cancel context.CancelFunc
}

// handedFor is how long a response waits for its reader. The command's output waits with
// it.
const handedFor = 10 * time.Second

// startHanded starts a command and keeps the response for [Worker.takeHanded].
func (w *Worker) startHanded(ctx context.Context, vm *sandbox.Session, args []string, opts sandbox.StartOptions) (*sandbox.Command, error) {
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	h := &handed{pieces: make(chan sandbox.LogChunk), over: make(chan struct{}), taken: make(chan struct{}), cancel: cancel}
	opts.Stdout, opts.Stderr = handedWriter{live, h, sandbox.Stdout}, handedWriter{live, h, sandbox.Stderr}
	cmd, err := vm.StartCommand(live, "sh", args, &opts)
	if err != nil {
		cancel()
		return nil, err
	}
	stop()
	h.cmd = cmd
	w.handed.Store(cmd.ID(), h)
	go func() {
		defer close(h.over)
		_ = cmd.WaitOutput(context.Background()) // ends with live
	}()
	go func() {
		wait := time.NewTimer(handedFor)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-activity.GetWorkerStopChannel(ctx):
		case <-h.taken:
			return
		}
		if w.handed.CompareAndDelete(cmd.ID(), h) {
			cancel()
		}
	}()
	return cmd, nil
}

type handedWriter struct {
	live   context.Context
	h      *handed
	stream string
}

func (w handedWriter) Write(p []byte) (int, error) {
	select {
	case w.h.pieces <- sandbox.LogChunk{Stream: w.stream, Data: bytes.Clone(p)}:
		return len(p), nil
	case <-w.live.Done():
		return 0, w.live.Err()
	}
}

// takeHanded returns the output of a command that this worker started. It returns nil if
// another reader has it, or if it waited too long.
func (w *Worker) takeHanded(id string) *handed {
	v, ok := w.handed.LoadAndDelete(id)
	if !ok {
		return nil
	}
	h := v.(*handed)
	close(h.taken)
	return h
}

// chunks is like Command.LogChunks, but can be used only once.
func (h *handed) chunks(ctx context.Context) iter.Seq2[sandbox.LogChunk, error] {
	return func(yield func(sandbox.LogChunk, error) bool) {
		defer h.cancel()
		for {
			select {
			case p := <-h.pieces:
				if !yield(p, nil) {
					return
				}
			case <-h.over:
				if err := h.cmd.WaitOutput(ctx); err != nil {
					yield(sandbox.LogChunk{}, err)
				}
				return
			case <-ctx.Done():
				yield(sandbox.LogChunk{}, ctx.Err())
				return
			}
		}
	}
}
