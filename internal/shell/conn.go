// Package shell speaks the protocol of the platform's terminals. A WebSocket
// carries one program in one terminal: a text message starts it, binary messages
// are its input and output, and text messages carry its size and exit code.
package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/go-vercel/sandbox/internal/api"
)

const (
	// maxFrame limits a message from the other end, of which no more than
	// bufferSize is in memory.
	maxFrame   = 1 << 20
	bufferSize = 32 << 10
	// closeTimeout limits the connection's closing handshake.
	closeTimeout = time.Second
	// terminalQueue is the minimum input that a Linux terminal buffers for a program that does
	// not read.
	terminalQueue = 4095
)

// Start is the message that starts the program.
type Start struct {
	Command    string
	Args       []string
	Env        []string
	Cwd        string
	Cols, Rows int
}

// Conn is a program that runs in a terminal.
type Conn struct {
	ws     *websocket.Conn
	conn   *batchingConn
	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc
	// describe returns the error of a connection that ended before the program.
	describe func(err error, code int, reason string) error
	out      *io.PipeReader
	feed     *io.PipeWriter

	// heard counts the signs that the other end is alive. While feeding is set, receive waits
	// for a Read of the output, and can't notice any.
	heard   atomic.Int64
	feeding atomic.Bool
	// sent is the number of bytes of input sent.
	sent atomic.Int64

	closing   sync.Once
	resources sync.WaitGroup

	once sync.Once
	done chan struct{} // closed when code and err are set
	code int
	err  error
}

// Open starts a program on a new connection, which it closes after a failure. The
// connection ends with ctx. describe returns the error of a connection that ended before
// its program, given the cause and the code and reason in the WebSocket's close message.
// code is zero if there was none.
func Open(ctx context.Context, socket Socket, start *Start, describe func(err error, code int, reason string) error) (*Conn, error) {
	socket.ws.SetReadLimit(maxFrame)
	c := &Conn{ws: socket.ws, conn: socket.conn, describe: describe, done: make(chan struct{})}
	c.out, c.feed = io.Pipe()
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	err := c.send(struct {
		Type    string   `json:"type"`
		Command string   `json:"command"`
		Args    []string `json:"args"`
		Env     []string `json:"env"`
		Cwd     string   `json:"cwd,omitempty"`
		Cols    int      `json:"cols"`
		Rows    int      `json:"rows"`
	}{"start", start.Command, start.Args, start.Env, start.Cwd, start.Cols, start.Rows})
	if err != nil {
		err = c.lost(err)
		c.cancel(err)
		socket.Close()
		return nil, err
	}
	c.resources.Go(c.receive)
	return c, nil
}

// Go runs a function in a goroutine that Close waits for, with a context that
// ends with the connection.
func (c *Conn) Go(f func(ctx context.Context)) { c.resources.Go(func() { f(c.ctx) }) }

func (c *Conn) send(message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return c.write(websocket.MessageText, data)
}

// write sends one message.
func (c *Conn) write(kind websocket.MessageType, p []byte) error {
	c.conn.hold()
	err := c.ws.Write(c.ctx, kind, p)
	if flushed := c.conn.release(); err == nil {
		err = flushed
	}
	return err
}

// Read reads the output of the program. One goroutine at a time may call it.
func (c *Conn) Read(p []byte) (int, error) { return c.out.Read(p) }

// Write sends input to the program.
func (c *Conn) Write(p []byte) (int, error) {
	for sent := 0; ; {
		if err := c.ended(); err != nil {
			return sent, err
		}
		n := min(len(p)-sent, bufferSize)
		if n > 0 {
			c.sent.Add(int64(n))
			if err := c.write(websocket.MessageBinary, p[sent:sent+n]); err != nil {
				return sent, c.lost(err)
			}
		}
		// The sent part may have ended the program.
		if sent += n; sent == len(p) {
			return sent, nil
		}
	}
}

// Resize changes the size of the terminal.
func (c *Conn) Resize(cols, rows int) error {
	if err := c.ended(); err != nil {
		return err
	}
	err := c.send(struct {
		Type string `json:"type"`
		Cols int    `json:"cols"`
		Rows int    `json:"rows"`
	}{"resize", cols, rows})
	if err != nil {
		return c.lost(err)
	}
	return nil
}

// ended returns the error for the use of a terminal that has ended.
func (c *Conn) ended() error {
	select {
	case <-c.done:
	default:
		return nil
	}
	if c.err != nil {
		return c.err
	}
	return fmt.Errorf("sandbox: the program of the terminal has ended: %w", io.ErrClosedPipe)
}

// Wait waits for the program to end and returns its exit code. Another goroutine must
// read the output.
func (c *Conn) Wait(ctx context.Context) (exitCode int, err error) {
	select {
	case <-c.done:
		return c.code, c.err
	default:
	}
	select {
	case <-c.done:
		return c.code, c.err
	case <-ctx.Done():
		return 0, api.ContextError(ctx)
	}
}

// errClosed is the cause of an end by Close.
var errClosed = fmt.Errorf("sandbox: the terminal was closed: %w", io.ErrClosedPipe)

// Close closes the connection and waits for its goroutines. It may be called
// more than once.
func (c *Conn) Close() {
	c.closing.Do(func() {
		c.out.CloseWithError(errClosed)
		c.finish(0, errClosed)
		// The other end should learn that this is intended. Canceling ends a
		// handshake that takes too long.
		timer := time.AfterFunc(closeTimeout, func() {
			c.cancel(errClosed)
			_ = c.conn.Close()
		})
		_ = c.ws.Close(websocket.StatusNormalClosure, "") // may already be closed
		timer.Stop()
		c.cancel(errClosed)
		c.resources.Wait()
	})
}

// finish sets the result, unless it is already set.
func (c *Conn) finish(code int, err error) {
	c.once.Do(func() {
		c.code, c.err = code, err
		close(c.done)
	})
}

// receive reads until the connection ends.
func (c *Conn) receive() {
	code, err := c.read()
	c.finish(code, err)
	if err == nil {
		err = io.EOF
		// The other end closes the connection now.
		ctx, cancel := context.WithTimeout(c.ctx, closeTimeout)
		c.feed.CloseWithError(err)
		_, _, _ = c.ws.Reader(ctx)
		cancel()
	}
	c.feed.CloseWithError(err)
	_ = c.ws.CloseNow() // its error no longer matters
	c.cancel(err)
}

// read passes output to Read until the exit code arrives.
func (c *Conn) read() (int, error) {
	buf := make([]byte, bufferSize)
	for {
		kind, r, err := c.ws.Reader(c.ctx)
		if err != nil {
			return 0, c.lost(err)
		}
		c.heard.Add(1)
		if kind == websocket.MessageBinary {
			if err := c.deliverMessage(r, buf); err != nil {
				return 0, c.lost(err)
			}
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return 0, c.lost(err)
		}
		var m struct {
			Type string `json:"type"`
			Code *int   `json:"code"`
		}
		if json.Unmarshal(text, &m) != nil {
			// Not a message, so it is output, as in the official CLI.
			c.deliver(text)
		} else if m.Type == "exit" {
			if m.Code == nil {
				return 0, c.lost(errors.New("the other end sent no exit code"))
			}
			return *m.Code, nil
		}
	}
}

// deliverMessage passes the output in one message to Read.
func (c *Conn) deliverMessage(r io.Reader, buf []byte) error {
	for {
		n, err := r.Read(buf)
		c.deliver(buf[:n])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// deliver passes p to Read, and waits until it was read. Once the terminal is closed, it
// drops p.
func (c *Conn) deliver(p []byte) {
	if len(p) == 0 {
		return
	}
	c.feeding.Store(true)
	stop := context.AfterFunc(c.ctx, func() { c.feed.CloseWithError(c.lost(context.Cause(c.ctx))) })
	_, _ = c.feed.Write(p)
	stop()
	c.feeding.Store(false)
	c.heard.Add(1)
}

// lost returns the error of a connection that ended before the program.
func (c *Conn) lost(err error) error {
	if cause := context.Cause(c.ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, errClosed) {
		return errClosed
	}
	if e, ok := errors.AsType[websocket.CloseError](err); ok {
		return c.describe(err, int(e.Code), e.Reason)
	}
	return c.describe(err, 0, "")
}

// errSilent is the cause of abandoning a dead connection.
var errSilent = errors.New("the other end no longer responds")

// Watch abandons the connection if the other end does not respond to two pings in a row. A
// single ping may be overdue after a suspend, although its response waits to be read.
// While a program reads its input slowly, the pings wait behind the input, and are not
// counted. Watch returns when ctx ends.
func (c *Conn) Watch(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var sent, taken int64 // bytes of input sent before the last ping, and before the last answered one
	var pongs int64
	var behind bool
	for missed := 0; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		// While output waits to be read, a response could not be noticed, and
		// some servers fail if they can't send theirs.
		if c.feeding.Load() {
			missed = 0
			continue
		}
		if behind {
			if c.conn.pongs.Load() == pongs {
				continue
			}
			behind, taken = false, sent
		}
		heard := c.heard.Load()
		sent, pongs = c.sent.Load(), c.conn.pongs.Load()
		limited, cancel := context.WithTimeout(ctx, every)
		err := c.ws.Ping(limited)
		cancel()
		switch {
		case err == nil:
			missed, taken = 0, sent
		case !errors.Is(err, context.DeadlineExceeded), c.feeding.Load(), c.heard.Load() != heard:
			missed = 0 // any other failure is noticed by the reader
		case sent-taken > terminalQueue:
			missed, behind = 0, true
		default:
			if missed++; missed == 2 {
				c.cancel(errSilent)
				return
			}
		}
	}
}
