package session

import (
	"encoding/json"
	"time"

	"github.com/go-vercel/sandbox/durable"
)

// Types of events.
const (
	TypeCreated       = "created"
	TypeStatus        = "status"
	TypeActivity      = "activity"
	TypeCommandQueued = "command_queued"
	TypeCommandStart  = "command_start"
	TypeCommandOutput = "command_output"
	TypeCommandEnd    = "command_end"
	TypeOutputLost    = "output_lost"
	TypeTruncated     = "truncated"
	TypeResult        = "result"
)

// States of a status event.
const (
	StateActive      = "active"
	StateHibernating = "hibernating"
	StateHibernated  = "hibernated"
	StateResuming    = "resuming"
	StateRefreshing  = "refreshing"
	StateReset       = "reset"
	StateRolledBack  = "rolledback"
	StateRewound     = "rewound" // the history has lost commands that ran
	StateBlocked     = "blocked" // the platform refuses; Error says why
	StateDestroyed   = "destroyed"
	StateTerminated  = "terminated" // the workflow was terminated; only in a State
)

// Millis is a time in milliseconds since 1970, as in JavaScript.
type Millis int64

func millis(t time.Time) Millis { return Millis(t.UnixMilli()) }

// Time returns it as a time.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)) }

// Event is an event of a session's stream. Its type decides which fields are set. Seq is
// the event's number. Events of the types command_output, output_lost and truncated have no
// number of their own.
type Event struct {
	Type string `json:"type"`
	Seq  int    `json:"seq"`
	At   Millis `json:"at,omitempty"`
	// Cursor continues the stream after this event.
	Cursor Cursor `json:"cursor,omitzero"`

	// Of created and status.
	State            string `json:"state,omitempty"`
	SandboxID        string `json:"sandboxId,omitempty"` // the sandbox's name
	SessionID        string `json:"sessionId,omitempty"` // the ID of the machine's session
	Runtime          string `json:"runtime,omitempty"`
	StartedAt        Millis `json:"startedAt,omitempty"`
	SandboxExpiresAt Millis `json:"sandboxExpiresAt,omitempty"`
	HibernateAfterMs int64  `json:"hibernateAfterMs,omitempty"`
	// SavedAt is set if the state is rolledback: it is when the files were saved.
	SavedAt Millis `json:"savedAt,omitempty"`

	// Of commands. ID is the command's ID in the session, and CommandID is the platform's.
	ID        string `json:"id,omitempty"`
	Command   string `json:"command,omitempty"`
	CommandID string `json:"commandId,omitempty"`
	// Output is the key of the stored output.
	Output string `json:"output,omitempty"`

	// Of command_output. Data is text, or base64 when Encoding says so.
	Stream   string `json:"stream,omitempty"`
	Data     string `json:"data,omitempty"`
	Encoding string `json:"encoding,omitempty"`

	// Of command_end. ExitCode is null unless the outcome is exited or killed.
	Outcome    durable.Outcome `json:"outcome,omitempty"`
	ExitCode   *int            `json:"exitCode,omitempty"`
	DurationMs int64           `json:"durationMs,omitempty"`
	Bytes      int64           `json:"bytes,omitempty"`
	Archived   bool            `json:"archived,omitempty"`
	// Truncated says that output is missing. In command_queued and command_start it says
	// that the command's text is missing.
	Truncated bool   `json:"truncated,omitempty"`
	Tail      string `json:"tail,omitempty"`

	// Of truncated: the first event that still exists.
	From int `json:"from,omitempty"`
	// Of result: destroyed or failed.
	Status string `json:"status,omitempty"`
	// Error says why a session failed (result), is blocked or rewound (status), why a
	// command was rejected (command_end), or why output is missing (output_lost).
	Error string `json:"error,omitempty"`
}

// MarshalJSON always writes the exit code of a command_end, as null if there is none.
func (e Event) MarshalJSON() ([]byte, error) {
	type plain Event
	if e.Type == TypeCommandEnd {
		return json.Marshal(struct {
			plain
			ExitCode   *int  `json:"exitCode"`
			DurationMs int64 `json:"durationMs"`
			Bytes      int64 `json:"bytes"`
		}{plain(e), e.ExitCode, e.DurationMs, e.Bytes})
	}
	return json.Marshal(plain(e))
}
