package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Kind is the kind of a record of a log stream.
type Kind int

// The kinds of records. KindUnknown is a well-formed object of another kind:
// the API may add kinds, which a client ignores.
const (
	KindStdout Kind = iota
	KindStderr
	KindError
	KindCommand
	KindUnknown
)

// Record is one record of a log stream.
type Record struct {
	Kind Kind
	// Data is output, for KindStdout and KindStderr. It is valid until the next
	// call of Next.
	Data []byte
	// Command is set for KindCommand.
	Command *Command
	// Error is set for KindError.
	Error *RecordError
}

// RecordError is the content of a record of KindError, and of a refusal.
type RecordError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// UnmarshalJSON keeps the JSON of a message that is not a string, since the code matters
// more.
func (e *RecordError) UnmarshalJSON(data []byte) error {
	type plain RecordError
	var decoded struct {
		plain
		Message json.RawMessage `json:"message"`
	}
	if err := json.Unmarshal(data, &decoded); err != nil {
		return err
	}
	*e = RecordError(decoded.plain)
	if json.Unmarshal(decoded.Message, &e.Message) != nil {
		e.Message = string(decoded.Message)
	}
	return nil
}

// LineError reports an invalid line of a log stream.
type LineError struct {
	// NotJSON is set if the line is not JSON, as opposed to JSON of an
	// unexpected form.
	NotJSON bool
	// TooLong is set if the line is longer than maxLine.
	TooLong bool
	// Excerpt is the start of a line that is not JSON.
	Excerpt string
	// Err is the cause.
	Err error
}

func (e *LineError) Error() string {
	if e.NotJSON {
		return fmt.Sprintf("line %q of the log stream is not JSON: %v", e.Excerpt, e.Err)
	}
	if e.TooLong {
		return fmt.Sprintf("a record of the log stream is %v", e.Err)
	}
	return fmt.Sprintf("record of the log stream has a wrong shape: %v", e.Err)
}

func (e *LineError) Unwrap() error { return e.Err }

// maxLine is the longest line of a log stream. The platform sends output in lines
// of at most some KiB.
const maxLine = 16 << 20

// limits bound a decoder's memory.
type limits struct {
	first  int // size of the first buffer: enough for a log with occasional lines
	buffer int // size for large output: net/http reads into it directly
	keep   int // the largest buffer to keep for other decoders
	line   int // the longest line
}

var defaultLimits = limits{first: 2 << 10, buffer: 64 << 10, keep: 1 << 20, line: maxLine}

// maxExcerpt limits LineError.Excerpt.
const maxExcerpt = 80

// buffers belong to one decoder at a time: in is for input, out for data that had to be
// unescaped.
type buffers struct{ in, out []byte }

// Most streams never need more than a small buffer.
var (
	firstBuffers = sync.Pool{New: func() any { return &buffers{in: make([]byte, defaultLimits.first)} }}
	fullBuffers  = sync.Pool{New: func() any { return &buffers{in: make([]byte, defaultLimits.buffer)} }}
)

// giveBack makes b available to other decoders.
func (b *buffers) giveBack(keep int) {
	if cap(b.out) > keep {
		b.out = nil
	}
	if len(b.in) == defaultLimits.first {
		firstBuffers.Put(b)
	} else {
		fullBuffers.Put(b)
	}
}

// LogDecoder decodes the records of a log stream (application/x-ndjson), of at most
// maxLine bytes each. It is not safe for concurrent use.
//
// Output is delivered only with its whole line: if a stream breaks, what was
// delivered is a prefix of the output.
type LogDecoder struct {
	r       io.Reader
	limits  limits
	pooled  *buffers
	buf     []byte
	pos     int // start of the next line
	end     int // end of the input
	looked  int // buf[pos:looked] has no newline; used only while line.unusual is set
	readErr error
	err     error // returned by Next at the end
	line    line
	slow    int // lines decoded by encoding/json; for tests
}

// NewLogDecoder returns a decoder that reads from r. Close releases its
// buffers.
func NewLogDecoder(r io.Reader) *LogDecoder {
	p := firstBuffers.Get().(*buffers)
	return &LogDecoder{r: r, limits: defaultLimits, pooled: p, buf: p.in}
}

// Close releases the buffers. Next fails afterwards, and data that it returned
// is no longer valid. The reader is not closed.
func (d *LogDecoder) Close() {
	if d.pooled == nil {
		return
	}
	d.pooled.giveBack(d.limits.keep)
	d.pooled, d.buf, d.pos, d.end = nil, nil, 0, 0
	d.err = errors.New("log decoder is closed")
}

// Next returns the next record. The error is io.EOF
// at the end after a record, io.ErrUnexpectedEOF at the end within a record,
// the reader's error, or a *LineError. It stays the same from then on.
func (d *LogDecoder) Next() (Record, error) {
	if d.err != nil {
		return Record{}, d.err
	}
	if d.line == (line{}) {
		if rec, ok := d.usual(d.buf[d.pos:d.end]); ok {
			return rec, nil
		}
	}
	rec, err := d.next()
	if err != nil {
		d.err = err
		return Record{}, err
	}
	return rec, nil
}

func (d *LogDecoder) next() (Record, error) {
	for {
		if !d.line.unusual {
			switch rec, st := d.output(); st {
			case stringClosed:
				return rec, nil
			case stringBad:
				d.line = line{unusual: true}
				d.looked = d.pos
			}
		}
		if d.line.unusual {
			from := max(d.looked, d.pos)
			if i := bytes.IndexByte(d.buf[from:d.end], '\n'); i >= 0 {
				text := trimSpace(d.buf[d.pos : from+i])
				d.pos = from + i + 1
				d.line = line{}
				if len(text) > 0 {
					return d.decode(text)
				}
				continue
			}
			d.looked = d.end
		}
		if rec, ok, err := d.more(); ok || err != nil {
			return rec, err
		}
	}
}

// more reads more of an incomplete line. It returns a record at the end of the
// stream, or if the line is too long to wait for its end.
func (d *LogDecoder) more() (rec Record, ok bool, err error) {
	if d.end-d.pos < len(d.buf) {
		before := d.end - d.pos
		if d.fill(); d.readErr == nil || d.end-d.pos > before {
			return Record{}, false, nil
		}
		text := trimSpace(d.buf[d.pos:d.end])
		d.pos, d.line = d.end, line{}
		switch {
		case len(text) == 0:
			return Record{}, false, d.readErr
		case complete(text):
			rec, err = d.decode(text)
			return rec, true, err
		case d.readErr == io.EOF:
			return Record{}, false, io.ErrUnexpectedEOF
		}
		return Record{}, false, d.readErr
	}
	if len(d.buf) >= d.limits.line {
		return Record{}, false, &LineError{TooLong: true, Err: fmt.Errorf("longer than %d bytes", d.limits.line)}
	}
	if len(d.buf) < d.limits.buffer {
		d.widen()
		return Record{}, false, nil
	}
	grown := make([]byte, 2*len(d.buf))
	copy(grown, d.buf)
	d.buf = grown
	return Record{}, false, nil
}

// fill makes room after an incomplete line and reads once. It sets readErr at
// the end of the input.
func (d *LogDecoder) fill() {
	if d.readErr != nil {
		return
	}
	if len(d.buf) < d.limits.buffer && d.end == len(d.buf) {
		d.widen()
	}
	if d.pos == d.end {
		if len(d.buf) > d.limits.buffer {
			d.buf = d.pooled.in
		}
		d.pos, d.end, d.looked = 0, 0, 0
	} else if d.pos > 0 {
		copy(d.buf, d.buf[d.pos:d.end])
		d.looked = max(0, d.looked-d.pos)
		d.pos, d.end = 0, d.end-d.pos
	}
	// A reader may return nothing and no error, but not forever.
	for range 100 {
		n, err := d.r.Read(d.buf[d.end:])
		d.end += n
		d.readErr = err
		if n > 0 || err != nil {
			return
		}
	}
	d.readErr = io.ErrNoProgress
}

// widen switches to a large buffer after a read has filled the first.
func (d *LogDecoder) widen() {
	full := fullBuffers.Get().(*buffers)
	copy(full.in, d.buf[d.pos:d.end])
	full.out, d.pooled.out = d.pooled.out, full.out // it may contain the start of a line
	d.looked = max(0, d.looked-d.pos)
	d.pos, d.end = 0, d.end-d.pos
	d.pooled.giveBack(d.limits.first)
	d.pooled, d.buf = full, full.in
}

// decode decodes a complete line that the method output does not support.
func (d *LogDecoder) decode(text []byte) (Record, error) {
	d.slow++
	return decodeAny(text)
}

// complete reports whether the last line of a stream without a newline is
// complete, rather than the start of a line that was cut.
func complete(line []byte) bool {
	var v json.RawMessage
	return json.NewDecoder(bytes.NewReader(line)).Decode(&v) != io.ErrUnexpectedEOF
}

func trimSpace(b []byte) []byte { return bytes.Trim(b, " \t\r") }
