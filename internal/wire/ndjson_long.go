package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// longLine is a line that is delivered in pieces.
type longLine struct {
	state longState
	// named is set if kind is known, so that data can be delivered.
	named bool
	kind  Kind
	first []byte // what was decoded before the line turned out to be long
	held  heldData
}

func (l *longLine) close() error {
	l.state = notLong
	return l.held.close()
}

type longState int

const (
	notLong longState = iota
	inData            // within the string of the data
	inTail            // after it
	inHeld            // at its end, delivering what was held
)

// lengthen starts delivering the line at the decoder's position in pieces. It
// returns false if the line is not a record of output of a usual form.
func (d *LogDecoder) lengthen() bool {
	l := d.line
	if l.unusual {
		return false
	}
	d.long = longLine{state: inData, named: l.named, kind: l.kind, first: d.buf[d.pos:d.end][l.data:l.at]}
	if l.decoded {
		d.long.first = d.pooled.out
	}
	d.pos += l.at
	d.line = line{}
	return true
}

// deliver returns data as a piece of the long line, or holds it.
func (d *LogDecoder) deliver(data []byte) (rec Record, ok bool, err error) {
	switch {
	case len(data) == 0:
		return Record{}, false, nil
	case d.long.named:
		return Record{Kind: d.long.kind, Data: data}, true, nil
	}
	return Record{}, false, d.long.held.write(data, d.limits.held)
}

// piece returns the next piece of a long line. It returns no record at the end
// of the line.
func (d *LogDecoder) piece() (rec Record, ok bool, err error) {
	if first := d.long.first; first != nil {
		d.long.first = nil
		if rec, ok, err := d.deliver(first); ok || err != nil {
			return rec, ok, err
		}
	}
	for d.long.state == inData {
		data, n, st := decodeString(&d.pooled.out, d.buf[d.pos:d.end])
		if st == stringBad && len(data) == 0 {
			return Record{}, false, notJSON(d.buf[d.pos:d.end], errors.New("invalid character or escape in a string"))
		}
		d.pos += n
		if st == stringClosed {
			d.long.state, d.looked = inTail, d.pos
		}
		if rec, ok, err := d.deliver(data); ok || err != nil {
			return rec, ok, err
		}
		if st == stringOpen {
			if err := d.need(); err != nil {
				return Record{}, false, err
			}
		}
	}
	if d.long.state == inTail {
		if rec, ok, err := d.tail(); ok || err != nil {
			return rec, ok, err
		}
	}
	if d.long.state == inHeld {
		if cap(d.pooled.out) < d.limits.buffer {
			d.pooled.out = make([]byte, 0, d.limits.buffer)
		}
		data, err := d.long.held.read(d.pooled.out[:cap(d.pooled.out)])
		if len(data) > 0 || err != nil {
			return Record{Kind: d.long.kind, Data: data}, err == nil, err
		}
		return Record{}, false, d.long.close()
	}
	return Record{}, false, nil
}

// need reads more of a line. The end of the input is an error.
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
func (d *LogDecoder) tail() (rec Record, ok bool, err error) {
	for {
		from := max(d.looked, d.pos)
		var rest []byte
		if i := bytes.IndexByte(d.buf[from:d.end], '\n'); i >= 0 {
			rest = d.buf[d.pos : from+i]
			d.pos = from + i + 1
		} else {
			d.looked = d.end
			if d.end-d.pos >= d.limits.tail {
				return Record{}, false, &LineError{Err: errors.New("too much follows the data")}
			}
			err := d.need()
			if err == nil {
				continue
			}
			rest = d.buf[d.pos:d.end]
			if !json.Valid(asObject(rest)) {
				return Record{}, false, err
			}
			d.pos = d.end
		}
		return d.attribute(rest)
	}
}

// attribute ends a long line with what follows its data. If that names the
// stream of held data, the data is delivered next; any other record is
// returned.
func (d *LogDecoder) attribute(rest []byte) (rec Record, ok bool, err error) {
	f, err := decodeFields(asObject(rest))
	if e, bad := errors.AsType[*LineError](err); bad && e.NotJSON {
		return Record{}, false, notJSON(rest, e.Err)
	}
	if err != nil {
		return Record{}, false, err
	}
	if d.long.named {
		d.long = longLine{}
		if f.Stream != nil || f.Data != nil {
			return Record{}, false, &LineError{Err: errors.New("it has more than one stream or data")}
		}
		return Record{}, false, nil
	}
	stream, err := f.stream()
	if err != nil {
		return Record{}, false, err
	}
	if kind, output := outputKinds[stream]; output && f.Data == nil {
		d.long.state, d.long.kind = inHeld, kind
		return Record{}, false, nil
	}
	if err := d.long.close(); err != nil {
		return Record{}, false, err
	}
	if f.Data == nil {
		f.Data = json.RawMessage(`""`) // as good as any string where there is no stream of output
	}
	rec, err = f.record()
	return rec, err == nil, err
}

// asObject returns an object for the end of one whose start was a string.
func asObject(rest []byte) []byte { return append([]byte(`{"":""`), rest...) }
