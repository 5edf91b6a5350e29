package session

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"
)

// Limits of sizes in JSON, which may escape a character as six. Temporal limits a response
// to 4 MiB and a payload to 2 MiB.
const (
	// eventPage and pageBytes limit the events of a page. A single event may be larger.
	eventPage = 500
	pageBytes = 512 << 10
	// keepBytes limits the events that are carried over continue-as-new.
	keepBytes = 512 << 10
	// historyBytes is the size of the events above which the session starts a new history.
	historyBytes = 2 * keepBytes
	// queueBytes limits the queue, which is carried over with the events and the keys.
	queueBytes = 768 << 10
	// optionsBytes limits Options and Policy, which are carried over twice.
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

// shortenKey returns the short form of an idempotency key that the session remembers. It is
// short, because a session remembers many keys.
func shortenKey(key string) string {
	if jsonSize(key) <= shortKey+len(`""`) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:16])
}

// size returns the maximum size of an event as JSON.
func (e stored) size() int {
	return 300 + jsonSize(e.Event.Command) + jsonSize(e.Event.Tail) + jsonSize(e.Event.Error) + len(e.Handle)*4/3
}

// pageLength returns how many of the events fit into a page.
func pageLength(events []stored) (n int) {
	for bytes := 0; n < min(len(events), eventPage); n++ {
		if bytes += events[n].size(); bytes > pageBytes && n > 0 {
			break
		}
	}
	return n
}

// eventsSize returns the maximum size of events as JSON.
func eventsSize(events []stored) (bytes int) {
	for _, e := range events {
		bytes += e.size()
	}
	return bytes
}
