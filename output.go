package sandbox

import "strings"

// A command's output streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// output holds what a command wrote, in the order of arrival.
type output struct {
	text     strings.Builder
	segments []segment
	// Output that went to a writer is not included.
	noStdout, noStderr bool
}

// segment is a run of bytes of one stream.
type segment struct {
	stream string
	length int
}

func (o *output) add(stream string, data string) {
	o.text.WriteString(data)
	o.mark(stream, len(data))
}

func (o *output) addBytes(stream string, data []byte) {
	o.text.Write(data)
	o.mark(stream, len(data))
}

func (o *output) mark(stream string, n int) {
	if last := len(o.segments) - 1; last >= 0 && o.segments[last].stream == stream {
		o.segments[last].length += n
		return
	}
	o.segments = append(o.segments, segment{stream, n})
}

func (o *output) stdout() (string, bool) { return o.only(Stdout), !o.noStdout }

func (o *output) stderr() (string, bool) { return o.only(Stderr), !o.noStderr }

func (o *output) both() (string, bool) { return o.text.String(), !o.noStdout && !o.noStderr }

func (o *output) only(stream string) string {
	text := o.text.String()
	switch {
	case len(o.segments) == 0:
		return ""
	case len(o.segments) == 1:
		if o.segments[0].stream == stream {
			return text
		}
		return ""
	}
	var b strings.Builder
	for _, seg := range o.segments {
		if seg.stream == stream {
			b.WriteString(text[:seg.length])
		}
		text = text[seg.length:]
	}
	return b.String()
}
