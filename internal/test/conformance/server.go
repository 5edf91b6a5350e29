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

	logged *Entry // the reading that the log contains in place of this entry
}

// jsonBody returns the decoded JSON body of a request, if it has one.
func (e *Entry) jsonBody() (object, bool) {
	body, _ := e.Body.(object)
	m, ok := body["json"].(object)
	return m, ok
}

// Server responds to requests according to the script of one scenario, and logs them.
type Server struct {
	scenario *Scenario
	want     Recording // the recording of the official SDK

	mu     sync.Mutex
	script []*slot
	more   []*slot  // the additional exchanges of a departure
	step   int      // the index of the running step
	log    []*Entry // the requests, in the form of the official SDK's where rules allow it
	raw    []*Entry // the requests as received
	memory
	used    []string // the names of the used rules
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

// unused returns the names of the exchanges in the script that this SDK has not requested, and
// the number of those that only the official SDK requests.
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

// count returns the number of requests so far.
func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log)
}

// begin sets the index of the running step.
func (s *Server) begin(step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step = step
	clear(s.allowed)
	clear(s.doubted)
}

// finish records that the client has not closed the remaining held exchanges.
func (s *Server) finish() {
	for _, e := range s.held {
		s.closed(e, false)
	}
}

// ServeHTTP responds to one request according to the script.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	entry := s.entry(r, body)
	ex := s.exchange(entry)
	if ex == nil {
		text := `{"error":{"code":"wire_unscripted","message":"wire: unscripted request"}}`
		ex = &Exchange{Status: http.StatusTeapot, JSON: json.RawMessage(text), Headers: object{"x-wire": "wire: unscripted request"}}
	}
	s.send(w, r, ex, entry)
}

// closed records whether the client has closed a held exchange, in the entry of the request and
// in the entry that the log contains instead. Later calls have no effect.
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
	// This SDK runs helper programs through env, which clears the environment. Remove env.
	body = ownProgram.ReplaceAll(body, []byte(`"command":$1,"args":[`))
	// Remove the random part of the tag that marks a sandbox during OnCreate.
	body = regexp.MustCompile(`("go-sandbox-creation":"once-)[A-Z2-7]{26}"`).ReplaceAll(body, []byte(`$1"`))
	// Remove the random part of the variable that marks the processes of a command.
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

// exchange logs a request and returns the exchange for it. If the script has none, a rule may
// allow the request. Otherwise exchange logs it as unscripted.
func (s *Server) exchange(e *Entry) *Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw = append(s.raw, e)
	rule, response := s.additional(e, s.running())
	list := s.orderedReadings(e)
	provided := slices.ContainsFunc(s.more, func(sl *slot) bool { return sl.left > 0 && sl.matches(e) })
	awaited := slices.ContainsFunc(list, func(r reading) bool { return s.officialMakes(r.Entry) })
	if rule != "" && !s.allowed[requestKey(e)+rule] && !provided && !awaited {
		if rule == "logs-end-confirmed" && present(response.JSON) { // the response shows the command's end
			clear(s.allowed)
			s.recordObject(e, 0, response.JSON)
		}
		return s.setAside(e, response, rule)
	}
	if ex, ok := s.splitUserScript(e); ok {
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

// setAside handles a request that a rule allows. It does not get into the log.
func (s *Server) setAside(e *Entry, response *Exchange, rule string) *Exchange {
	if rule == "doubtful-answers-asked-again" {
		s.doubted[requestKey(e)].left--
		clear(s.allowed)
	} else {
		s.allowed[requestKey(e)+rule] = true
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
		// Let the other calls of this session begin before one of them gets this refusal. A
		// call that begins after a refusal would not use the session anymore.
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

// pause waits. It returns false if the client closes the connection first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
