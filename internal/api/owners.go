package api

import "sync"

// owners remembers which sandbox a session is of, and in which region, since
// requests about a session name only the session. It is safe for concurrent use.
type owners struct {
	mu  sync.Mutex
	of  map[string]owner
	ids [maxOwners]string // in the order in which they were learned
	n   int
}

type owner struct{ sandbox, region string }

const maxOwners = 4096

func (o *owners) learn(session, sandbox, region string) {
	if session == "" || sandbox == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.of[session]
	if ok && region == "" {
		region = known.region
	}
	if !ok {
		if o.of == nil {
			o.of = map[string]owner{}
		}
		delete(o.of, o.ids[o.n])
		o.ids[o.n] = session
		o.n = (o.n + 1) % maxOwners
	}
	o.of[session] = owner{sandbox, region}
}

func (o *owners) find(session string) owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[session]
}

// Learn tells whose a session is that came from elsewhere than a response.
func (c *Client) Learn(session, sandbox, region string) { c.owners.learn(session, sandbox, region) }

// Owner returns the name of a session's sandbox, if it is known.
func (c *Client) Owner(session string) string { return c.owners.find(session).sandbox }
