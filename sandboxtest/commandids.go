package sandboxtest

import (
	"context"
	"net/http"

	"github.com/go-vercel/sandbox/internal/wire"
)

// CommandIDs is how the service treats an ID that the caller has chosen for a
// command, the query parameter cmdId of its start.
type CommandIDs string

const (
	// CommandIDsHonored gives the command that ID, and responds with 409 if it
	// is taken. It is the default.
	CommandIDsHonored CommandIDs = ""
	// CommandIDsIgnored gives the command an ID of the service's own.
	CommandIDsIgnored CommandIDs = "ignored"
	// CommandIDsRefused responds with 400.
	CommandIDsRefused CommandIDs = "refused"
)

// chosenID is the ID that the caller has chosen, empty when there is none.
func (c *call) chosenID() (string, error) {
	q := c.r.URL.Query()
	if !q.Has("cmdId") || c.s.opts.CommandIDs == CommandIDsIgnored {
		return "", nil
	}
	if c.s.opts.CommandIDs == CommandIDsRefused {
		return "", invalid("should NOT have additional property `cmdId`.")
	}
	id := q.Get("cmdId")
	if !wire.PlainName(id, wire.MaxCommandID) {
		return "", invalid("`cmdId` should match pattern \"%s\" and NOT be longer than %d characters.", namePattern, wire.MaxCommandID)
	}
	return id, nil
}

// takeID reserves an ID for a command that is about to start; without one it
// makes one up. Where another command is about to start with the ID, it waits: who
// is told that there is a command finds it.
func (sess *session) takeID(ctx context.Context, id string) (string, error) {
	if id == "" {
		id = newCommandID()
	}
	st := sess.sb.s.store
	for {
		st.mu.Lock()
		cmd, taken := sess.commands[id]
		if !taken {
			sess.commands[id] = nil
		}
		changed := sess.changed
		st.mu.Unlock()
		switch {
		case !taken:
			return id, nil
		case cmd != nil:
			return "", fail(http.StatusConflict, "conflict", "A command with the ID '%s' already exists.", id)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// settleID says that the command with a reserved ID has started, or else gives the
// ID back.
func (sess *session) settleID(id string) {
	st := sess.sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if sess.commands[id] == nil {
		delete(sess.commands, id)
	}
	sess.tellLocked()
}
