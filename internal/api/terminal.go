package api

import (
	"context"
	"fmt"
	"net/http"
)

// TerminalDialer connects to a terminal service. With secure it refuses an unencrypted
// connection. A response that is not a WebSocket is a [*TerminalRefusal].
type TerminalDialer func(ctx context.Context, transport http.RoundTripper, address, token string, secure bool) error

// DialTerminal opens the terminal service of a sandbox's session and calls dial with the
// client's transport. It resumes the sandbox if it is stopped. It returns the session's ID
// and working directory. The client sets this variable for package terminal. Programs that
// do not use terminals thus do not link the WebSocket package.
var DialTerminal func(ctx context.Context, sandbox any, dial TerminalDialer) (session, cwd string, err error)

// TerminalRefusal is a response other than the opening of a WebSocket.
type TerminalRefusal struct {
	Status      int
	ContentType string
	Body        []byte // at most a kilobyte
}

func (e *TerminalRefusal) Error() string { return fmt.Sprintf("status %d", e.Status) }
