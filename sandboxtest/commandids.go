package sandboxtest

import (
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// CommandIDs is how the service treats a command ID that the caller has chosen: the query
// parameter cmdId of a start.
type CommandIDs string

const (
	// CommandIDsHonored uses that ID, and responds with 409 if it is taken. It is the
	// default.
	CommandIDsHonored CommandIDs = ""
	// CommandIDsIgnored uses an ID of the service's choice.
	CommandIDsIgnored CommandIDs = "ignored"
	// CommandIDsRefused responds with 400.
	CommandIDsRefused CommandIDs = "refused"
)

// chosenID returns the ID that the caller has chosen, or "".
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
