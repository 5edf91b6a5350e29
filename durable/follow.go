package durable

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
)

type followInput struct {
	Command Command
	Sandbox string
	Lease   time.Duration
	// Expires is the end of the machine's lease, as far as the workflow knows.
	Expires time.Time
}

// tailSize is the size of the output's tail in a result, which is part of the history.
const tailSize = 2 << 10

// command returns the SDK's command of a handle, without a request.
func (w *Worker) command(c Command) (*sandbox.Command, error) {
	cmd := new(sandbox.Command)
	if err := json.Unmarshal(c.Handle, cmd); err != nil {
		return nil, err
	}
	w.Client.Bind(cmd)
	return cmd, nil
}

// follow copies a command's log, from its start to its end, to the store, and returns how
// the command ended. It can be repeated, even concurrently.
func (w *Worker) follow(ctx context.Context, in followInput) (Result, error) {
	var read atomic.Int64
	ctx, stop := heartbeatWith(ctx, func() []any { return []any{progress{in.Command.ID, read.Load()}} })
	defer stop()
	cmd, err := w.command(in.Command)
	if err != nil {
		return Result{}, classify(ctx, err)
	}
	chunks := cmd.LogChunks
	if h := w.takeStream(in.Command.ID); h != nil {
		cmd, chunks = h.cmd, h.chunks
	}
	var vm *sandbox.Session
	if activity.GetInfo(ctx).Attempt == 1 { // in later attempts, another worker may have renewed the lease
		if vm, err = w.knownSession(in.Sandbox, in.Command.VM, in.Expires); err != nil {
			return Result{}, classify(ctx, err)
		}
	}
	stopRenewing := w.keepLease(ctx, in, vm)
	res, err := w.readWinner(ctx, cmd, countBytes(chunks, &read), in)
	vm = stopRenewing()
	if err != nil {
		return Result{}, classify(ctx, err)
	}
	if res.Outcome == Exited && !res.Rewound {
		res.ExpiresAt = w.renewAfter(ctx, in, vm)
	}
	return *res, nil
}

// renewAfter renews the lease after a command and returns the end of the lease. It returns
// the zero time if the machine no longer runs, or if that is unknown.
func (w *Worker) renewAfter(ctx context.Context, in followInput, vm *sandbox.Session) time.Time {
	if vm == nil {
		var err error
		if vm, err = w.currentSession(ctx, in.Sandbox, in.Command.VM); err != nil {
			return time.Time{}
		}
	}
	ends := extend(ctx, vm, in.Lease)
	if vm.Info().Status != sandbox.StatusRunning {
		return time.Time{}
	}
	return ends
}

// readWinner reads the command's log. If the guard ended the command in favor of another
// request of the same start, readWinner reads the log of that one.
func (w *Worker) readWinner(ctx context.Context, cmd *sandbox.Command, chunks chunkReader, in followInput) (*Result, error) {
	res, err := w.read(ctx, cmd, chunks, in.Command)
	if err != nil {
		return nil, err
	}
	if res.Outcome != Exited || res.ExitCode != exitStartLost || res.Bytes > 0 {
		return res, nil
	}
	// An earlier request of the same start may have arrived late and won. Then the guard
	// has ended this command.
	vm, err := w.currentSession(ctx, in.Sandbox, in.Command.VM)
	if err == nil {
		var first *sandbox.Command
		first, res.Rewound, err = findWinner(ctx, vm, cmd.ID())
		if err == nil && first != nil && !res.Rewound {
			return w.read(ctx, first, first.LogChunks, in.Command)
		}
	}
	if err != nil && !hasEnded(err) {
		return nil, err
	}
	return res, nil
}

// A chunkReader reads a command's output from its start.
type chunkReader func(ctx context.Context) iter.Seq2[sandbox.LogChunk, error]

// countBytes wraps chunks to count their bytes in n.
func countBytes(chunks chunkReader, n *atomic.Int64) chunkReader {
	return func(ctx context.Context) iter.Seq2[sandbox.LogChunk, error] {
		return func(yield func(sandbox.LogChunk, error) bool) {
			for chunk, err := range chunks(ctx) {
				n.Add(int64(len(chunk.Data)))
				if !yield(chunk, err) {
					return
				}
			}
		}
	}
}

// progress is sent with the heartbeats of the activity that follows a command.
type progress struct {
	Command string
	Bytes   int64
}

// Written returns how many bytes a running command has written, as of its last heartbeat.
// It returns 0 if there was none, or if only another data converter can read it. commandID
// is the platform's ID.
func Written(ctx context.Context, c client.Client, workflowID, commandID string) (int64, error) {
	if err := entry.Check(ctx, c != nil, "durable", "the client"); err != nil {
		return 0, err
	}
	d, err := c.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return 0, err
	}
	for _, a := range d.GetPendingActivities() {
		var p progress
		if a.GetActivityType().GetName() != activityFollow || a.GetHeartbeatDetails() == nil {
			continue
		}
		if err := converter.GetDefaultDataConverter().FromPayloads(a.GetHeartbeatDetails(), &p); err == nil && p.Command == commandID {
			return p.Bytes, nil
		}
	}
	return 0, nil
}

// read copies the log to the store and waits for the end.
func (w *Worker) read(ctx context.Context, cmd *sandbox.Command, chunks chunkReader, c Command) (*Result, error) {
	res := &Result{Outcome: Exited, Output: c.Output}
	var out *recordWriter
	if w.Output != nil {
		dst, err := w.Output.Create(ctx, c.Output)
		if err != nil {
			return nil, err
		}
		defer dst.Close()
		out = newRecordWriter(dst)
	}
	var tail []byte
	for chunk, err := range chunks(ctx) {
		if hasEnded(err) {
			res.Outcome = Lost
			break
		}
		if err != nil {
			return nil, err
		}
		res.Bytes += int64(len(chunk.Data))
		tail = append(tail, chunk.Data...)
		tail = tail[max(len(tail)-tailSize, 0):]
		data := chunk.Data
		if over := res.Bytes - c.MaxOutput; c.MaxOutput > 0 && over > 0 {
			res.Truncated = true
			data = data[:max(int64(len(data))-over, 0)]
		}
		if out != nil && len(data) > 0 {
			if err := out.write(string(chunk.Stream), data); err != nil {
				return nil, err
			}
		}
	}
	if res.Outcome == Exited {
		done, err := cmd.Wait(ctx)
		switch {
		case hasEnded(err):
			res.Outcome = Lost
		case err != nil:
			return nil, err
		default:
			res.ExitCode, res.Duration = done.ExitCode, done.Duration
		}
	}
	if out != nil {
		if err := out.commit(); err != nil {
			return nil, err
		}
		res.Archived = true
	}
	if res.Archived && c.NoTail {
		return res, nil
	}
	res.Tail = strings.ToValidUTF8(string(tail), "\uFFFD")
	return res, nil
}

// keepLease renews the machine's lease whenever less than half of it remains, until stop is
// called. It looks up the session if vm is nil. stop returns the session.
func (w *Worker) keepLease(ctx context.Context, in followInput, vm *sandbox.Session) (stop func() *sandbox.Session) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(min(time.Minute, max(in.Lease/5, time.Second)))
		defer tick.Stop()
		for vm == nil || vm.Info().Status == sandbox.StatusRunning {
			if vm == nil { // this worker does not know the session: another one may have renewed its lease
				got, err := w.currentSession(ctx, in.Sandbox, in.Command.VM)
				if err != nil && !hasEnded(err) && ctx.Err() == nil {
					activity.GetLogger(ctx).Warn("could not check the machine's lease", "error", err)
				}
				vm = got
			}
			if vm != nil && vm.TimeLeft() < in.Lease/2 {
				extend(ctx, vm, in.Lease)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() *sandbox.Session {
		cancel()
		<-done
		return vm
	}
}
