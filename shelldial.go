package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/coder/websocket"
	"github.com/go-vercel/sandbox/internal/wire"

	"github.com/go-vercel/sandbox/internal/api"
)

const (
	openTerminal = "open terminal"
	// The service may take a moment to listen at a new address.
	dialAttempts  = 6
	firstDialWait = 100 * time.Millisecond
	dialTimeout   = 30 * time.Second
)

// dialTerminal opens the terminal service and connects to it. Since nothing is
// started yet, it is safe to retry.
func (s *Session) dialTerminal(ctx context.Context) (*websocket.Conn, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	where, err := s.OpenInteractive(ctx)
	if err != nil {
		return nil, err
	}
	c.secrets.Add(where.Token)
	address, err := where.dialURL(c.base.Scheme)
	if err != nil {
		return nil, &RequestError{Operation: openTerminal, SessionID: s.ID(), Err: err}
	}
	for attempt, wait := 1, firstDialWait; ; attempt, wait = attempt+1, 2*wait {
		conn, err := c.dialWebSocket(ctx, address, s.ID())
		if err == nil || attempt == dialAttempts || !dialAgain(err) {
			return conn, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

// dialURL returns the address including the token, which must not be shown. The
// token gives access to the machine, so it is never sent in the clear if the
// API itself is accessed by https.
func (i *Interactive) dialURL(apiScheme string) (string, error) {
	u, err := url.Parse(i.URL)
	if err != nil || u.Host == "" {
		// The address itself may contain secrets.
		return "", errors.New("the API's address of the terminal is malformed")
	}
	switch u.Scheme {
	case "ws", "wss", "http", "https":
	default:
		return "", errors.New("the API's address of the terminal is not that of a WebSocket")
	}
	if apiScheme == "https" && u.Scheme != "wss" && u.Scheme != "https" {
		return "", errors.New("the API's address of the terminal is not encrypted")
	}
	query := u.Query()
	query.Set("token", i.Token)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// dialWebSocket connects once. Its errors contain neither the address nor the
// token.
func (c *Client) dialWebSocket(ctx context.Context, address, session string) (*websocket.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, resp, err := websocket.Dial(limited, address, &websocket.DialOptions{HTTPClient: &http.Client{
		Transport: c.http.Transport,
		// A redirect would leak the token in the Referer header.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, &RequestError{Operation: openTerminal, SessionID: session, Err: api.ContextError(ctx)}
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		e := &APIError{Operation: openTerminal, Status: resp.StatusCode, SessionID: session, ContentType: resp.Header.Get("Content-Type")}
		var answer wire.ErrorAnswer
		body, _ := io.ReadAll(resp.Body) // at most a kilobyte, in memory
		if json.Unmarshal(body, &answer) == nil {
			e.Code, e.Message = c.secrets.Text(answer.Error.Code), c.secrets.Text(answer.Error.Message)
		}
		e.refused = e.failure().Refused() // nothing runs before the connection stands
		return nil, e
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the address
	}
	return nil, &RequestError{Operation: openTerminal, SessionID: session, Err: c.secrets.Error(err)}
}

// dialAgain reports whether connecting may succeed if retried.
func dialAgain(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if e, ok := errors.AsType[*APIError](err); ok {
		return e.failure().Transient() // nothing runs before the connection stands
	}
	return true
}
