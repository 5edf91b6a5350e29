package sandbox

import (
	"context"
	"io"

	"github.com/go-vercel/sandbox/internal/wire"
)

// copied is how the copying of the output ended.
type copied struct {
	end *wire.Command
	// stream is an error of the stream, writer one of a writer.
	stream, writer error
}

// watchesEnd reports whether the command's end matters before that of its
// output. Without output it is all that there is to wait for.
func (r *execRun) watchesEnd() bool {
	return r.waitDelay > 0 || len(r.pipes) > 0
}

func (r *execRun) waitEnd(ctx context.Context) (*wire.Command, error) {
	client, err := r.remote.client()
	if err != nil {
		return nil, err
	}
	return client.waitCommand(ctx, r.remote.session, r.remote.ID())
}

// copy copies the output to its writers until it ends. A writer that fails gets
// nothing more; the other one does.
func (r *execRun) copy(ctx context.Context) copied {
	for _, p := range r.pipes {
		defer p.end()
	}
	if r.stdout == nil && r.stderr == nil {
		end, err := r.waitEnd(ctx)
		return copied{end: end, stream: err}
	}
	client, err := r.remote.client()
	if err != nil {
		return copied{stream: err}
	}
	f := newFollower(ctx, client, r.remote)
	defer f.close()
	writers := map[LogStream]io.Writer{Stdout: r.stdout, Stderr: r.stderr}
	var res copied
	for {
		stream, data, err := f.next()
		switch {
		case err == io.EOF:
			if res.end = f.end; res.end == nil {
				res.end, res.stream = r.waitEnd(ctx)
			}
			return res
		case err != nil:
			res.stream = err
			return res
		}
		w := writers[stream]
		if w == nil {
			continue
		}
		n, err := w.Write(data)
		if err == nil && n < len(data) {
			err = io.ErrShortWrite
		}
		if err != nil {
			writers[stream] = nil
			if _, pipe := w.(*outputPipe); !pipe && res.writer == nil {
				res.writer = err
			}
		}
	}
}
