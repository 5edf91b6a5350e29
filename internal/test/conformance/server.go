package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

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

	logged *Entry // the entry that is logged in its place
}

// jsonBody returns the decoded JSON body of a request, if it has one.
func (e *Entry) jsonBody() (object, bool) {
	body, _ := e.Body.(object)
	m, ok := body["json"].(object)
	return m, ok
}

// Server plays the script of one scenario and logs the requests.
type Server struct {
	scenario *Scenario
	want     Recording // what the official SDK did

	mu     sync.Mutex
	script []*slot
	more   []*slot  // exchanges of a departure
	step   int      // the running step
	log    []*Entry // requests as the official SDK would make them, by the rules
	raw    []*Entry // as received
	memory
	used    []string // names of rules
	held    []*Entry
	omitted map[*Exchange]bool // exchanges that only the official SDK uses
	added   int                // requests that only the official SDK makes
}

type slot struct {
	Exchange
	left int
}

func newServer(script []Exchange, scenario *Scenario, want Recording) *Server {
	s := &Server{scenario: scenario, want: want, omitted: map[*Exchange]bool{}}
	s.memory = memory{
		outputs: map[string][]json.RawMessage{}, logs: map[string][]json.RawMessage{}, known: map[string]object{},
		doubted: map[string]*slot{}, allowed: map[string]bool{}, lookups: map[string]*Exchange{},
	}
	for _, ex := range script {
		times := 1
		if ex.Times != nil {
			times = *ex.Times
		}
		s.script = append(s.script, &slot{ex, times})
	}
	return s
}

// unused names the exchanges of the script that were not requested, and counts
// those that only the official SDK requests.
func (s *Server) unused() (out []string, omitted int) {
	for _, sl := range s.script {
		if sl.left > 0 || s.omitted[&sl.Exchange] {
			out = append(out, cmp.Or(sl.On, "(any)"))
		}
		if sl.left == 0 && s.omitted[&sl.Exchange] {
			omitted++
		}
	}
	return out, omitted
}

// count is the number of requests so far.
func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log)
}

// begin sets the running step.
func (s *Server) begin(step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step = step
	clear(s.allowed)
	clear(s.doubted)
}

// finish ends the held exchanges that the client has not closed.
func (s *Server) finish() {
	for _, e := range s.held {
		s.closed(e, false)
	}
}

// ServeHTTP responds to one request according to the script.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	entry := s.entry(r, body)
	ex := s.take(entry)
	if ex == nil {
		text := `{"error":{"code":"wire_unscripted","message":"wire: unscripted request"}}`
		ex = &Exchange{Status: http.StatusTeapot, JSON: json.RawMessage(text), Headers: object{"x-wire": "wire: unscripted request"}}
	}
	s.send(w, r, ex, entry)
}

// closed records how a held exchange has ended, in the request and in the entry that is
// logged in its place. Only the first call counts.
func (s *Server) closed(e *Entry, byClient bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range []*Entry{e, e.logged} {
		if e != nil && e.Closed == nil {
			e.Closed = &byClient
		}
	}
}

var ownProgram = regexp.MustCompile(`"command":"env","args":\["-i","-S","[^"]*",("(?:[^"\\]|\\.)*"),?`)

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
	// The SDK runs its own programs in an environment of their own.
	body = ownProgram.ReplaceAll(body, []byte(`"command":$1,"args":[`))
	// The tag by which a create recognizes its sandbox.
	body = regexp.MustCompile(`("go-sandbox-creation":"once-)[A-Z2-7]{26}"`).ReplaceAll(body, []byte(`$1"`))
	// The variable that marks the process of a command.
	body = regexp.MustCompile(`(sess_[^"/]*/)[A-Z2-7]{26}"`).ReplaceAll(body, []byte(`$1"`))
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

// take logs the request and returns its exchange. A request without one is set aside if a
// rule allows it; otherwise it is unscripted.
func (s *Server) take(e *Entry) *Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw = append(s.raw, e)
	rule, response := s.additional(e, s.running())
	list := s.likely(e)
	provided := slices.ContainsFunc(s.more, func(sl *slot) bool { return sl.left > 0 && sl.matches(e) })
	awaited := slices.ContainsFunc(list, func(r reading) bool { return s.officialMakes(r.Entry) })
	if rule != "" && !s.allowed[question(e)+rule] && !provided && !awaited {
		if rule == "logs-end-confirmed" && present(response.JSON) { // it shows the command's end
			clear(s.allowed)
			s.recordObject(e, 0, response.JSON)
		}
		return s.setAside(e, response, rule)
	}
	if ex, ok := s.steps(e); ok {
		return ex
	}
	for _, r := range list {
		ex := s.match(r.Entry)
		if ex == nil {
			continue
		}
		s.log = append(s.log, r.Entry)
		clear(s.allowed)
		if e.logged = r.Entry; ex.Hold {
			s.held = append(s.held, e)
		}
		s.use(r.rules...)
		s.remember(ex, e)
		return r.response(ex)
	}
	e.Unscripted = true
	s.log = append(s.log, e)
	return nil
}

// setAside sets a request aside under a rule.
func (s *Server) setAside(e *Entry, response *Exchange, rule string) *Exchange {
	if rule == "doubtful-answers-asked-again" {
		s.doubted[question(e)].left--
		clear(s.allowed)
	} else {
		s.allowed[question(e)+rule] = true
	}
	e.Unscripted = true
	s.use(rule)
	return response
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
	if s.scenario.anyOrder() && (ex.Status == http.StatusGone || ex.Status == http.StatusUnprocessableEntity) {
		// Calls that get this refusal must be in flight together: a call that begins after
		// another was refused does not use the session.
		time.Sleep(time.Millisecond)
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
		all := ex.responseBody()
		_, _ = w.Write(all[:min(*ex.CutAfterBytes, len(all))])
		flush()
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
	if ex.Hold {
		<-gone.Done()
	}
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
