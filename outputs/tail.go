package outputs

import (
	"sync"
	"unicode/utf8"
)

const defaultTail = 64 << 10

// Tail keeps the end of what is written to it. The zero value keeps 64 KiB. A
// Tail must not be copied after the first write.
type Tail struct {
	// Max is the number of bytes to keep. Zero or less means 64 KiB. It must not change
	// after the first write. A Tail uses up to three times Max bytes of memory.
	Max int

	mu    sync.Mutex
	data  []byte // only the last Max bytes count
	total int64
}

func (t *Tail) max() int {
	if t.Max <= 0 {
		return defaultTail
	}
	return t.Max
}

// Write implements [io.Writer]. It never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(p))
	t.data = appendEnd(t.data, p, t.max())
	return len(p), nil
}

// String returns the last Max bytes. If bytes before them were omitted, it starts with the
// first whole UTF-8 character.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := t.data[max(len(t.data)-t.max(), 0):]
	if t.total > int64(len(end)) {
		for range utf8.UTFMax - 1 {
			if len(end) > 0 && !utf8.RuneStart(end[0]) {
				end = end[1:]
			}
		}
	}
	return string(end)
}

// Total returns how many bytes were written, including omitted ones.
func (t *Tail) Total() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}
