package store

import (
	"sync"
	"unicode/utf8"
)

// outputWriter converts the bytes of one stream of a command to records of its log. A UTF-8
// sequence that the process writes in two pieces stays in one record, because the writer
// keeps its start until its end is written.
type outputWriter struct {
	log    *commandLog
	suffix string

	mu   sync.Mutex
	tail []byte // an incomplete sequence, less than utf8.UTFMax bytes
	line []byte // the buffer for a record
}

func newOutputWriter(log *commandLog, stream string) *outputWriter {
	return &outputWriter{log: log, suffix: `,"stream":"` + stream + `"}` + "\n"}
}

// maxRecord limits the data of a record.
const maxRecord = 64 << 10

func (o *outputWriter) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		piece := p[:min(len(p), maxRecord)]
		p = p[len(piece):]
		if len(o.tail) > 0 {
			piece = append(o.tail, piece...)
			o.tail = nil
		}
		whole := len(piece) - incomplete(piece)
		if whole < len(piece) {
			o.tail = append(make([]byte, 0, len(piece)-whole), piece[whole:]...)
		}
		if err := o.record(piece[:whole]); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// Flush writes an incomplete sequence. Call it when the process can write no more.
func (o *outputWriter) Flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	// Earlier writes have reported the error.
	_ = o.record(o.tail)
	o.tail = nil
}

func (o *outputWriter) record(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	o.line = append(o.line[:0], `{"data":`...)
	o.line = appendJSONString(o.line, data)
	o.line = append(o.line, o.suffix...)
	return o.log.Append(o.line)
}

// incomplete returns the number of bytes at the end of p that start a UTF-8 sequence
// without completing it.
func incomplete(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		last := p[len(p)-n:]
		if utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return n
			}
			return 0
		}
	}
	return 0
}

const hexDigits = "0123456789abcdef"

// appendJSONString appends data as a JSON string. Each byte that is not valid UTF-8
// becomes U+FFFD, because JSON can't represent it.
func appendJSONString(dst, data []byte) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(data); {
		b := data[i]
		if b >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, data[start:i]...)
				dst = append(dst, "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		if b >= ' ' && b != '"' && b != '\\' {
			i++
			continue
		}
		dst = append(dst, data[start:i]...)
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		}
		i++
		start = i
	}
	dst = append(dst, data[start:]...)
	return append(dst, '"')
}
