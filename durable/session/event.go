package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	// Of a failed result, a status that is blocked or rewound, a rejected command and
	// output_lost.
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

// Cursor is a position in a session's stream: an event's number and, in the output of a
// command, a byte. The zero value is the start of the stream. Its text is "SEQ.BYTE",
// "SEQ.BYTE.AHEAD" or "SEQ.BYTE.AHEAD.AT".
type Cursor struct {
	Seq int
	// Byte is 0 if the viewer does not have the event yet. Otherwise it is 1 plus the
	// number of bytes that the viewer has of the event's output, of both streams together.
	Byte int64
	// Ahead counts the later events that the viewer got during the event's output.
	Ahead int
	// At is the time of the last event that the viewer got. It shows whether a restored
	// database has lost that event. 0 means unknown.
	At Millis
}

// next returns the number of the next event.
func (c Cursor) next() int {
	if c.Byte == 0 {
		return c.Seq
	}
	return c.Seq + 1 + c.Ahead
}

// ErrCursor means that a text is not a cursor, or that a cursor does not belong to the
// session.
var ErrCursor = errors.New("session: invalid cursor")

// ParseCursor reads the text of a cursor. An empty text is the start.
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	var n [4]uint64
	parts := strings.Split(text, ".")
	bad := len(parts) > len(n)
	for i, bits := range []int{31, 63, 30, 63} {
		if i < len(parts) && !bad {
			var err error
			n[i], err = strconv.ParseUint(parts[i], 10, bits)
			bad = err != nil
		}
	}
	if bad || n[1] == 0 && n[2] > 0 {
		return Cursor{}, fmt.Errorf("%w: %.40q", ErrCursor, text)
	}
	return Cursor{int(n[0]), int64(n[1]), int(n[2]), Millis(n[3])}, nil //nolint:gosec // ParseUint has limited the bits of each
}

// String returns the cursor's text.
func (c Cursor) String() string {
	switch {
	case c.At > 0:
		return fmt.Sprintf("%d.%d.%d.%d", c.Seq, c.Byte, c.Ahead, c.At)
	case c.Ahead > 0:
		return fmt.Sprintf("%d.%d.%d", c.Seq, c.Byte, c.Ahead)
	}
	return fmt.Sprintf("%d.%d", c.Seq, c.Byte)
}

// MarshalText writes the cursor's text.
func (c Cursor) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the cursor's text.
func (c *Cursor) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCursor(string(text))
	return err
}
