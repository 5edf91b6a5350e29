package api

import (
	"context"
	"fmt"
	"net/http"
)

// TerminalDialer connects to a terminal service, and with secure never in the clear.
// A response that refuses it is a [*TerminalRefusal].
type TerminalDialer func(ctx context.Context, transport http.RoundTripper, address, token string, secure bool) error

// DialTerminal opens the terminal service of a sandbox's session, resuming the
// sandbox if it is stopped, and calls dial for it with the client's transport. It
// returns the session's ID and working directory. The client sets it, for package
// terminal: so only programs with terminals link WebSockets.
var DialTerminal func(ctx context.Context, sandbox any, dial TerminalDialer) (session, cwd string, err error)

// TerminalRefusal is a response other than the opening of a WebSocket.
type TerminalRefusal struct {
	Status      int
	ContentType string
	Body        []byte // at most a kilobyte
}

func (e *TerminalRefusal) Error() string { return fmt.Sprintf("status %d", e.Status) }
