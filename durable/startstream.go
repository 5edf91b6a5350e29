package durable

import (
	"bytes"
	"context"
	"iter"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/go-vercel/sandbox"
)

// startStream is the open response to the start of a command, which streams its output. If
// the worker that started the command also follows it, it reads the log and the end from
// here, without another request.
type startStream struct {
	cmd    *sandbox.Command
	pieces chan sandbox.LogChunk
	over   chan struct{} // closed after the last piece
	taken  chan struct{} // closed when a reader has the stream
	cancel context.CancelFunc
}

// streamWait is how long the response waits for its reader. Meanwhile, the command may have
// to wait to write its output.
const streamWait = 10 * time.Second

// startStreaming starts a command and keeps the response for [Worker.takeStream].
func (w *Worker) startStreaming(ctx context.Context, vm *sandbox.Session, args []string, opts sandbox.StartOptions) (*sandbox.Command, error) {
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	h := &startStream{pieces: make(chan sandbox.LogChunk), over: make(chan struct{}), taken: make(chan struct{}), cancel: cancel}
	opts.Stdout, opts.Stderr = streamWriter{live, h, sandbox.Stdout}, streamWriter{live, h, sandbox.Stderr}
	cmd, err := vm.StartCommand(live, "sh", args, &opts)
	if err != nil {
		cancel()
		return nil, err
	}
	stop()
	h.cmd = cmd
	w.streams.Store(cmd.ID(), h)
	go func() {
		defer close(h.over)
		_ = cmd.WaitOutput(context.Background()) // returns when live ends, at the latest
	}()
	go func() {
		wait := time.NewTimer(streamWait)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-activity.GetWorkerStopChannel(ctx):
		case <-h.taken:
			return
		}
		if w.streams.CompareAndDelete(cmd.ID(), h) {
			cancel()
		}
	}()
	return cmd, nil
}

type streamWriter struct {
	live   context.Context
	h      *startStream
	stream string
}

func (w streamWriter) Write(p []byte) (int, error) {
	select {
	case w.h.pieces <- sandbox.LogChunk{Stream: w.stream, Data: bytes.Clone(p)}:
		return len(p), nil
	case <-w.live.Done():
		return 0, w.live.Err()
	}
}

// takeStream returns the output of a command that this worker started. It returns nil if
// another reader has it, or if it waited too long.
func (w *Worker) takeStream(id string) *startStream {
	v, ok := w.streams.LoadAndDelete(id)
	if !ok {
		return nil
	}
	h := v.(*startStream)
	close(h.taken)
	return h
}

// chunks is like Command.LogChunks, but can be used only once.
func (h *startStream) chunks(ctx context.Context) iter.Seq2[sandbox.LogChunk, error] {
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
