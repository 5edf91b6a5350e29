package session

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"
)

const (
	// eventPage is the maximum number of events in a page, and pageBytes about their size.
	// Temporal limits a response to 4 MiB.
	eventPage = 500
	pageBytes = 256 << 10
	// keepBytes is about the size of the events that are carried over continue-as-new.
	// Temporal limits a payload to 2 MiB.
	keepBytes = 256 << 10
	// maxBytes is the size of events that starts a new history.
	maxBytes = 4 * keepBytes
	// queueBytes limits the size of the queue as JSON. It is carried over continue-as-new
	// together with the events and the keys.
	queueBytes = 768 << 10
	// optionsBytes limits the size of Options and Policy as JSON. They are carried over
	// twice.
	optionsBytes = 64 << 10
)

// jsonSize returns the maximum size of a text as JSON.
func jsonSize(text string) int {
	const escaped = len(`\u0000`)
	n := len(`""`)
	for _, r := range text {
		switch {
		case r < ' ', r == '"', r == '\\', r == '<', r == '>', r == '&', r == 0x7f, r == '\u2028', r == '\u2029', r == utf8.RuneError:
			n += escaped
		default:
			n += utf8.RuneLen(r)
		}
	}
	return n
}

// size returns the maximum size of a queued command and its interrupt as JSON.
func (q queued) size() int {
	return len(`{"ID":,"Command":,"Hold":600000000000,"Text":},{"ID":"cmd-1234567890","Signal":64},`) + jsonSize(q.ID) + jsonSize(q.Command) + jsonSize(q.Text)
}

// queueSize returns the maximum size of the queue as JSON.
func (s *run) queueSize() (n int) {
	for _, q := range s.Queue {
		n += q.size()
	}
	return n
}

// shortKey is the maximum length of a key that is remembered unchanged.
const shortKey = 64

// keyOf returns what is remembered of an idempotency key. It is short, because there are many.
func keyOf(key string) string {
	if jsonSize(key) <= shortKey+len(`""`) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:16])
}

// size returns about how many bytes of JSON an event has. Texts with escapes can have six times
// as many, and the limits leave room for them.
func (e stored) size() int {
	return 300 + len(e.Event.Command) + len(e.Event.Tail) + len(e.Event.Error) + len(e.Handle)
}

// jsonSize returns the maximum size of an event as JSON.
func (e stored) jsonSize() int {
	return 300 + jsonSize(e.Event.Command) + jsonSize(e.Event.Tail) + jsonSize(e.Event.Error) + len(e.Handle)*4/3
}

// pageOf returns how many of the events fit into a page.
func pageOf(events []stored) (n int) {
	for bytes := 0; n < min(len(events), eventPage); n++ {
		if bytes += events[n].size(); bytes > pageBytes && n > 0 {
			break
		}
	}
	return n
}

func sizeOf(events []stored) (bytes int) {
	for _, e := range events {
		bytes += e.size()
	}
	return bytes
}

func jsonSizeOf(events []stored) (bytes int) {
	for _, e := range events {
		bytes += e.jsonSize()
	}
	return bytes
}
