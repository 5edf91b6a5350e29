package outputs

import (
	"bytes"
	"fmt"
	"sync"
)

const defaultHeadTail = 32 << 10

// HeadTail keeps the beginning and the end of what is written to it: enough of a
// command's output to say what went wrong, however much there is. With
// [io.MultiWriter] output is both passed on and kept. The zero value keeps 32 KiB
// of each. A HeadTail must not be copied after the first write.
type HeadTail struct {
	// Max is the number of bytes that are kept of the beginning, and of the end;
	// zero or less means 32 KiB. It must not change after the first write. The
	// HeadTail takes up to four times as much memory.
	Max int

	mu         sync.Mutex
	head, tail []byte // the last Max bytes of tail are kept
	total      int64
}

func (h *HeadTail) most() int {
	if h.Max <= 0 {
		return defaultHeadTail
	}
	return h.Max
}

// Write keeps what belongs to the beginning or the end. It never fails.
func (h *HeadTail) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	written, most := len(p), h.most()
	h.total += int64(written)
	n := min(len(p), most-len(h.head))
	h.head = append(h.head, p[:n]...)
	h.tail = appendEnd(h.tail, p[n:], most)
	return written, nil
}

// appendEnd appends p to data, of which the last most bytes are kept, and up to
// twice as many held.
func appendEnd(data, p []byte, most int) []byte {
	p = p[max(len(p)-most, 0):]
	// It moves what it keeps only once for each most bytes that come.
	if extra := len(data) + len(p) - most; extra > most {
		data = data[:copy(data, data[extra:])]
	}
	return append(data, p...)
}

// Bytes returns a copy of what is kept, byte for byte. If something was left out,
// a line between the beginning and the end says how much, as in the Stderr of an
// [os/exec.ExitError].
func (h *HeadTail) Bytes() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	tail := h.tail[max(len(h.tail)-h.most(), 0):]
	var b bytes.Buffer
	b.Write(h.head)
	if omitted := h.total - int64(len(h.head)+len(tail)); omitted > 0 {
		fmt.Fprintf(&b, "\n... omitting %d bytes ...\n", omitted)
	}
	b.Write(tail)
	return b.Bytes()
}

// String returns Bytes as a string.
func (h *HeadTail) String() string { return string(h.Bytes()) }

// Total returns how many bytes were written, including those that were left out.
func (h *HeadTail) Total() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.total
}
