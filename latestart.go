package sandbox

import (
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

// lateLimit is how long a request that was given up is expected to arrive
// nevertheless.
const lateLimit = 5 * time.Minute

// lateStarts remembers requests to resume sandboxes whose responses were lost.
// A session that such a request has started, even after a retry was resped or
// the caller has given up, would otherwise be taken for somebody else's, whose
// OnResume has run. It is safe for concurrent use.
type lateStarts struct {
	mu   sync.Mutex
	lost map[string]lateStart // by project and name
}

type lateStart struct {
	since time.Time // when the first of the requests began
	// handled is the last session that was taken for one of ours.
	handled string
}

// add records that the response to a request that began at the given time was
// lost.
func (l *lateStarts) add(project, name string, begin time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.lost = map[string]lateStart{}
	}
	for key, s := range l.lost {
		if time.Since(s.since) > lateLimit {
			delete(l.lost, key)
		}
	}
	key := project + "/" + name
	if _, known := l.lost[key]; !known {
		l.lost[key] = lateStart{since: begin}
	}
}

// started reports whether the session that a response describes counts as
// started by this client: by this request or by one whose response was lost.
// That is so once for each session whose response is not lost.
func (l *lateStarts) started(project, name string, resp *wire.SandboxResponse, req *api.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := project + "/" + name
	s, ok := l.lost[key]
	session := &resp.Session
	if !ok || session.ID == "" {
		return resp.Resumed
	}
	begin := serverTime(req).Add(-time.Since(s.since) - clockSlack)
	ours := resp.Resumed || time.Since(s.since) <= lateLimit && session.ID != s.handled &&
		Status(session.Status) == StatusRunning && session.CreatedAt.After(begin)
	if ours {
		s.handled = session.ID
		l.lost[key] = s
	}
	return ours
}
