package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Interactive is the address of a terminal service; package terminal has ready
// terminals.
type Interactive struct {
	// URL is the address of a WebSocket.
	URL string `secret:"url"`
	// Token gives access to the machine like a login. It is sent in the query
	// of the URL, where it is visible to anything that logs the URLs of
	// requests. It is omitted when the value is printed, logged or marshaled.
	Token string `secret:"value"`
}

// Format prints the address without the token, for every verb.
func (i Interactive) Format(f fmt.State, verb rune) { redact.Struct(f, verb, i) }

// MarshalJSON omits the token.
func (i Interactive) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		URL string `json:"url"`
	}{redact.URL(i.URL)})
}

// OpenInteractive starts a terminal service and returns its address.
func (s *Session) OpenInteractive(ctx context.Context) (*Interactive, error) {
	var response wire.InteractiveResponse
	if err := s.do(ctx, api.OpenInteractive, struct{}{}, &response); err != nil {
		return nil, err
	}
	return &Interactive{URL: response.URL, Token: response.Token}, nil
}

// OpenInteractive starts a terminal service, resuming the sandbox if it is
// stopped, and returns its address. Most programs open a terminal by package
// terminal instead.
func (s *Sandbox) OpenInteractive(ctx context.Context) (*Interactive, error) {
	return withResume(ctx, s, func(cur *Session) (*Interactive, error) { return cur.OpenInteractive(ctx) })
}

func init() { api.DialTerminal = dialTerminal }

func dialTerminal(ctx context.Context, on any, dial api.TerminalDialer) (session, cwd string, err error) {
	cur, err := withResume(ctx, on.(*Sandbox), func(cur *Session) (*Session, error) { return cur, cur.dialTerminal(ctx, dial) })
	if err != nil {
		return "", "", err
	}
	return cur.ID(), cur.cwd(), nil
}

// dialTerminal opens the terminal service and connects to it.
func (s *Session) dialTerminal(ctx context.Context, dial api.TerminalDialer) error {
	const operation = "open terminal"
	c, err := enter(ctx, s)
	if err != nil {
		return err
	}
	where, err := s.OpenInteractive(ctx)
	if err != nil {
		return err
	}
	c.secrets.Add(where.Token)
	err = dial(ctx, c.http.Transport, where.URL, where.Token, c.base.Scheme == "https")
	if refused, ok := errors.AsType[*api.TerminalRefusal](err); ok {
		e := &APIError{Operation: operation, Status: refused.Status, SessionID: s.ID(), ContentType: refused.ContentType}
		var resp wire.ErrorResponse
		if json.Unmarshal(refused.Body, &resp) == nil {
			e.Code, e.Message = c.secrets.Text(resp.Error.Code), c.secrets.Text(resp.Error.Message)
		}
		e.kind = api.KindOf(api.OpenInteractive.Name, e.Status, e.Code, e.Message)
		e.refused = errors.Is(e, ErrStopped) // nothing runs before the connection is made
		return e
	}
	if err != nil {
		return &RequestError{operation: operation, session: s.ID(), Err: c.secrets.Error(err)}
	}
	return nil
}
