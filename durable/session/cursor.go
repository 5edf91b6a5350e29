package session

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

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
