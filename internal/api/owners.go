package api

import "sync"

// owners remembers the sandbox of each session for errors and events, because requests about a
// session contain only the session. It forgets sessions that are not used: when recent is full,
// it becomes older, and the previous older is dropped. It is safe for concurrent use.
type owners struct {
	mu            sync.Mutex
	recent, older map[string]string
}

// maxOwners is the maximum number of sessions in owners.recent.
const maxOwners = 8192

func (o *owners) learn(session, sandbox string) {
	if session == "" || sandbox == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.put(session, sandbox)
}

func (o *owners) lookup(session string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	sandbox, ok := o.recent[session]
	if !ok {
		if sandbox, ok = o.older[session]; ok {
			o.put(session, sandbox)
		}
	}
	return sandbox
}

// put stores a session's sandbox. The caller holds mu.
func (o *owners) put(session, sandbox string) {
	if _, known := o.recent[session]; !known && len(o.recent) >= maxOwners || o.recent == nil {
		o.recent, o.older = map[string]string{}, o.recent
	}
	o.recent[session] = sandbox
}

// Learn stores the sandbox of a session that didn't come from a response.
func (c *Client) Learn(session, sandbox string) { c.owners.learn(session, sandbox) }

// Owner returns the name of a session's sandbox; empty if it is not known.
func (c *Client) Owner(session string) string { return c.owners.lookup(session) }
