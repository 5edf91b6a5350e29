package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// longLine is the line that is being delivered in pieces.
type longLine struct {
	state longState
	kind  Kind
}

type longState int

const (
	notLong longState = iota
	inData            // within the string of the data
	inTail            // behind it
)

// cutHead reports whether b starts as the API writes a record of output. The
// head is as long as stdoutHead.
func cutHead(b []byte) (Kind, bool) {
	switch {
	case bytes.HasPrefix(b, stdoutHead):
		return KindStdout, true
	case bytes.HasPrefix(b, stderrHead):
		return KindStderr, true
	}
	return 0, false
}

// openHead reports whether b starts as a record of output whose data is a
// string that can be decoded as it comes, and where that string begins.
func openHead(b []byte) (kind Kind, n int, ok bool) {
	if kind, ok := cutHead(b); ok {
		return kind, len(stdoutHead), true
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return 0, 0, false
	}
	known := false
	for {
		key, err := dec.Token()
		if err != nil {
			return 0, 0, false
		}
		if key == "data" {
			break
		}
		var value any
		if err := dec.Decode(&value); err != nil {
			return 0, 0, false
		}
		if key == "stream" {
			switch value {
			case "stdout":
				kind, known = KindStdout, true
			case "stderr":
				kind, known = KindStderr, true
			default:
				return 0, 0, false
			}
		}
	}
	const space = " \t\r"
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(b[dec.InputOffset():], space), []byte(":"))
	if !ok || !known {
		return 0, 0, false
	}
	rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest, space), []byte(`"`))
	return kind, len(b) - len(rest), ok
}

// piece returns the next piece of a long line. It returns no record when it has
// come to the end of the line.
func (d *LogDecoder) piece() (rec Record, ok bool, err error) {
	for d.long.state == inData {
		data, n, st := decodeString(&d.pooled.out, d.buf[d.pos:d.end])
		if st == stringBad && len(data) == 0 {
			return Record{}, false, notJSON(d.buf[d.pos:d.end], errors.New("invalid character or escape in a string"))
		}
		d.pos += n
		if st == stringClosed {
			d.long.state, d.looked = inTail, d.pos
		}
		if len(data) > 0 {
			return Record{Kind: d.long.kind, Data: data}, true, nil
		}
		if st == stringOpen {
			if err := d.need(); err != nil {
				return Record{}, false, err
			}
		}
	}
	return Record{}, false, d.tail()
}

// need reads on within a line. It is an error that there is no more.
func (d *LogDecoder) need() error {
	before := d.end - d.pos
	d.fill()
	switch {
	case d.end-d.pos > before:
		return nil
	case d.readErr == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return d.readErr
}

// tail reads and checks what follows the data in a long line.
func (d *LogDecoder) tail() error {
	for {
		from := max(d.looked, d.pos)
		var rest []byte
		if i := bytes.IndexByte(d.buf[from:d.end], '\n'); i >= 0 {
			rest = d.buf[d.pos : from+i]
			d.pos = from + i + 1
		} else {
			d.looked = d.end
			if d.end-d.pos >= d.limits.buffer/2 {
				return &LineError{Err: errors.New("too much follows the data")}
			}
			err := d.need()
			if err == nil {
				continue
			}
			rest = d.buf[d.pos:d.end]
			if !json.Valid(asObject(rest)) {
				return err
			}
			d.pos = d.end
		}
		d.long = longLine{}
		var others map[string]json.RawMessage
		if err := json.Unmarshal(asObject(rest), &others); err != nil {
			return notJSON(rest, err)
		}
		for _, name := range []string{"stream", "data"} {
			if _, ok := others[name]; ok {
				return &LineError{Err: errors.New("it has more than one " + name)}
			}
		}
		return nil
	}
}

// asObject makes an object of the end of one, whose start was a string.
func asObject(rest []byte) []byte { return append([]byte(`{"":""`), rest...) }
