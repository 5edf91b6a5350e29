package modeltest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"

	"github.com/go-vercel/sandbox/auth"
)

// network is the transport and the credentials provider of the client with faults.
type network struct {
	next  http.RoundTripper
	creds auth.Credentials
	mu    sync.Mutex
	armed *activeFault // nil if no fault is in effect
}

// activeFault is a fault in effect, with its state.
type activeFault struct {
	Fault
	event func()        // causes a fault of the sandbox or the caller
	left  int           // the number of matching requests before the fault
	done  bool          // the fault has happened
	req   *http.Request // the request to which the fault happened
	real  int           // the status of the lost response
	boxes int           // the number of earlier responses about a sandbox
	gone  bool          // the API has refused an earlier request, and the client has repeated the call
	first *http.Request // the lost upload
	half  []byte        // half of the body of the lost upload
	held  *http.Request // a request that is delivered before the next one
}

// arm puts a fault into effect. The method disarm removes it.
func (n *network) arm(f Fault, event func()) *activeFault {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.armed = &activeFault{Fault: f, event: event, left: f.Nth - 1}
	return n.armed
}

// triggerNow triggers a fault that does not depend on a request.
func (n *network) triggerNow() {
	n.mu.Lock()
	s := n.armed
	n.mu.Unlock()
	s.done = true
	s.event()
}

func (n *network) disarm() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.armed = nil
}

// fits reports whether a request belongs to a class.
func (c Class) fits(req *http.Request) bool {
	path, post := req.URL.Path, req.Method == http.MethodPost
	_, id, command := strings.Cut(path, "/cmd/")
	switch c {
	case Any:
		return true
	case Cmd:
		return post && strings.HasSuffix(path, "/cmd")
	case Logs:
		return post && strings.HasSuffix(path, "/cmd") || strings.HasSuffix(path, "/logs")
	case Look:
		return !post && command && !strings.Contains(id, "/")
	case Signal:
		return strings.HasSuffix(path, "/kill")
	case Stdin:
		return strings.HasSuffix(path, "/stdin")
	case Put:
		return strings.HasSuffix(path, "/fs/write")
	case Fetched:
		return strings.HasSuffix(path, "/fs/read")
	case Box:
		_, name, named := strings.Cut(path, "/v2/sandboxes/")
		return req.Method == http.MethodGet && named && !strings.Contains(name, "/")
	case Born:
		return post && strings.HasSuffix(path, "/sandboxes")
	case Gone:
		return req.Method == http.MethodDelete
	}
	return false
}

// Credentials fails once if the fault is Missing, as if another program replaces the
// token's file.
func (n *network) Credentials(context.Context) (auth.Credentials, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.armed; s != nil && s.On == Creds && !s.done {
		if s.left--; s.left < 0 {
			s.done = true
			return auth.Credentials{}, errMissing
		}
	}
	return n.creds, nil
}

var errMissing = &fs.PathError{Op: "open", Path: "/run/secrets/token", Err: syscall.ENOENT}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	n.mu.Lock()
	s := n.armed
	hit := false
	var again *http.Request
	switch {
	case s == nil || s.On == Creds:
	case !s.done && s.On.fits(req):
		if s.left--; s.left < 0 {
			s.done, s.req, hit = true, req, true
		}
	case s.first != nil && s.half != nil && s.first.URL.Path == req.URL.Path:
		again = s.first.Clone(context.WithoutCancel(s.first.Context()))
		again.Body, again.ContentLength, again.GetBody = io.NopCloser(bytes.NewReader(s.half)), int64(len(s.half)), nil
		s.half = nil
	}
	var held *http.Request
	if s != nil {
		held, s.held = s.held, nil
	}
	n.mu.Unlock()
	if held != nil {
		if resp, err := n.next.RoundTrip(held); err == nil {
			resp.Body.Close() // no caller waits for this response
			n.mu.Lock()
			s.real = resp.StatusCode
			n.mu.Unlock()
		}
	}
	if hit {
		return n.apply(s, req)
	}
	resp, err := n.next.RoundTrip(req)
	if again != nil {
		if stale, staleErr := n.next.RoundTrip(again); staleErr == nil {
			_, _ = io.Copy(io.Discard, stale.Body)
			stale.Body.Close()
		}
	}
	if s != nil && err == nil {
		n.mu.Lock()
		if !s.done && Box.fits(req) {
			s.boxes++
		}
		s.gone = s.gone || !s.done && resp.StatusCode == http.StatusGone
		n.mu.Unlock()
	}
	return resp, err
}

// respond returns a response of a server other than the API.
func respond(req *http.Request, status int, kind, body string) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func (n *network) apply(s *activeFault, req *http.Request) (*http.Response, error) {
	switch s.What {
	case None:
		return n.next.RoundTrip(req)
	case Refuse:
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, errRefused
	case Throttle:
		return respond(req, http.StatusTooManyRequests, "application/json", `{"error":{"code":"rate_limited","message":"slow down"}}`)
	case Odd:
		return respond(req, http.StatusForbidden, "text/html", "<html>Access denied</html>")
	case Late:
		if Put.fits(req) {
			body, err := io.ReadAll(req.Body)
			req.Body.Close()
			if err != nil {
				return nil, err
			}
			n.mu.Lock()
			s.first, s.half = req, body[:len(body)/2]
			n.mu.Unlock()
			return nil, syscall.ECONNRESET
		}
		return n.next.RoundTrip(req)
	case Lost, Gateway:
		resp, err := n.next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		resp.Body.Close()
		n.mu.Lock()
		s.real = resp.StatusCode
		n.mu.Unlock()
		if s.What == Lost {
			return nil, syscall.ECONNRESET
		}
		return respond(req, http.StatusBadGateway, "text/html", "<html>Bad gateway</html>")
	case Page:
		return n.page(s, req)
	case Held, Double, Crossed:
		return n.mislead(s, req)
	case Cut, Clean:
		return n.endEarly(s, req, func() error {
			if s.What == Clean {
				return io.EOF
			}
			return syscall.ECONNRESET
		})
	}
	// The fault affects the sandbox or the caller, not the request.
	switch s.When {
	case Before:
		s.event()
		return n.next.RoundTrip(req)
	case Within:
		return n.endEarly(s, req, func() error {
			s.event()
			return syscall.ECONNRESET
		})
	}
	resp, err := n.next.RoundTrip(req)
	if err == nil && Box.fits(req) {
		n.mu.Lock()
		s.boxes++
		n.mu.Unlock()
	}
	s.event()
	switch {
	case err != nil:
	case s.What == Rival && s.On == Gone: // the response to the delete is lost, too
		resp.Body.Close()
		return nil, syscall.ECONNRESET
	case req.Context().Err() != nil: // the caller's context has ended
		resp.Body.Close()
		return nil, req.Context().Err()
	}
	return resp, err
}

// pages are responses of a gateway, in place of the API's.
var pages = []struct {
	status     int
	kind, body string
}{
	{410, "text/html", "<html>Gone</html>"},
	{200, "text/html", "<html>Please accept our terms</html>"},
	{404, "text/html", "<html>Not found</html>"},
	{200, "application/json", ""},
	{409, "text/html", "<html>Conflict</html>"},
	{200, "application/json", "null"},
	{401, "text/html", "<html>Sign in</html>"},
	{422, "application/json", `{"message":"no"}`},
	{200, "application/x-ndjson", "<html>Please accept our terms</html>"},
	{429, "text/html", "<html>Slow down</html>"},
}

// page returns a gateway's response. The gateway may have forwarded the request before.
func (n *network) page(s *activeFault, req *http.Request) (*http.Response, error) {
	p := pages[s.At%len(pages)]
	if Cmd.fits(req) && s.At%2 == 0 {
		p = pages[0] // 410, like the API's response for an ended session, after which the client repeats a start
	}
	if s.When == Before {
		return respond(req, p.status, p.kind, p.body)
	}
	resp, err := n.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	n.mu.Lock()
	s.real = resp.StatusCode
	n.mu.Unlock()
	return respond(req, p.status, p.kind, p.body)
}

// mislead delivers a request late or twice, or returns the response that belongs to another
// request.
func (n *network) mislead(s *activeFault, req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		body, err = io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	copied := func(body []byte) *http.Request {
		again := req.Clone(context.WithoutCancel(req.Context()))
		again.Body, again.ContentLength, again.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		return again
	}
	if s.What == Held {
		n.mu.Lock()
		s.held = copied(body)
		n.mu.Unlock()
		return nil, syscall.ECONNRESET
	}
	first, err := n.next.RoundTrip(copied(body))
	if err != nil {
		return nil, err
	}
	first.Body.Close()
	if s.What == Crossed {
		body = bytes.Replace(body, []byte(`"command":"sh"`), []byte(`"command":"true"`), 1)
		other := copied(body)
		query := other.URL.Query()
		query.Set("cmdId", "other-"+query.Get("cmdId"))
		other.URL.RawQuery = query.Encode()
		return n.next.RoundTrip(other)
	}
	return n.next.RoundTrip(copied(body))
}

// endEarly sends a request and ends its response early.
func (n *network) endEarly(s *activeFault, req *http.Request, end func() error) (*http.Response, error) {
	resp, err := n.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	s.real = resp.StatusCode
	n.mu.Unlock()
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
	// End a stream after its first record at the earliest. Otherwise the client would treat
	// the whole response as lost, which is another fault.
	records := 0
	if resp.Header.Get("Content-Type") == "application/x-ndjson" {
		records = 1
		if s.When == Within && s.What != Cut && s.What != Clean {
			records = 2 // the second record shows that the program runs
		}
	}
	resp.Body = &endingBody{ReadCloser: resp.Body, after: s.At, records: records, end: end}
	return resp, nil
}

// endingBody is a body that ends early. It contains at least a number of bytes and of records.
type endingBody struct {
	io.ReadCloser
	after, records int
	over           error
	end            func() error
}

func (e *endingBody) Read(p []byte) (int, error) {
	if e.over == nil && e.after <= 0 && e.records <= 0 {
		e.over = e.end()
	}
	if e.over != nil {
		return 0, e.over
	}
	limit := len(p)
	if e.records <= 0 {
		limit = min(limit, e.after)
	}
	n, err := e.ReadCloser.Read(p[:limit])
	for i, b := range p[:n] {
		e.after--
		if b == '\n' {
			e.records--
		}
		if e.after <= 0 && e.records <= 0 {
			e.over = e.end()
			return i + 1, nil
		}
	}
	return n, err
}

// hasHit reports whether the fault has happened to a request of a class.
func (n *network) hasHit(s *activeFault, c Class) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return s.done && (s.req == nil || c.fits(s.req))
}

var errHook = errors.New("the hook has failed")
