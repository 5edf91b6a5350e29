package wire

import "bytes"

// line is the progress of decoding the line at the decoder's position. With it no byte of
// a usual line is examined twice, whatever pieces the line arrives in. Offsets are
// relative to the start of the line.
type line struct {
	// unusual is set if output can't decode the line, which is decoded once it
	// is complete.
	unusual bool
	// data is the offset of the data's string; 0 if it is not known yet.
	data int
	// named is set if kind is known. In the platform's order, the name of the stream follows
	// the data, and kind is not known yet.
	named bool
	kind  Kind
	// at is the offset up to which the string has been read. A decoded string is in
	// buffers.out; otherwise the text itself is the result.
	at      int
	decoded bool
}

const (
	// Output as the platform writes it.
	dataHead   = `{"data":"`
	stdoutTail = `,"stream":"stdout"}` + "\n"
	stderrTail = `,"stream":"stderr"}` + "\n"
	// Output in another order.
	stdoutHead = `{"stream":"stdout","data":"`
	stderrHead = `{"stream":"stderr","data":"`
)

// output decodes the line at the decoder's position as a record of output. The
// state is stringClosed if it succeeded, stringOpen if it needs more of the
// line, and stringBad if the line is not such a record, or an unusual one.
func (d *LogDecoder) output() (Record, stringState) {
	b := d.buf[d.pos:d.end]
	l := &d.line
	if l.data == 0 {
		if rec, ok := d.usual(b); ok {
			return rec, stringClosed
		}
	}
	if l.data == 0 {
		if st := l.head(b); st != stringClosed {
			return Record{}, st
		}
	}
	var data []byte
	var quote int // where the string ends
	if !l.decoded {
		l.at += textPrefix(b[l.at:])
		switch rest := b[l.at:]; {
		case len(rest) == 0:
			return Record{}, stringOpen
		case rest[0] == '"':
			data, quote = b[l.data:l.at], l.at
		case len(rest) > 2 && rest[0] == '\\' && rest[1] == 'n' && rest[2] == '"':
			// Most output ends with a newline, which is decoded in place.
			data, quote = b[l.data:l.at+1], l.at+2
		default:
			d.pooled.out = append(d.pooled.out[:0], b[l.data:l.at]...)
			l.decoded = true
		}
	}
	if l.decoded {
		out, n, st := unescape(d.pooled.out, b[l.at:])
		d.pooled.out = out
		l.at += n
		if st != stringClosed {
			return Record{}, st
		}
		l.at-- // the quote, where to continue if the rest has not arrived
		data, quote = out, l.at
	}
	kind, end, st := l.tail(b, quote+1)
	if st != stringClosed {
		return Record{}, st
	}
	if quote > l.at {
		b[l.at] = '\n'
	}
	d.pos += end
	*l = line{}
	return Record{Kind: kind, Data: data}, stringClosed
}

// usual decodes a complete line whose text ends with a newline, which is the usual kind.
// It records its progress.
func (d *LogDecoder) usual(b []byte) (rec Record, ok bool) {
	if len(b) < len(dataHead) || string(b[:len(dataHead)]) != dataHead {
		return Record{}, false
	}
	data := b[len(dataHead):]
	n := plainPrefix(data)
	const head, size = `\n"`, len(`\n"`) + len(stdoutTail)
	if rest := data[n:]; len(rest) >= size && string(rest[:len(head)]) == head {
		switch string(rest[len(head):size]) {
		case stderrTail:
			rec.Kind = KindStderr
			fallthrough
		case stdoutTail:
			rest[0] = '\n'
			rec.Data = data[: n+1 : n+1]
			d.pos += len(dataHead) + n + size
			return rec, true
		}
	}
	d.line.data, d.line.at = len(dataHead), len(dataHead)+n
	return Record{}, false
}

// head finds the start of the data.
func (l *line) head(b []byte) stringState {
	switch {
	case len(b) >= len(dataHead) && string(b[:len(dataHead)]) == dataHead:
		l.data = len(dataHead)
	case len(b) >= len(stdoutHead) && string(b[:len(stdoutHead)]) == stdoutHead:
		l.data, l.kind, l.named = len(stdoutHead), KindStdout, true
	case len(b) >= len(stderrHead) && string(b[:len(stderrHead)]) == stderrHead:
		l.data, l.kind, l.named = len(stderrHead), KindStderr, true
	case len(b) < len(stdoutHead) && bytes.IndexByte(b, '\n') < 0:
		return stringOpen
	default:
		return stringBad
	}
	l.at = l.data
	return stringClosed
}

// tail reads the rest of the line, from offset i after the data, and returns where the
// line ends.
func (l *line) tail(b []byte, i int) (kind Kind, end int, st stringState) {
	rest := b[i:]
	if l.named {
		if len(rest) > 1 && rest[0] == '}' && rest[1] == '\n' {
			return l.kind, i + 2, stringClosed
		}
	} else if len(rest) >= len(stdoutTail) {
		switch string(rest[:len(stdoutTail)]) {
		case stdoutTail:
			return KindStdout, i + len(stdoutTail), stringClosed
		case stderrTail:
			return KindStderr, i + len(stderrTail), stringClosed
		}
	}
	if len(rest) < len(stdoutTail) && bytes.IndexByte(rest, '\n') < 0 {
		return 0, 0, stringOpen
	}
	return 0, 0, stringBad
}
