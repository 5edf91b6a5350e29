package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"maps"
	"math"
	"slices"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/clean"
	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/logstream"
	"github.com/go-vercel/sandbox/internal/wire"
)

// LogEntry is a piece of a command's output. [Command.Logs] yields pieces as
// the API sent them, which are not necessarily lines; [Command.Lines] yields
// one line each, without its line ending.
type LogEntry struct {
	// Stream is [Stdout] or [Stderr]. The API may add others.
	Stream string
	Data   string
}

// LogChunk is like LogEntry, but Data is valid only until the next iteration of
// a loop over [Command.LogChunks]. The loop may modify Data, and must copy what
// it keeps.
type LogChunk struct {
	Stream string
	Data   []byte
}

// logStream returns access to a command's output and end for package logstream.
func (c *Client) logStream(session, id string) logstream.Command {
	return logstream.Command{Client: c.api, Session: session, ID: id, Limits: logstream.Limits{
		Attempts: c.reattach.Attempts, Limit: c.reattach.Limit, Wait: c.reattach.Wait,
	}}
}

// follower reads a command's output and resumes the stream when it breaks.
type follower struct {
	*logstream.Reader
	ctx         context.Context
	c           *Client
	session, id string
	release     func() // frees the request's resources; may be nil
	// request is the body of the request whose response is read. Errors of the stream don't
	// show its secrets. It is nil for a request without secrets.
	request *engine.Body
	// decoders decode the outputs of a command that was started with Binary. For other
	// commands, watched is set for an output until a replaced byte was found and logged.
	decoders *[2]binaryDecoder
	watched  [2]bool
	decoded  int64 // length of the decoded output
}

// setKind sets the kind of the output. own is set for a helper program of the client, which
// handles replaced bytes itself.
func (f *follower) setKind(binary, own bool) {
	switch {
	case binary:
		f.decoders = &[2]binaryDecoder{}
	case !own && f.c.api.Observed():
		f.watched = [2]bool{true, true}
	}
}

// Bytes returns the length of the delivered output.
func (f *follower) Bytes() int64 {
	if f.decoders != nil {
		return f.decoded
	}
	return f.Reader.Bytes()
}

// Close ends the reading. A nil follower has nothing to close.
func (f *follower) Close() {
	if f == nil {
		return
	}
	f.Reader.Close()
	if f.release != nil {
		f.release()
	}
}

// newFollower follows a command's log from its start.
func newFollower(ctx context.Context, c *Client, cmd *Command) *follower {
	var end *wire.Command
	data := cmd.wire()
	if data.ExitCode != nil {
		end = &data
	}
	f := &follower{Reader: logstream.Follow(ctx, c.logStream(cmd.session, data.ID), end), ctx: ctx, c: c, session: cmd.session, id: data.ID}
	name, args, binary := unwrapBinary(data.Name, data.Args)
	own, _, _ := clean.Of(name, args)
	f.setKind(binary, own != nil)
	return f
}

// next returns the next piece of output, which is valid until the next call. It
// returns io.EOF when the command has ended and all output was delivered.
func (f *follower) next() (string, []byte, error) {
	kind, data, err := f.Next()
	switch {
	case err == io.EOF:
		return "", nil, f.ended()
	case err != nil:
		return "", nil, f.publicError(err)
	}
	stream, i := Stdout, 0
	if kind == wire.KindStderr {
		stream, i = Stderr, 1
	}
	if f.decoders != nil {
		if data, err = f.decoders[i].decode(data); err != nil {
			return "", nil, f.notEncoded(err)
		}
		f.decoded += int64(len(data))
	}
	if f.watched[i] && bytes.Contains(data, []byte("\uFFFD")) {
		f.watched[i] = false
		f.c.api.Log(f.ctx, slog.LevelInfo, "sandbox: output was not UTF-8, and is not what the program wrote",
			slog.String("session", f.session), slog.String("command", f.id), slog.String("stream", stream))
	}
	return stream, data, nil
}

// ended returns io.EOF, or an error if the output should have been encoded and is not. If
// a signal has ended the command, its shell may not have reached the encoding.
func (f *follower) ended() error {
	end := f.End()
	if f.decoders == nil || end != nil && end.ExitCode != nil && *end.ExitCode > 128 {
		return io.EOF
	}
	for i := range f.decoders {
		if err := f.decoders[i].end(); err != nil {
			return f.notEncoded(err)
		}
	}
	return io.EOF
}

func (f *follower) notEncoded(err error) error {
	return &StreamError{Code: codeNotEncoded, Message: err.Error(), SessionID: f.session, CommandID: f.id}
}

// codeNotEncoded is the code of the error for output that should have been encoded and is
// not.
const codeNotEncoded = "not_encoded"

// each calls sink for each piece of output, until the command has ended.
func (f *follower) each(sink func(string, []byte) error) error {
	for {
		stream, data, err := f.next()
		if err == nil {
			err = sink(stream, data)
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// publicError converts an error of the reader to the one that users see.
func (f *follower) publicError(err error) error {
	if e, ok := err.(*logstream.Error); ok {
		return f.c.streamError(e, f.session, f.id, f.request)
	}
	if f.ctx.Err() != nil {
		return &RequestError{operation: "read output of command " + f.id, session: f.session, Err: err}
	}
	return publicError(err)
}

// streamError returns the error of a stream that can't continue. The server's
// message is redacted.
func (c *Client) streamError(e *logstream.Error, session, id string, request *engine.Body) *StreamError {
	secrets := c.api.Known(&api.Request{Body: request})
	return &StreamError{
		Code: secrets.Text(e.Code), Message: secrets.Text(e.Message), SessionID: session, CommandID: id,
		Err: secrets.Error(publicError(e.Err)), sandbox: c.api.Owner(session),
	}
}

// waitCommand waits for a command to end, within ctx and the limits of
// resuming.
func (c *Client) waitCommand(ctx context.Context, session, id string) (*wire.Command, error) {
	data, err := logstream.Wait(ctx, c.logStream(session, id))
	switch {
	case err == nil:
		return data, nil
	case ctx.Err() != nil:
		return nil, &RequestError{operation: api.GetCommand.Name, session: session, Err: api.ContextError(ctx)}
	}
	return nil, publicError(err)
}

// lookAtCommand returns a command's state, including its end: the service
// reports an end only to requests that wait for it.
func (c *Client) lookAtCommand(ctx context.Context, session, id string) (*wire.Command, error) {
	if err := checkRoute(&api.Request{Op: api.GetCommand, Path: []string{session, id}}); err != nil {
		return nil, err
	}
	cmd := c.logStream(session, id)
	data, err := cmd.LookNow(ctx)
	if err != nil {
		return nil, publicError(err)
	}
	return data, nil
}

// Logs returns an iterator over the command's output, from its start until the
// command has ended. A broken connection is reestablished and the output
// continues where it stopped: each byte is yielded once. Breaking out of the
// loop closes the connection. An error is yielded last: a [*StreamError] with
// the command's ID, or the error of ctx. Nothing is kept in memory, and a slow
// loop slows down the sender. Any number of iterations may run at the same
// time, each with requests of its own.
//
// A log that ends may have been cut, so a whole log takes three requests: the log, the
// command's state unless its end is known, and the log again to see that nothing follows.
// The writers of [Sandbox.StartCommand] and a [Cmd] get the output from the request that
// starts the command.
func (c *Command) Logs(ctx context.Context) iter.Seq2[LogEntry, error] {
	return func(yield func(LogEntry, error) bool) {
		for chunk, err := range c.LogChunks(ctx) {
			if !yield(LogEntry{Stream: chunk.Stream, Data: string(chunk.Data)}, err) {
				return
			}
		}
	}
}

// Lines returns an iterator like [Command.Logs] that yields whole lines,
// without the newline and a carriage return before it. The lines of one stream
// are in order; a last line without a newline is yielded when its stream has
// ended. Incomplete lines are held in memory.
func (c *Command) Lines(ctx context.Context) iter.Seq2[LogEntry, error] {
	return c.lines(ctx, math.MaxInt)
}

// lines is Lines limited to most bytes of each line.
func (c *Command) lines(ctx context.Context, most int) iter.Seq2[LogEntry, error] {
	return func(yield func(LogEntry, error) bool) {
		begun := map[string][]byte{}
		line := func(stream string, text []byte) bool {
			return yield(LogEntry{Stream: stream, Data: string(bytes.TrimSuffix(text, []byte("\r")))}, nil)
		}
		for chunk, err := range c.LogChunks(ctx) {
			if err != nil {
				yield(LogEntry{}, err)
				return
			}
			for rest := chunk.Data; len(rest) > 0; {
				text, after, ended := bytes.Cut(rest, []byte("\n"))
				held := begun[chunk.Stream]
				text = text[:min(len(text), most-len(held))]
				rest = after
				if !ended {
					begun[chunk.Stream] = append(held, text...)
					break
				}
				if len(held) > 0 {
					text = append(held, text...)
					begun[chunk.Stream] = held[:0]
				}
				if !line(chunk.Stream, text) {
					return
				}
			}
		}
		for _, stream := range slices.Sorted(maps.Keys(begun)) {
			if text := begun[stream]; len(text) > 0 && !line(stream, text) {
				return
			}
		}
	}
}

// LogChunks returns an iterator like [Command.Logs] that does not allocate: the
// data of a chunk is valid until the next iteration. It is intended for large
// output that is inspected and not kept.
func (c *Command) LogChunks(ctx context.Context) iter.Seq2[LogChunk, error] {
	return func(yield func(LogChunk, error) bool) {
		client, err := enter(ctx, c)
		if err != nil {
			yield(LogChunk{}, err)
			return
		}
		f := newFollower(ctx, client, c)
		defer f.Close()
		err = f.each(func(stream string, data []byte) error {
			if !yield(LogChunk{Stream: stream, Data: data}, nil) {
				return errBreak
			}
			return nil
		})
		switch end := f.End(); {
		case err == errBreak:
		case err != nil:
			yield(LogChunk{}, err)
		case end != nil:
			c.finish(*end)
		}
	}
}

// errBreak ends a loop over output.
var errBreak = errors.New("break")
