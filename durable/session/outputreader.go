package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
)

// isRunning reports whether a command is running. It may still report true shortly after
// the end. The viewer then gets another change, and looks again.
func (v *viewer) isRunning(ctx context.Context, command string) (bool, error) {
	s, err := v.c.State(ctx, v.id)
	if err != nil {
		return false, err
	}
	return s.Running == command, nil
}

func hasEnded(err error) bool {
	return errors.Is(err, sandbox.ErrStopped) || errors.Is(err, sandbox.ErrNotFound)
}

// piece is a piece of a command's output that the viewer lacks.
type piece struct {
	stream string
	data   []byte
	end    int64 // the offset after it, of both streams together
}

// outputReader reads the output of a command from the store or the platform. Both have the
// same bytes, in different pieces.
type outputReader struct {
	v         *viewer
	ctx       context.Context
	cancel    context.CancelFunc
	pos       int64 // the offset after the pieces so far
	skip      int64 // bytes that the viewer already has
	pieces    chan piece
	err       error // valid once pieces is closed
	delivered bool  // the viewer has all output
}

// stop ends the reader. o may be nil.
func (o *outputReader) stop() {
	if o == nil {
		return
	}
	o.cancel()
	for range o.pieces { // wait until the reader has ended
	}
}

// read reads the output from the store, or from the platform if the store lacks it.
func (o *outputReader) read(start stored, end *Event) error {
	err := o.stored(start.Event.Output)
	if errors.Is(err, fs.ErrNotExist) && (end == nil || !end.Archived) {
		err = o.live(start.Handle)
	}
	if hasEnded(err) || errors.Is(err, fs.ErrNotExist) {
		// The machine has ended. Once the command's end is known, the store contains the
		// output that the worker has read, if any.
		running := false
		if end == nil {
			if running, err = o.v.isRunning(o.ctx, start.Event.ID); err != nil {
				return err
			}
		}
		if err = o.stored(start.Event.Output); running && errors.Is(err, fs.ErrNotExist) {
			return errPending
		}
	}
	return err
}

func (o *outputReader) stored(key string) error {
	for rec, err := range durable.ReadOutput(o.ctx, o.v.c.opts.Output, key, o.skip) {
		if err != nil {
			return err
		}
		o.pos = rec.At
		if err := o.send(rec.Stream, rec.Data); err != nil {
			return err
		}
	}
	return nil
}

func (o *outputReader) live(handle []byte) error {
	if o.v.c.opts.Sandbox == nil || len(handle) == 0 { // the command's ID is unknown
		return fs.ErrNotExist
	}
	var cmd sandbox.Command
	if err := json.Unmarshal(handle, &cmd); err != nil {
		return err
	}
	o.v.c.opts.Sandbox.Bind(&cmd)
	o.pos = 0
	for chunk, err := range cmd.LogChunks(o.ctx) {
		if err != nil {
			return err
		}
		if err := o.send(string(chunk.Stream), chunk.Data); err != nil {
			return err
		}
	}
	return nil
}

// send sends the part of a piece that the viewer lacks.
func (o *outputReader) send(stream string, data []byte) error {
	start := o.pos
	o.pos += int64(len(data))
	if o.pos <= o.skip {
		return nil
	}
	if start < o.skip {
		data = data[o.skip-start:]
	}
	o.skip = o.pos
	if len(data) == 0 {
		return nil
	}
	select {
	case o.pieces <- piece{stream, bytes.Clone(data), o.pos}:
		return nil
	case <-o.ctx.Done():
		return o.ctx.Err()
	}
}
