package outputs

import (
	"bytes"
	"fmt"
	"sync"
)

const defaultHeadTail = 32 << 10

// HeadTail keeps the beginning and the end of what is written to it. For a command's
// output of any size, that is usually enough to see what went wrong. Use [io.MultiWriter]
// to show the output too. The zero value keeps 32 KiB of each. A HeadTail must not be
// copied after the first write.
type HeadTail struct {
	// Max is the number of bytes to keep of the beginning and of the end. Zero or less
	// means 32 KiB. It must not change after the first write. A HeadTail uses up to four
	// times Max bytes of memory.
	Max int

	mu         sync.Mutex
	head, tail []byte // only the last Max bytes of tail count
	total      int64
}

func (h *HeadTail) max() int {
	if h.Max <= 0 {
		return defaultHeadTail
	}
	return h.Max
}

// Write implements [io.Writer]. It never fails.
func (h *HeadTail) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	written, limit := len(p), h.max()
	h.total += int64(written)
	n := min(len(p), limit-len(h.head))
	h.head = append(h.head, p[:n]...)
	h.tail = appendEnd(h.tail, p[n:], limit)
	return written, nil
}

// appendEnd appends p to data and keeps the last size bytes. The result may contain up to size
// bytes before them.
func appendEnd(data, p []byte, size int) []byte {
	p = p[max(len(p)-size, 0):]
	// Moving bytes only after another size bytes of input keeps the cost constant per byte.
	if extra := len(data) + len(p) - size; extra > size {
		data = data[:copy(data, data[extra:])]
	}
	return append(data, p...)
}

// Bytes returns a copy of the kept bytes. If bytes were omitted, a line between the
// beginning and the end says how many, as in the Stderr of an [os/exec.ExitError].
func (h *HeadTail) Bytes() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	tail := h.tail[max(len(h.tail)-h.max(), 0):]
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

// Total returns how many bytes were written, including omitted ones.
func (h *HeadTail) Total() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.total
}
