package api

import "sync"

// owners remembers which sandbox a session is of, and in which region, since
// requests about a session name only the session. What is not used for long is
// forgotten: once of is full it becomes older, which then is forgotten. It is safe
// for concurrent use.
type owners struct {
	mu        sync.Mutex
	of, older map[string]owner
}

type owner struct{ sandbox, region string }

// maxOwners is the maximum number of sessions in owners.of.
const maxOwners = 8192

func (o *owners) learn(session, sandbox, region string) {
	if session == "" || sandbox == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if region == "" {
		region = o.look(session).region
	}
	o.put(session, owner{sandbox, region})
}

func (o *owners) find(session string) owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.look(session)
}

// look finds a session, which is in use again. The caller holds mu, as for put.
func (o *owners) look(session string) owner {
	known, ok := o.of[session]
	if !ok {
		if known, ok = o.older[session]; ok {
			o.put(session, known)
		}
	}
	return known
}

func (o *owners) put(session string, of owner) {
	if _, known := o.of[session]; !known && len(o.of) >= maxOwners || o.of == nil {
		o.of, o.older = map[string]owner{}, o.of
	}
	o.of[session] = of
}

// Learn tells whose a session is that came from elsewhere than a response.
func (c *Client) Learn(session, sandbox, region string) { c.owners.learn(session, sandbox, region) }

// Owner returns the name of a session's sandbox, if it is known.
func (c *Client) Owner(session string) string { return c.owners.find(session).sandbox }
