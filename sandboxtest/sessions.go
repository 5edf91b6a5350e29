package sandboxtest

import (
	"net/http"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// session returns the session in the path.
func (c *call) session() (*store.Session, error) {
	sess, err := c.s.store.Session(c.values[0])
	if err != nil {
		return nil, err
	}
	if failure := wrongTeam(c.r, sess.Project()); failure != nil {
		return nil, failure
	}
	return sess, nil
}

// sessionAndBody returns the session in the path, and decodes the body into v.
func (c *call) sessionAndBody(v any) (*store.Session, error) {
	sess, err := c.session()
	if err != nil {
		return nil, err
	}
	return sess, c.decode(v)
}

func (c *call) listSessions() error {
	project, err := c.listProject()
	if err != nil {
		return err
	}
	q := c.r.URL.Query()
	page, err := parsePage(q, "sessions", wire.MaxPage)
	if err != nil {
		return err
	}
	items := c.s.store.ListSessions(project, q.Get("name"))
	items, pagination := paginate(page, "sessions", items, func(s wire.Session) sortKey { return sortKey{timeKey(s.CreatedAt), s.ID} })
	return c.respond(http.StatusOK, wire.SessionsPage{Sessions: items, Pagination: pagination}, nil)
}

type extendParams struct {
	Duration *wire.Duration `json:"duration"`
}

func (c *call) extendTimeout() error {
	var p extendParams
	sess, err := c.sessionAndBody(&p)
	if err != nil {
		return err
	}
	if p.Duration == nil {
		return reply.Invalid("missing required property `duration`.")
	}
	d := time.Duration(*p.Duration)
	if d < wire.MinTimeout {
		return reply.Invalid("`duration` should be >= %d.", wire.MinTimeout.Milliseconds())
	}
	return c.respondSession(sess, sess.Extend(c.ctx, d))
}

func (c *call) respondSession(sess *store.Session, err error) error {
	return c.respond(http.StatusOK, wire.SessionResponse{Session: sess.Describe().Session}, err)
}

func (c *call) getSession() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	systemRoutes, err := c.flag("__includeSystemRoutes")
	if err != nil {
		return err
	}
	resp := sess.Describe()
	if systemRoutes {
		resp.Routes = append(resp.Routes, c.s.terminalRoute(resp.Session))
	}
	return c.respond(http.StatusOK, resp, nil)
}

// stopSession handles POST …/stop. Stopping a stopped session is not an error.
func (c *call) stopSession() error {
	sess, err := c.sessionAndBody(&struct{}{})
	if err != nil {
		return err
	}
	resp, err := sess.StopAndAwait(c.ctx)
	return c.respond(http.StatusOK, resp, err)
}

// setPolicy handles POST …/network-policy, which affects this session and later ones.
func (c *call) setPolicy() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	raw, err := c.readObject()
	if err != nil {
		return err
	}
	policy, err := parsePolicy(raw)
	if err != nil {
		return err
	}
	return c.respondSession(sess, sess.SetPolicy(c.ctx, policy, raw))
}
