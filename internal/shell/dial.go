package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/coder/websocket"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

const (
	// The service may take a moment to listen at a new address.
	dialAttempts  = 6
	firstDialWait = 100 * time.Millisecond
	dialTimeout   = 30 * time.Second
)

// fullAddress returns the address of a terminal service including the token, which
// must not be shown. The token gives access to the machine, so with secure it is
// never sent in the clear.
func fullAddress(text, token string, secure bool) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		// The address itself may contain secrets.
		return "", errors.New("the API's address of the terminal is malformed")
	}
	switch u.Scheme {
	case "ws", "wss", "http", "https":
	default:
		return "", errors.New("the API's address of the terminal is not that of a WebSocket")
	}
	if secure && u.Scheme != "wss" && u.Scheme != "https" {
		return "", errors.New("the API's address of the terminal is not encrypted")
	}
	query := u.Query()
	query.Set("token", token)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// Socket is a connection to a terminal service on which nothing runs yet.
type Socket struct {
	ws *websocket.Conn
	// conn is the connection that ws reads from and writes to. Closing it ends a closing
	// handshake, for which ws has a timeout of its own.
	conn *batchingConn
}

// Close closes the connection.
func (s Socket) Close() { _ = s.ws.CloseNow() }

// Dial connects to a terminal service, as an [api.TerminalDialer] does. Dial retries while
// that may help, which is safe because nothing runs yet. Its errors contain neither the
// address nor the token.
func Dial(ctx context.Context, transport http.RoundTripper, at, token string, secure bool) (Socket, error) {
	address, err := fullAddress(at, token, secure)
	if err != nil {
		return Socket{}, err
	}
	for attempt, wait := 1, firstDialWait; ; attempt, wait = attempt+1, 2*wait {
		socket, err := dial(ctx, transport, address)
		if err == nil || attempt == dialAttempts || !isRetryable(err) {
			return socket, err
		}
		if !api.Sleep(ctx, wait) {
			return Socket{}, err
		}
	}
}

func dial(ctx context.Context, transport http.RoundTripper, address string) (Socket, error) {
	limited, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	upgrade := &upgrade{next: transport}
	ws, resp, err := websocket.Dial(limited, address, &websocket.DialOptions{
		HTTPClient: &http.Client{
			Transport: upgrade,
			// A redirect would leak the token in the Referer header.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		OnPongReceived: func(context.Context, []byte) { upgrade.conn.pongs.Add(1) },
	})
	switch {
	case err == nil:
		return Socket{ws, upgrade.conn}, nil
	case ctx.Err() != nil:
		return Socket{}, api.ContextError(ctx)
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		body, _ := io.ReadAll(resp.Body) // at most a kilobyte, in memory
		return Socket{}, &api.TerminalRefusal{Status: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"), Body: body}
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the address
	}
	return Socket{}, err
}

// upgrade is a transport that wraps the connection of the WebSocket in a batchingConn.
type upgrade struct {
	next http.RoundTripper
	conn *batchingConn
}

func (u *upgrade) RoundTrip(req *http.Request) (*http.Response, error) {
	next := cmp.Or(u.next, http.DefaultTransport)
	resp, err := next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok {
		u.conn = newBatchingConn(conn)
		resp.Body = u.conn
	}
	return resp, nil
}

// isRetryable reports whether connecting may succeed if retried.
func isRetryable(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if e, ok := errors.AsType[*api.TerminalRefusal](err); ok {
		var refusal wire.ErrorResponse
		_ = json.Unmarshal(e.Body, &refusal) // a page has no code
		return api.KindOf(api.OpenInteractive.Name, e.Status, refusal.Error.Code, "").Passing()
	}
	return true
}
