package sandbox

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/wire"
)

// A command's output streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// output holds what a command wrote, in the order of arrival.
type output struct {
	text     strings.Builder
	segments []segment
	// noStdout and noStderr are set for a stream that went to a writer and is not included.
	noStdout, noStderr bool
}

// segment is a run of bytes of one stream.
type segment struct {
	stream string
	length int
}

func (o *output) add(stream string, data []byte) {
	o.text.Write(data)
	o.addSegment(stream, len(data))
}

// addSegment records that the last n bytes of the text came from the stream.
func (o *output) addSegment(stream string, n int) {
	if last := len(o.segments) - 1; last >= 0 && o.segments[last].stream == stream {
		o.segments[last].length += n
		return
	}
	o.segments = append(o.segments, segment{stream, n})
}

func (o *output) stdout() (string, bool) { return o.only(Stdout), !o.noStdout }

func (o *output) stderr() (string, bool) { return o.only(Stderr), !o.noStderr }

func (o *output) both() (string, bool) { return o.text.String(), !o.noStdout && !o.noStderr }

func (o *output) only(stream string) string {
	text := o.text.String()
	switch {
	case len(o.segments) == 0:
		return ""
	case len(o.segments) == 1:
		if o.segments[0].stream == stream {
			return text
		}
		return ""
	}
	var b strings.Builder
	for _, seg := range o.segments {
		if seg.stream == stream {
			b.WriteString(text[:seg.length])
		}
		text = text[seg.length:]
	}
	return b.String()
}

// deliver writes the output to the writers, and returns the output of streams without a
// writer.
func (f *follower) deliver(o *CommandOptions) (*output, error) {
	rest := &output{noStdout: o.Stdout != nil, noStderr: o.Stderr != nil}
	err := f.each(func(stream string, data []byte) error {
		w := o.Stdout
		if stream == Stderr {
			w = o.Stderr
		}
		if w == nil {
			rest.add(stream, data)
			return nil
		}
		if err := writeAll(w, data); err != nil {
			return &StreamError{
				Code: codeWriteFailed, Message: "the " + string(stream) + " can't be written",
				SessionID: f.session, CommandID: f.id, Err: err,
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	// An empty stream is complete even if it has a writer.
	stdout, stderr := f.Delivered()
	rest.noStdout = rest.noStdout && stdout
	rest.noStderr = rest.noStderr && stderr
	return rest, nil
}

func writeAll(w io.Writer, data []byte) error {
	n, err := w.Write(data)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	return err
}

// codeWriteFailed is the code of a failed writer.
const codeWriteFailed = "write_failed"

// pump copies a command's output to its writers in the background.
type pump struct {
	done  chan struct{}
	event api.Span // for observers
	// Once it is done:
	end *wire.Command // how the command ended, if that is known
	err error
}

// startPump copies the output that f reads to the writers, and then ends the event.
func startPump(ctx context.Context, f *follower, cmd *Command, o *CommandOptions, e api.Span) *pump {
	p := &pump{done: make(chan struct{}), event: e}
	writers := *o
	writers.Stdout = cmp.Or(writers.Stdout, io.Discard)
	writers.Stderr = cmp.Or(writers.Stderr, io.Discard)
	within := engine.Patience(ctx)
	go func() {
		defer close(p.done)
		_, p.err = f.deliver(&writers)
		f.Close()
		p.end = f.End()
		if p.err != nil && o.KillOnCancel {
			p.err = cmd.killAfterCancel(ctx, within, p.err)
		}
		p.event.Received = f.Bytes()
		setExit(&p.event, p.end)
		endEvent(&p.event, p.err)
	}()
	return p
}

// waitDone waits for the copying to end and reports whether it has, even if ctx has
// ended at the same time.
func (p *pump) waitDone(ctx context.Context) bool {
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait waits for the copying to end. A nil pump has nothing to copy.
func (p *pump) wait(ctx context.Context) error {
	switch {
	case p == nil:
		return nil
	case p.waitDone(ctx):
		return p.err
	}
	return api.ContextError(ctx)
}

// waitEnd waits for the copying to end, and returns how the command ended; nil
// if that is not known.
func (p *pump) waitEnd(ctx context.Context) *wire.Command {
	if p == nil || !p.waitDone(ctx) {
		return nil
	}
	return p.end
}

// pipeBuffer is the capacity of a pipe. It equals the capacity of a pipe on Linux. A
// program that reads one pipe to its end before the other then works with as much output
// as it would with a local command.
const pipeBuffer = 64 << 10

// pipe is a pipe with a buffer. StdoutPipe and StderrPipe return its reading end, and
// StdinPipe its writing end.
type pipe struct {
	mu   sync.Mutex
	cond *sync.Cond
	buf  []byte
	// ended is set when nothing more will be written, and closed when the reader was closed.
	ended, closed bool
}

func newPipe() *pipe {
	p := &pipe{}
	p.cond = sync.NewCond(&p.mu)
	return p
}

func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf) == 0 && !p.ended && !p.closed && len(b) > 0 {
		p.cond.Wait()
	}
	switch {
	case p.closed:
		return 0, &fs.PathError{Op: "read", Path: "|0", Err: os.ErrClosed}
	case len(p.buf) == 0 && p.ended:
		return 0, io.EOF
	}
	n := copy(b, p.buf)
	p.buf = p.buf[:copy(p.buf, p.buf[n:])]
	p.cond.Broadcast()
	return n, nil
}

// Write waits until the buffer has room. io.ErrClosedPipe means that the reader was
// closed.
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	written := 0
	for len(b) > 0 {
		for len(p.buf) >= pipeBuffer && !p.closed {
			p.cond.Wait()
		}
		if p.closed {
			return written, io.ErrClosedPipe
		}
		n := min(len(b), pipeBuffer-len(p.buf))
		p.buf = append(p.buf, b[:n]...)
		b, written = b[n:], written+n
		p.cond.Broadcast()
	}
	return written, nil
}

// Close ends the reading; later writes are discarded.
func (p *pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return &fs.PathError{Op: "close", Path: "|0", Err: os.ErrClosed}
	}
	p.closed, p.buf = true, nil
	p.cond.Broadcast()
	return nil
}

// end marks the end of the data.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.cond.Broadcast()
}

// stdinPipe is the writing end of a pipe, which StdinPipe returns.
type stdinPipe struct {
	p      *pipe
	closed atomic.Bool
}

func (s *stdinPipe) Write(b []byte) (int, error) {
	if s.closed.Load() {
		return 0, &fs.PathError{Op: "write", Path: "|1", Err: os.ErrClosed}
	}
	return s.p.Write(b)
}

// Close ends the input. As in package exec it may be called more than once.
func (s *stdinPipe) Close() error {
	s.closed.Store(true)
	s.p.end()
	return nil
}
