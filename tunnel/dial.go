package tunnel

import (
	"context"
	_ "embed" // the helpers
	"errors"
	"fmt"
	"strconv"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
	"github.com/go-vercel/sandbox/internal/rawshell"
)

// ErrRefused reports that nothing listens on the port.
var ErrRefused = errors.New("connection refused in the sandbox")

// exitRefused is the exit code of a helper for a port that nothing listens on.
const exitRefused = 111

//go:embed helper.sh
var startHelper string

//go:embed helper.py
var pythonHelper string

//go:embed helper.js
var nodeHelper string

//go:embed helper.bash
var bashHelper string

// helpers are programs for the interpreters in the order in which they are
// looked for; an empty one is left out.
type helpers struct{ python, node, bash string }

var allHelpers = helpers{pythonHelper, nodeHelper, bashHelper}

// Dial connects to a TCP port of the sandbox's loopback interface, resuming the
// sandbox if it has stopped. If nothing listens there, the error matches
// [ErrRefused]. It makes one request and a WebSocket connection.
//
// As with [net.Dialer.DialContext], the end of ctx ends the dialing only; the
// caller must close the connection. It fits fields such as
// [net/http.Transport].DialContext and those of database drivers, in a function
// that leaves the address out.
func Dial(ctx context.Context, sb *sandbox.Sandbox, port int) (*Conn, error) {
	if err := check(ctx, sb, port); err != nil {
		return nil, err
	}
	return dial(ctx, sb, sb.Name(), port, allHelpers)
}

// check refuses what no connection can be made with.
func check(ctx context.Context, sb *sandbox.Sandbox, port int) error {
	if err := entry.Check(ctx, sb != nil, "tunnel", "the Sandbox"); err != nil {
		return err
	}
	if port < 1 || port > 65535 {
		return fmt.Errorf("tunnel: %w: port %d is outside 1 to 65535", sandbox.ErrInvalid, port)
	}
	return nil
}

func dial(ctx context.Context, sb rawshell.Opener, name string, port int, h helpers) (*Conn, error) {
	fail := func(err error) error { return fmt.Errorf("tunnel: port %d of %q: %w", port, name, err) }
	// The terminal ends with its context, the connection does not.
	life, hangUp := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { hangUp(context.Cause(ctx)) })
	stream, err := rawshell.OpenOwn(life, sb, "sh", rawshell.Raw+startHelper, strconv.Itoa(port), h.python, h.node, h.bash)
	if !stop() && err == nil {
		_ = stream.Close() // always nil
		err = context.Cause(ctx)
	}
	if err != nil {
		hangUp(nil)
		if ended, ok := errors.AsType[*rawshell.EndedError](err); ok && ended.Code == exitRefused {
			err = ErrRefused
		}
		return nil, fail(err)
	}
	return newConn(stream, stream.Greeting == "framed", hangUp, addr{name, port}), nil
}
