package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// holdLimit is how long a held exchange stays open unless it is closed.
const holdLimit = 4 * time.Second

// Entry is one request in the log of a [Server].
type Entry struct {
	Method     string            `json:"method"`
	Path       string            `json:"path"`
	Query      []any             `json:"query"`
	Headers    map[string]string `json:"headers"`
	UA         bool              `json:"ua"`
	Agent      *string           `json:"agent,omitempty"`
	Body       any               `json:"body"`
	Closed     *bool             `json:"clientClosed,omitempty"`
	Unscripted bool              `json:"unscripted,omitempty"`
}

// jsonBody returns the decoded JSON body of a request, if it has one.
func (e *Entry) jsonBody() (object, bool) {
	body, _ := e.Body.(object)
	m, ok := body["json"].(object)
	return m, ok
}

// Server plays the script of one scenario and logs the requests.
type Server struct {
	opts    ServerOptions
	sending sync.WaitGroup

	mu     sync.Mutex
	script []*slot
	taken  chan struct{} // closed when the next exchange is taken
	step   int           // the running step
	log    []*Entry      // as the official SDK would make them, as far as rules allow
	raw    []*Entry      // as received
	memory
	used   []string // names of rules
	held   []*Entry
	logged map[*Entry]*Entry // what is logged in place of a request
}

// ServerOptions configure a [Server] besides its script.
type ServerOptions struct {
	// Rules may be nil. With rules, Steps are those of the scenario and Want is
	// what the official SDK did.
	Rules Rules
	Steps []Step
	Want  *Recording
	// AnyOrder says that calls run at the same time.
	AnyOrder bool
}

type slot struct {
	Exchange
	left int
}

func newServer(script []Exchange, opts ServerOptions) *Server {
	s := &Server{opts: opts, taken: make(chan struct{}), logged: map[*Entry]*Entry{}}
	s.memory = memory{map[string][]json.RawMessage{}, map[string][]json.RawMessage{}, map[string]object{}, map[string]*Exchange{}, map[string]*slot{}, map[string]bool{}, map[string]bool{}, map[string]int{}, map[string]bool{}, map[string]bool{}}
	for _, ex := range script {
		times := 1
		if ex.Times != nil {
			times = *ex.Times
		}
		s.script = append(s.script, &slot{ex, times})
	}
	return s
}

// unused names the exchanges of the script that were not requested.
func (s *Server) unused() []string {
	var out []string
	for _, sl := range s.script {
		if sl.left > 0 {
			out = append(out, cmp.Or(sl.On, "(any)"))
		}
	}
	return out
}

// count is the number of requests so far.
func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log)
}

// left is the number of held exchanges that the client has closed.
func (s *Server) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.held {
		if e.Closed != nil && *e.Closed {
			n++
		}
	}
	return n
}

// begin says which step is the running one.
func (s *Server) begin(step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step = step
	clear(s.allowed)
	clear(s.doubted)
}

// finish ends the held exchanges that the client has not closed. Those that it has
// closed according to the recording are noticed when the machine comes to it.
func (s *Server) finish() {
	wanted := 0
	for _, r := range s.opts.Want.Requests {
		if closed, _ := r.(object)["clientClosed"].(bool); closed {
			wanted++
		}
	}
	for deadline := time.Now().Add(holdLimit / 2); s.left() < wanted && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	s.mu.Lock()
	held := slices.Clone(s.held)
	s.mu.Unlock()
	for _, e := range held {
		s.closed(e, false)
	}
}

// ServeHTTP responds to one request according to the script.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away during the response
	}
	entry := s.entry(r, body)
	s.sending.Add(1)
	defer s.sending.Done()
	ex := s.lock(entry)
	if ex == nil {
		ex = s.take(entry)
	}
	if ex == nil {
		text := `{"error":{"code":"wire_unscripted","message":"wire: unscripted request"}}`
		ex = &Exchange{Status: http.StatusTeapot, JSON: json.RawMessage(text), Headers: object{"x-wire": "wire: unscripted request"}}
	}
	s.send(w, r, ex, entry)
}

// closed notes, once, how a held exchange has ended: in the request, and in what
// was logged in its place.
func (s *Server) closed(e *Entry, byClient bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range []*Entry{e, s.logged[e]} {
		if e != nil && e.Closed == nil {
			e.Closed = &byClient
		}
	}
}

func (s *Server) entry(r *http.Request, body []byte) *Entry {
	path, query, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(r.Host, "127.0.0.1:") && (r.Host != "vercel.com" || !strings.HasPrefix(path, "/api/")) {
		path = "/__" + r.Host + path
	}
	headers := map[string]string{}
	for _, h := range []string{"authorization", "content-type", "x-cwd"} {
		if v := r.Header.Values(h); len(v) > 0 {
			headers[h] = strings.Join(v, ", ")
		}
	}
	return &Entry{
		Method: r.Method, Path: CanonicalPath(path), Query: formPairs(query), Headers: headers,
		UA: strings.HasPrefix(r.UserAgent(), "go-vercel-sandbox/"), Agent: agentOf(r.UserAgent()),
		Body: decodeBody(body, r.Header.Get("Content-Type")),
	}
}

// agentOf returns the agent part of a user agent, or nil.
func agentOf(userAgent string) *string {
	_, rest, ok := strings.Cut(userAgent, " agent/")
	if !ok {
		return nil
	}
	if end := strings.LastIndex(rest, " ("); end >= 0 {
		rest = rest[:end]
	}
	return &rest
}

// take logs the request and finds its exchange. A request without one is set
// aside if a rule allows it, and is unscripted otherwise.
func (s *Server) take(e *Entry) *Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unmark(e)
	s.raw = append(s.raw, e)
	rule := s.opts.Rules.unscripted(e, s.ops(), func(r *Rule) bool { return s.may(e, r) })
	asked := question(e)
	if rule != nil {
		asked += rule.Rule
	}
	if rule != nil && !s.allowed[asked] && !s.awaited(e) && !s.awaited(s.opts.Rules.plainLook(e)) {
		if rule.Answer == "ended" && !strings.HasSuffix(e.Path, "/logs") {
			clear(s.allowed)
			s.ending[path.Base(e.Path)] = true
			s.told[path.Base(e.Path)] = true
		}
		return s.allow(e, rule, asked)
	}
	if ex := s.append(e); ex != nil {
		return ex
	}
	if ex, ok := s.steps(e); ok {
		return ex
	}
	if alone := s.withoutOutput(e); alone != nil {
		return s.started(alone)
	}
	for _, t := range append(s.likely(e, s.opts.Rules.translate(e, s.running())), translated{entry: e}) {
		ex := s.match(t.entry)
		if ex == nil {
			continue
		}
		s.log = append(s.log, t.entry)
		clear(s.allowed)
		if t.entry != e {
			s.logged[e] = t.entry
		}
		if ex.Hold {
			s.held = append(s.held, e)
		}
		s.use(t.rules...)
		s.remember(ex, e)
		if t.response != nil && ex.NDJSON != nil {
			ex = new(*ex)
			ex.NDJSON = t.response(ex.NDJSON)
		}
		return ex
	}
	if rule != nil && rule.Answer != "" && !s.allowed[asked] { // the one that is awaited was made before
		return s.allow(e, rule, asked)
	}
	e.Unscripted = true
	s.log = append(s.log, e)
	return nil
}

// allow sets a request aside under a rule, and returns its response.
func (s *Server) allow(e *Entry, rule *Rule, asked string) *Exchange {
	ex := s.ruled(e, rule)
	if rule.Answer == "the same" {
		s.doubted[question(e)].left--
		clear(s.allowed)
	} else {
		s.allowed[asked] = true
	}
	e.Unscripted = true
	s.use(rule.Rule)
	return ex
}

func (s *Server) use(rules ...string) {
	for _, r := range rules {
		if !slices.Contains(s.used, r) {
			s.used = append(s.used, r)
		}
	}
}

func (s *Server) match(e *Entry) *Exchange {
	for _, sl := range s.script {
		if sl.left > 0 && sl.matches(e) {
			sl.left--
			close(s.taken)
			s.taken = make(chan struct{})
			return &sl.Exchange
		}
	}
	return nil
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, ex *Exchange, e *Entry) {
	gone := r.Context()
	if ex.Hold {
		defer func() {
			if gone.Err() != nil {
				s.closed(e, true)
			}
		}()
	}
	if s.opts.AnyOrder && refusesSession(ex) {
		s.awaitRefused(gone, e)
	}
	if !pause(gone, millis(ex.DelayMs)) {
		return
	}
	if ex.Drop {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
		return
	}
	header, pieces := ex.response()
	maps.Copy(w.Header(), header)
	w.WriteHeader(cmp.Or(ex.Status, http.StatusOK))
	flush := func() { _ = http.NewResponseController(w).Flush() }

	if ex.CutAfterBytes != nil {
		flush()
		all := ex.content()
		_, _ = w.Write(all[:min(*ex.CutAfterBytes, len(all))])
		flush()
		pause(gone, 40*time.Millisecond) // let the bytes arrive before the connection is closed
		panic(http.ErrAbortHandler)
	}
	if ex.Chunks == nil && !ex.Hold {
		for _, p := range pieces {
			_, _ = w.Write(p.data)
		}
		return
	}
	flush()
	for _, p := range pieces {
		if !pause(gone, p.delay) {
			return
		}
		_, _ = w.Write(p.data)
		flush()
	}
	if ex.Hold && pause(gone, holdLimit) {
		s.closed(e, false)
	}
}

// refusesSession reports whether the response says that a session is gone.
func refusesSession(ex *Exchange) bool {
	return ex.Status == http.StatusGone || ex.Status == http.StatusUnprocessableEntity
}

// awaitRefused waits, for at most holdLimit, until all calls that the script
// refuses because their session is gone have arrived, including that of e. They
// are made at the same time; one that began after another was refused would
// know about that and not ask the session.
func (s *Server) awaitRefused(ctx context.Context, e *Entry) {
	ctx, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	session := sessionPath(e.Path)
	for {
		s.mu.Lock()
		missing := slices.ContainsFunc(s.script, func(sl *slot) bool {
			_, path, _ := strings.Cut(sl.On, " ")
			return sl.left > 0 && refusesSession(&sl.Exchange) && sessionPath(path) == session
		})
		taken := s.taken
		s.mu.Unlock()
		if !missing {
			return
		}
		select {
		case <-taken:
		case <-ctx.Done():
			return
		}
	}
}

// sessionPath returns the path of the session that a call is made on.
func sessionPath(path string) string {
	before, after, _ := strings.Cut(path, "/sessions/")
	id, _, _ := strings.Cut(after, "/")
	return before + "/sessions/" + id
}

// pause waits, and reports whether the client is still there.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
