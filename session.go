package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Session is one run of a sandbox's virtual machine. Its methods do the same as
// those of [Sandbox], but on this particular session: if it is stopped, they do
// not resume the sandbox, and the error matches [ErrStopped].
//
// A Session is safe for concurrent use.
type Session struct {
	bound
	data   wire.Session
	routes []wire.Route
	// policy is the network policy of a handle decoded from JSON, which
	// contains only the public form.
	policy json.RawMessage
	// noMoreTime is set once the plan has refused an extension.
	noMoreTime atomic.Bool
}

func newSession(c *Client, data wire.Session, routes []wire.Route) *Session {
	return &Session{bound: bound{c: c}, data: data, routes: routes}
}

var errZeroSession = fmt.Errorf("sandbox: %w: the Session was not made by a Sandbox or from JSON", ErrInvalid)

func (s *Session) client() (*Client, error) {
	if s == nil {
		return nil, errZeroSession
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data.ID == "" {
		return nil, errZeroSession
	}
	return s.clientLocked()
}

func (s *Session) wire() wire.Session {
	if s == nil {
		return wire.Session{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data
}

func (s *Session) wireRoutes() []wire.Route {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.routes
}

// set stores a response. It keeps the session and routes that the response omits.
func (s *Session) set(data wire.Session, routes []wire.Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data.ID != "" {
		s.data, s.policy = data, nil
	}
	if routes != nil {
		s.routes = routes
	}
}

// ID returns the session's ID.
func (s *Session) ID() string { return s.wire().ID }

// Info returns the session's description from the API's last response. It makes
// no request; call [Session.Refresh] first for the current state.
func (s *Session) Info() SessionInfo {
	if s == nil {
		return SessionInfo{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info := sessionInfo(&s.data)
	if info.NetworkPolicy == nil && s.policy != nil {
		info.NetworkPolicy = new(NetworkPolicy)
		_ = json.Unmarshal(s.policy, info.NetworkPolicy) // can't fail: it was decoded before
	}
	return info
}

func (s *Session) status() Status { return Status(s.wire().Status) }

// cwd returns the directory in which relative paths are resolved.
func (s *Session) cwd() string { return s.wire().Cwd }

// Routes returns the public addresses of the exposed ports.
func (s *Session) Routes() []Route { return routesFromWire(s.wireRoutes()) }

// URL returns the public address of an exposed port. If the port is not
// exposed, the error matches [ErrNoRoute]. It makes no request.
func (s *Session) URL(port int) (string, error) {
	if s == nil {
		return "", errZeroSession
	}
	exposed := []int{}
	for _, r := range s.Routes() {
		if r.Port == port {
			return r.URL, nil
		}
		exposed = append(exposed, r.Port)
	}
	return "", noRoute(port, exposed...)
}

// Format prints the session's ID and status, for every verb.
func (s *Session) Format(f fmt.State, verb rune) {
	w := s.wire()
	redact.String(f, verb, fmt.Sprintf("session %s (%s)", w.ID, w.Status))
}

// LogValue implements [slog.LogValuer].
func (s *Session) LogValue() slog.Value {
	w := s.wire()
	return slog.GroupValue(slog.String("id", w.ID), slog.String("status", w.Status))
}

// do performs an operation on this session.
func (s *Session) do(ctx context.Context, op *api.Op, body, out any) error {
	c, err := enter(ctx, s)
	if err != nil {
		return err
	}
	return c.do(ctx, &api.Request{Op: op, Path: []string{s.ID()}, Body: body}, out)
}

// update performs an operation whose response describes the session.
func (s *Session) update(ctx context.Context, op *api.Op, body any) error {
	var response wire.SessionResponse
	if err := s.do(ctx, op, body, &response); err != nil {
		return err
	}
	s.set(response.Session, response.Routes)
	return nil
}

// TimeLeft returns the time until the session's timeout, as last known. It is negative
// after the timeout, and zero if the session has ended. It uses the service's clock, which
// responses report in seconds, and is never more than the timeout. It makes no request;
// call [Session.Refresh] first if other clients may have moved the end.
func (s *Session) TimeLeft() time.Duration {
	w := s.wire()
	switch Status(w.Status) {
	case StatusPending, StatusRunning:
	default:
		return 0
	}
	now := time.Now()
	if c, err := s.client(); err == nil && c.api != nil {
		now = c.api.Now()
	}
	return min(timeoutAt(&w).Sub(now), time.Duration(w.Timeout))
}

// timeoutAt returns when a session times out.
func timeoutAt(w *wire.Session) time.Time {
	begun := w.StartedAt.Time
	if begun.IsZero() {
		begun = w.CreatedAt.Time
	}
	return begun.Add(time.Duration(w.Timeout))
}

// Refresh fetches the session's current state, with one request.
func (s *Session) Refresh(ctx context.Context) error { return s.update(ctx, api.GetSession, nil) }

// pollInterval is the pause between checks of a session that is changing its
// state.
const pollInterval = 500 * time.Millisecond

// ending reports whether the session was ending when the API last described it.
func (s *Session) ending() bool {
	status := s.status()
	return status == StatusStopping || status == StatusSnapshotting
}

// pollWhile waits until the session has left the given states. It always makes a request,
// because the known state may be outdated.
func (s *Session) pollWhile(ctx context.Context, states ...Status) error {
	c, err := enter(ctx, s)
	if err != nil {
		return err
	}
	for {
		if !api.Sleep(ctx, c.api.PollPause(api.GetSession, pollInterval)) {
			return &RequestError{operation: api.GetSession.Name, session: s.ID(), Err: api.ContextError(ctx)}
		}
		if err := s.Refresh(ctx); err != nil {
			return err
		}
		if !slices.Contains(states, s.status()) {
			return nil
		}
	}
}

// waitReady waits for a session that is starting.
func (s *Session) waitReady(ctx context.Context) error {
	if s.status() != StatusPending {
		return nil
	}
	if err := s.pollWhile(ctx, StatusPending); err != nil {
		return err
	}
	if status := s.status(); status == StatusFailed || status == StatusAborted {
		return fmt.Errorf("sandbox: session %s did not start: it is %s", s.ID(), status)
	}
	return nil
}

// isRefusal reports whether the API refused a call on this session before it had any
// effect. err must be the error of the call's own request. A wrapped error may come from a
// hook, or from a stream that broke after the call had taken effect.
func isRefusal(session *Session, err error) bool {
	e, ok := err.(*APIError) //nolint:errorlint // not a wrapped one
	return ok && e.refused && e.SessionID == session.ID()
}

// ExtendTimeout moves the end of the session by d, with one request. If the plan refuses,
// the error matches [ErrNoMoreTime] and says when the session ends.
func (s *Session) ExtendTimeout(ctx context.Context, d time.Duration) error {
	if _, err := enter(ctx, s); err != nil {
		return err
	}
	if err := checkDuration("d", d); err != nil {
		return err
	}
	err := s.update(ctx, api.ExtendTimeout, struct {
		Duration wire.Duration `json:"duration"`
	}{wire.Duration(d)})
	if e, ok := err.(*APIError); ok && e.kind == api.TimeLimit {
		return s.limitReached(err)
	}
	return err
}

// UpdateNetworkPolicy replaces the policy in effect, with one request, and
// returns it as the API understood it, with redacted header values.
func (s *Session) UpdateNetworkPolicy(ctx context.Context, policy *NetworkPolicy) (*NetworkPolicy, error) {
	if _, err := enter(ctx, s); err != nil {
		return nil, err
	}
	if policy == nil {
		return nil, invalid("policy", "is nil")
	}
	body, err := policy.toWire()
	if err != nil {
		return nil, err
	}
	if err := s.update(ctx, api.SetPolicy, body); err != nil {
		return nil, err
	}
	return s.Info().NetworkPolicy, nil
}

func (s *Session) names() (sandbox, session string) {
	w := s.wire()
	return w.SourceSandboxName, w.ID
}

// metadataJSON encodes the session like the JavaScript SDK: as the API's
// object, with the network policy in its public form.
func (s *Session) metadataJSON() (json.RawMessage, error) {
	data := s.wire()
	policy := s.Info().NetworkPolicy
	data.NetworkPolicy = nil
	plain, err := json.Marshal(data)
	if err != nil || policy == nil {
		return plain, err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(plain, &all); err != nil {
		return nil, err
	}
	if all["networkPolicy"], err = json.Marshal(policy); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// sessionFromJSON decodes what metadataJSON encodes.
func sessionFromJSON(data json.RawMessage, routes []wire.Route) (*Session, error) {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	policy := all["networkPolicy"]
	delete(all, "networkPolicy")
	plain, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	s := &Session{routes: routes}
	if err := json.Unmarshal(plain, &s.data); err != nil {
		return nil, err
	}
	if s.data.ID == "" {
		return nil, fmt.Errorf("sandbox: JSON is not a serialized session: id is missing")
	}
	if len(policy) > 0 && string(policy) != "null" {
		var p NetworkPolicy
		if err := json.Unmarshal(policy, &p); err != nil {
			return nil, err
		}
		s.policy = policy
	}
	return s, nil
}

func (s *Session) mkdir(ctx context.Context, path string) error {
	return s.do(ctx, api.MakeDir, struct {
		Path string `json:"path"`
	}{path}, nil)
}

// openFile opens a file for reading. The size is -1 if the API does not report
// it.
func (s *Session) openFile(ctx context.Context, path, cwd string) (io.ReadCloser, int64, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, 0, err
	}
	resp, err := c.stream(ctx, &api.Request{Op: api.ReadFile, Path: []string{s.ID()}, Body: struct {
		Path string `json:"path"`
		Cwd  string `json:"cwd,omitempty"`
	}{path, cwd}})
	if err != nil {
		return nil, 0, err
	}
	return resp.Body, resp.ContentLength, nil
}

// uploadTarGz unpacks a gzipped tar archive, whose names are relative to the
// root. open is called for each attempt.
func (s *Session) uploadTarGz(ctx context.Context, open func(cwd string) (io.ReadCloser, error)) (sent int64, err error) {
	c, err := enter(ctx, s)
	if err != nil {
		return 0, err
	}
	cwd := s.cwd()
	req := &api.Request{Op: api.WriteFiles, Path: []string{s.ID()}, Open: func() (io.ReadCloser, error) { return open(cwd) }, Header: http.Header{
		"Content-Type": {"application/gzip"}, "X-Cwd": {"/"},
	}}
	err = c.do(ctx, req, nil)
	return req.Sent, err
}

type serializedSession struct {
	Session json.RawMessage `json:"session"`
	Routes  []wire.Route    `json:"routes"`
}

// MarshalJSON encodes the handle in the JavaScript SDK's serialized form. It
// contains no secrets.
func (s *Session) MarshalJSON() ([]byte, error) {
	if s == nil {
		return nil, errZeroSession
	}
	data, err := s.metadataJSON()
	if err != nil {
		return nil, err
	}
	return json.Marshal(serializedSession{data, append([]wire.Route{}, s.wireRoutes()...)})
}

// UnmarshalJSON decodes a handle. It uses [DefaultClient] unless
// [Client.Bind] is called.
func (s *Session) UnmarshalJSON(data []byte) error {
	var in serializedSession
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	revived, err := sessionFromJSON(in.Session, in.Routes)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c, s.data, s.routes, s.policy = nil, revived.data, revived.routes, revived.policy
	return nil
}

// Interactive is the address of a terminal service. Most programs use package terminal
// instead.
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

// OpenInteractive starts a terminal service and returns its address. It resumes
// the sandbox if it is stopped. Most programs use package terminal instead.
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
