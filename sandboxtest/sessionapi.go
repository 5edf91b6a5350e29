package sandboxtest

import (
	"net/http"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

// session gives the session that the path names.
func (c *call) session() (*session, error) { return c.s.store.session(c.values[0]) }

func (c *call) getSession() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	st := c.s.store
	st.mu.Lock()
	resp := wire.SessionResponse{Session: sess.wire(), Routes: sess.sb.wireRoutes()}
	st.mu.Unlock()
	writeJSON(c.w, http.StatusOK, resp)
	return nil
}

func (c *call) listSessions() error {
	q := c.r.URL.Query()
	page, err := parsePage(q, "sessions", maxLimit)
	if err != nil {
		return err
	}
	project, name := q.Get("project"), q.Get("name")
	items := []wire.Session{}
	st := c.s.store
	st.mu.Lock()
	for _, sess := range st.sessions {
		key := sess.sb.key
		if (project == "" || key.project == project) && (name == "" || key.name == name) && !sess.sb.deleted {
			items = append(items, sess.wire())
		}
	}
	st.mu.Unlock()
	items, pagination := cut(page, "sessions", items, func(s wire.Session) sortKey { return sortKey{timeKey(s.CreatedAt), s.ID} })
	writeJSON(c.w, http.StatusOK, wire.SessionsPage{Sessions: items, Pagination: pagination})
	return nil
}

// stopSession handles POST …/stop. Stopping a stopped session is no error.
func (c *call) stopSession() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	if _, err := c.decode(&struct{}{}); err != nil {
		return err
	}
	st := c.s.store
	if err := c.awaitStop(sess, sess.stop(nil)); err != nil {
		return err
	}
	st.mu.Lock()
	if sess.notSaved() {
		st.mu.Unlock()
		return errNotSaved
	}
	if sess.requestedStopAt.IsZero() { // something else has ended it
		sess.requestedStopAt = c.s.clock.Now()
	}
	resp := wire.StopResponse{Session: sess.wire()}
	if !sess.sb.deleted {
		resp.Sandbox = new(sess.sb.wire())
	}
	if sess.ended() {
		if sess.taken != nil && sess.taken.method == methodAutomatic { // which this stop has made
			resp.Snapshot = new(sess.taken.wire())
		}
	}
	st.mu.Unlock()
	writeJSON(c.w, http.StatusOK, resp)
	return nil
}

func (c *call) extendTimeout() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	var p struct {
		Duration *wire.Duration `json:"duration"`
	}
	if _, err := c.decode(&p); err != nil {
		return err
	}
	if p.Duration == nil {
		return invalid("missing required property `duration`.")
	}
	d := time.Duration(*p.Duration)
	if d < minTimeout {
		return invalid("`duration` should be >= %d.", minTimeout.Milliseconds())
	}
	if _, err := sess.use(c.ctx); err != nil {
		return err
	}
	st := c.s.store
	st.mu.Lock()
	if d > maxTimeout-sess.timeout {
		st.mu.Unlock()
		return fail(http.StatusBadRequest, "sandbox_timeout_invalid", "extension would exceed maximum execution timeout")
	}
	if sess.live() {
		sess.timeout += d
		sess.scheduleExpiry()
		st.changedLocked()
	}
	st.mu.Unlock()
	return c.respondSession(sess)
}

func (c *call) respondSession(sess *session) error {
	c.s.store.mu.Lock()
	w := sess.wire()
	c.s.store.mu.Unlock()
	writeJSON(c.w, http.StatusOK, wire.SessionResponse{Session: w})
	return nil
}

// setPolicy handles POST …/network-policy, which holds for this session and
// for those that come after it.
func (c *call) setPolicy() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	raw, err := c.object()
	if err != nil {
		return err
	}
	policy, err := parsePolicy(raw)
	if err != nil {
		return err
	}
	machine, err := sess.use(c.ctx)
	if err != nil {
		return err
	}
	if err := sess.enforce(machine, policy, raw); err != nil {
		return sess.machineError(c.ctx, err)
	}
	st := c.s.store
	st.mu.Lock()
	sess.policy, sess.sb.settings.Policy, sess.sb.settings.PolicyRequest = policy, policy, raw
	st.changedLocked()
	st.mu.Unlock()
	return c.respondSession(sess)
}
