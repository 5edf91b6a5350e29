package session

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"
)

const (
	// eventPage is how many events a page holds at most, pageBytes about how many
	// bytes: a response of Temporal is at most 4 MiB.
	eventPage = 500
	pageBytes = 256 << 10
	// keepBytes is about how many bytes of events are carried over
	// continue-as-new: a payload is at most 2 MiB.
	keepBytes = 256 << 10
	// maxBytes of events begin a new history.
	maxBytes = 4 * keepBytes
	// queueBytes is how many bytes of JSON the queue may have. It is carried over
	// continue-as-new in addition to the events and the keys.
	queueBytes = 768 << 10
	// optionsBytes is how many bytes of JSON a session's Options and Policy may
	// have. They are carried over twice.
	optionsBytes = 64 << 10
)

// jsonSize is how many bytes of JSON a text has at most.
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

// size is how many bytes of JSON a queued command and its interrupt have at most.
func (q queued) size() int {
	return len(`{"ID":,"Command":,"Hold":600000000000,"Text":},{"ID":"cmd-1234567890","Signal":64},`) + jsonSize(q.ID) + jsonSize(q.Command) + jsonSize(q.Text)
}

// queueSize is how many bytes of JSON the queue has at most.
func (s *run) queueSize() (n int) {
	for _, q := range s.Queue {
		n += q.size()
	}
	return n
}

// shortKey is how long a key may be that is remembered as it is.
const shortKey = 64

// keyOf is what is remembered of an idempotency key. There are many, so that each
// is short.
func keyOf(key string) string {
	if jsonSize(key) <= shortKey+len(`""`) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:16])
}

// size is about how many bytes of JSON an event has. Texts that need to be escaped
// have more, up to six times as many: the limits leave room for them.
func (e stored) size() int {
	return 300 + len(e.Event.Command) + len(e.Event.Tail) + len(e.Event.Error) + len(e.Handle)
}

// jsonSize is how many bytes of JSON an event has at most.
func (e stored) jsonSize() int {
	return 300 + jsonSize(e.Event.Command) + jsonSize(e.Event.Tail) + jsonSize(e.Event.Error) + len(e.Handle)*4/3
}

// pageOf returns how many of the events make a page.
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
