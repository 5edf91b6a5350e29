package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Kind says what a record of a log stream is.
type Kind int

// The kinds of records. KindUnknown is a well-formed object that is none of the
// others: the API may add kinds, and a client passes over them.
const (
	KindStdout Kind = iota
	KindStderr
	KindError
	KindCommand
	KindUnknown
)

// Record is one record of a log stream, or a piece of one.
type Record struct {
	Kind Kind
	// Data is output, for KindStdout and KindStderr. It is valid until the next
	// call of Next.
	Data []byte
	// Command is set for KindCommand.
	Command *Command
	// ErrCode and ErrMessage are set for KindError.
	ErrCode, ErrMessage string
}

// LineError is a line of a log stream that is no record.
type LineError struct {
	// NotJSON tells a line that is not JSON from one that is JSON of a wrong
	// shape.
	NotJSON bool
	// Excerpt is the start of a line that is not JSON.
	Excerpt string
	// Err says what is wrong with it.
	Err error
}

func (e *LineError) Error() string {
	if e.NotJSON {
		return fmt.Sprintf("line %q of the log stream is not JSON: %v", e.Excerpt, e.Err)
	}
	return fmt.Sprintf("record of the log stream has a wrong shape: %v", e.Err)
}

func (e *LineError) Unwrap() error { return e.Err }

// limits bound a decoder's memory.
type limits struct {
	// buffer suits the reads: net/http fills it past its own buffer.
	buffer int
	// whole is the longest line that is surely delivered in one record. The
	// output in a longer one comes in pieces.
	whole int
	// line bounds what can't be delivered in pieces: commands, errors, and
	// output whose stream is named after the data.
	line int
}

var defaultLimits = limits{buffer: 64 << 10, whole: 1 << 20, line: 16 << 20}

// maxExcerpt bounds LineError.Excerpt.
const maxExcerpt = 80

// buffers belong to one decoder at a time: in for what was read, out for data
// that differs from its encoding.
type buffers struct{ in, out []byte }

var bufferPool = sync.Pool{New: func() any { return &buffers{in: make([]byte, defaultLimits.buffer)} }}

// LogDecoder decodes the records of a log stream (application/x-ndjson). Its
// memory is bounded whatever the length of a line. It is not safe for
// concurrent use.
//
// A piece of output is delivered only when nothing that follows could change
// it: when a stream breaks within a line, what was delivered is a prefix of what
// the line would have given.
type LogDecoder struct {
	r       io.Reader
	limits  limits
	pooled  *buffers
	buf     []byte
	pos     int // start of what is not decoded yet
	end     int // end of what was read
	looked  int // no newline in buf[pos:looked]
	readErr error
	err     error // the last thing that Next returns
	long    longLine
}

// NewLogDecoder returns a decoder that reads from r. Close gives its buffers
// back.
func NewLogDecoder(r io.Reader) *LogDecoder {
	p := bufferPool.Get().(*buffers)
	return &LogDecoder{r: r, limits: defaultLimits, pooled: p, buf: p.in}
}

// Close makes the buffers available to other decoders. Next fails afterwards,
// and data that it returned is no longer valid. The reader is not closed.
func (d *LogDecoder) Close() error {
	if d.pooled != nil {
		if cap(d.pooled.out) > d.limits.whole {
			d.pooled.out = nil
		}
		bufferPool.Put(d.pooled)
		d.pooled, d.buf, d.pos, d.end = nil, nil, 0, 0
		d.err = errors.New("log decoder is closed")
	}
	return nil
}

// Next returns the next record, or the next piece of one. The error is io.EOF
// at an end between two records, io.ErrUnexpectedEOF at one within a record,
// what the reader returned, or a *LineError. It stays the same from then on.
func (d *LogDecoder) Next() (Record, error) {
	if d.err != nil {
		return Record{}, d.err
	}
	rec, err := d.next()
	if err != nil {
		d.err = err
		return Record{}, err
	}
	return rec, nil
}

var (
	stdoutHead = []byte(`{"stream":"stdout","data":"`)
	stderrHead = []byte(`{"stream":"stderr","data":"`)
	plainTail  = []byte("\"}\n")
	endedTail  = []byte(`\n"}` + "\n") // most output ends in a newline
)

func (d *LogDecoder) next() (Record, error) {
	if d.long.state != notLong {
		if rec, ok, err := d.piece(); ok || err != nil {
			return rec, err
		}
	}
	for {
		b := d.buf[d.pos:d.end]
		if d.looked <= d.pos && len(b) > len(stdoutHead) {
			// The first look at this line: most are plain output, and are done
			// with in one pass.
			if kind, ok := cutHead(b); ok {
				data := b[len(stdoutHead):]
				n := plainPrefix(data)
				switch rest := data[n:]; {
				case bytes.HasPrefix(rest, endedTail):
					rest[0] = '\n'
					d.pos += len(stdoutHead) + n + len(endedTail)
					return Record{Kind: kind, Data: data[:n+1]}, nil
				case bytes.HasPrefix(rest, plainTail):
					d.pos += len(stdoutHead) + n + len(plainTail)
					return Record{Kind: kind, Data: data[:n]}, nil
				}
			}
		}
		from := max(d.looked, d.pos)
		i := bytes.IndexByte(d.buf[from:d.end], '\n')
		if i < 0 {
			d.looked = d.end
			if rec, ok, err := d.more(); ok || err != nil {
				return rec, err
			}
			continue
		}
		line := d.buf[d.pos : from+i]
		d.pos = from + i + 1
		if line = trimSpace(line); len(line) > 0 {
			return d.decode(line)
		}
	}
}

// more reads more of an unfinished line. It returns a record when it gets to
// the end of the stream, or when the line is too long to wait for its end.
func (d *LogDecoder) more() (rec Record, ok bool, err error) {
	if d.end-d.pos < len(d.buf) {
		if d.fill(); d.readErr == nil || d.looked < d.end {
			return Record{}, false, nil
		}
		line := trimSpace(d.buf[d.pos:d.end])
		d.pos = d.end
		if len(line) == 0 {
			return Record{}, false, d.readErr
		}
		if complete(line) {
			rec, err = d.decode(line)
			return rec, true, err
		}
		if d.readErr == io.EOF {
			return Record{}, false, io.ErrUnexpectedEOF
		}
		return Record{}, false, d.readErr
	}
	if len(d.buf) >= d.limits.whole {
		if kind, n, ok := openHead(d.buf[d.pos:d.end]); ok {
			d.pos += n
			d.long = longLine{state: inData, kind: kind}
			return d.piece()
		}
	}
	if len(d.buf) >= d.limits.line {
		return Record{}, false, &LineError{Err: fmt.Errorf("it is longer than %d bytes", d.limits.line)}
	}
	grown := make([]byte, 2*len(d.buf))
	copy(grown, d.buf)
	d.buf = grown
	return Record{}, false, nil
}

// fill makes room behind an unfinished line and reads once. It sets readErr
// when there is no more to come.
func (d *LogDecoder) fill() {
	if d.readErr != nil {
		return
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
	// A reader may return nothing and no error, but not for ever.
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

// decode decodes a whole line.
func (d *LogDecoder) decode(line []byte) (Record, error) {
	if kind, ok := cutHead(line); ok {
		data, n, st := decodeString(&d.pooled.out, line[len(stdoutHead):])
		if st == stringClosed && string(line[len(stdoutHead)+n:]) == "}" {
			return Record{Kind: kind, Data: data}, nil
		}
	} else if c, ok := decodeCommand(line); ok {
		return Record{Kind: KindCommand, Command: c}, nil
	}
	return decodeAny(line)
}

// decodeAny decodes a line of any shape.
func decodeAny(line []byte) (Record, error) {
	var v struct {
		Stream  json.RawMessage `json:"stream"`
		Data    json.RawMessage `json:"data"`
		Command *Command        `json:"command"`
	}
	if err := json.Unmarshal(line, &v); err != nil {
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return Record{}, notJSON(line, err)
		}
		return Record{}, &LineError{Err: err}
	}
	if line[0] != '{' {
		return Record{}, &LineError{Err: errors.New("it is not an object")}
	}
	var stream string
	if len(v.Stream) > 0 {
		if err := json.Unmarshal(v.Stream, &stream); err != nil {
			return Record{}, &LineError{Err: fmt.Errorf("stream: %w", err)}
		}
	}
	switch stream {
	case "stdout", "stderr":
		var data *string
		if len(v.Data) > 0 {
			if err := json.Unmarshal(v.Data, &data); err != nil {
				return Record{}, &LineError{Err: fmt.Errorf("data of %s: %w", stream, err)}
			}
		}
		if data == nil {
			return Record{}, &LineError{Err: fmt.Errorf("%s without data", stream)}
		}
		rec := Record{Kind: KindStdout, Data: []byte(*data)}
		if stream == "stderr" {
			rec.Kind = KindStderr
		}
		return rec, nil
	case "error":
		var data *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		}
		if len(v.Data) > 0 {
			if err := json.Unmarshal(v.Data, &data); err != nil {
				return Record{}, &LineError{Err: fmt.Errorf("data of error: %w", err)}
			}
		}
		if data == nil {
			return Record{}, &LineError{Err: errors.New("error without data")}
		}
		return Record{Kind: KindError, ErrCode: data.Code, ErrMessage: data.Message}, nil
	case "":
		if v.Command != nil {
			return Record{Kind: KindCommand, Command: v.Command}, nil
		}
	}
	return Record{Kind: KindUnknown}, nil
}

func notJSON(line []byte, err error) *LineError {
	return &LineError{NotJSON: true, Excerpt: string(line[:min(len(line), maxExcerpt)]), Err: err}
}

// complete reports whether the last line of a stream, which no newline ends,
// is to be taken for what it is, rather than for the start of a line that was
// cut.
func complete(line []byte) bool {
	var v json.RawMessage
	return json.NewDecoder(bytes.NewReader(line)).Decode(&v) != io.ErrUnexpectedEOF
}

func trimSpace(b []byte) []byte { return bytes.Trim(b, " \t\r") }
