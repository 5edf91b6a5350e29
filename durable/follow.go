package durable

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/go-vercel/sandbox"
)

type followInput struct {
	Command          Command
	Sandbox          string
	Lease, Heartbeat time.Duration
}

// tailSize is how much of a command's output is kept in its result when it is
// not stored. It becomes part of the workflow's history.
const tailSize = 2 << 10

// command revives a handle, which makes no request and resumes nothing.
func (w *Worker) command(c Command) (*sandbox.Command, error) {
	cmd := new(sandbox.Command)
	if err := json.Unmarshal(c.Handle, cmd); err != nil {
		return nil, err
	}
	w.Client.Bind(cmd)
	return cmd, nil
}

// follow reads a command's log from its start to its end into the store, and
// returns how it ended. It can be repeated, also twice at once.
func (w *Worker) follow(ctx context.Context, in followInput) (Result, error) {
	ctx, stop := alive(ctx)
	defer stop()
	cmd, err := w.command(in.Command)
	if err != nil {
		return Result{}, classify(err)
	}
	keep := w.keepLease(ctx, in)
	defer keep()
	res, err := w.read(ctx, cmd, in.Command)
	if err != nil {
		return Result{}, classify(err)
	}
	if res.Outcome == Exited && res.ExitCode == taken && res.Bytes == 0 {
		// It may have lost against an earlier request of the same start that
		// arrived late. Then that one is the command.
		vm, err := w.session(ctx, in.Sandbox, in.Command.VM)
		if err != nil && !gone(err) {
			return Result{}, classify(err)
		}
		if err == nil {
			won, err := winner(ctx, vm, in.Command.Key)
			if err != nil && !gone(err) {
				return Result{}, classify(err)
			}
			if won != nil && won.ID() != cmd.ID() {
				if res, err = w.read(ctx, won, in.Command); err != nil {
					return Result{}, classify(err)
				}
			}
		}
	}
	return *res, nil
}

// read copies the log to the store and waits for the end.
func (w *Worker) read(ctx context.Context, cmd *sandbox.Command, c Command) (*Result, error) {
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
	for chunk, err := range cmd.LogChunks(ctx) {
		if gone(err) {
			res.Outcome = Lost
			break
		}
		if err != nil {
			return nil, err
		}
		res.Bytes += int64(len(chunk.Data))
		tail = append(tail, chunk.Data...)
		if len(tail) > 2*tailSize {
			tail = append(tail[:0], tail[len(tail)-tailSize:]...)
		}
		if out != nil {
			if err := out.write(Record{string(chunk.Stream), chunk.Data}); err != nil {
				return nil, err
			}
		}
	}
	if res.Outcome == Exited {
		done, err := cmd.Wait(ctx)
		switch {
		case gone(err):
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
	res.Tail = strings.ToValidUTF8(string(tail[max(len(tail)-tailSize, 0):]), "\uFFFD")
	return res, nil
}

// keepLease renews the machine's lease while the command runs, when half of it is
// left. The caller calls the function that it returns.
func (w *Worker) keepLease(ctx context.Context, in followInput) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(min(time.Minute, max(in.Lease/5, time.Second)))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			cur, err := w.session(ctx, in.Sandbox, in.Command.VM)
			if err != nil {
				if !gone(err) && ctx.Err() == nil {
					activity.GetLogger(ctx).Warn("could not check the machine's lease", "error", err)
				}
				continue
			}
			if cur.TimeLeft() < in.Lease/2 {
				w.extend(ctx, cur, in.Lease)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
