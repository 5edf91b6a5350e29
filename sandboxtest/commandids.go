package sandboxtest

import (
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
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
		return "", reply.Invalid("should NOT have additional property `cmdId`.")
	}
	id := q.Get("cmdId")
	if !wire.PlainName(id, wire.MaxCommandID) {
		return "", reply.Invalid("`cmdId` should match pattern \"%s\" and NOT be longer than %d characters.", namePattern, wire.MaxCommandID)
	}
	return id, nil
}
