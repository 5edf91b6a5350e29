package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// event is a record with its data.
type event struct {
	Kind          Kind
	Data          string
	Command       string
	Code, Message string
}

// With smallLimits the buffer grows for every line except the shortest. Do not close such a
// decoder: its buffers must not get into the pool.
var smallLimits = limits{first: 48, buffer: 48, keep: 48, line: 48 << 8}

func newSmallDecoder(r io.Reader) *LogDecoder {
	in := make([]byte, smallLimits.buffer)
	return &LogDecoder{r: r, limits: smallLimits, pooled: &buffers{in: in}, buf: in}
}

func readAll(t *testing.T, d *LogDecoder) (events []event, err error) {
	t.Helper()
	for {
		rec, err := d.Next()
		if err != nil {
			_, again := d.Next()
			assert.Equal(t, err, again, "the error stays")
			return events, err
		}
		e := event{Kind: rec.Kind, Data: string(rec.Data)}
		if rec.Error != nil {
			e.Code, e.Message = rec.Error.Code, rec.Error.Message
		}
		if rec.Command != nil {
			e.Command = rec.Command.ID
		}
		events = append(events, e)
	}
}

// joined concatenates the data of each stream.
func joined(events []event) (data [2]string) {
	for _, e := range events {
		if e.Kind == KindStdout || e.Kind == KindStderr {
			data[e.Kind] += e.Data
		}
	}
	return data
}

const sample = `{"command":{"id":"cmd_1","name":"x","args":["a b"],"cwd":"/","sessionId":"s","exitCode":null,"startedAt":1}}
{"stream":"stdout","data":"plain text\n"}
{"stream":"stderr","data":"h\u00e9 é € 😀 \ud83d\ude00 \"\\\/\b\f\n\r\t end"}

  {"stream":"stdout","data":"spaces around"}  ` + "\r" + `
{ "stream" : "stdout" , "data" : "spaces within" }
{"data":"data first","stream":"stderr","ts":1}
{"stream":"stdout","data":"lone \ud83d and \ude00 and \ud83d\u0041 halves \ud83d\ud83d\ude00"}
{"stream":"stdout","data":"` + "bad \xff utf8 \xe2\x82 x \xf0\x9f\x98" + `"}
{"stream":"stdout","data":""}
{"data":"","stream":"stderr"}
{"data":"first line\nsecond \"line\"\nwith\u001b[0m \ud83d\ude00 é € 😀\n","stream":"stdout"}
{"data":"lone \ud83d half, ` + "bad \xff utf8 \xe2\x82" + `","stream":"stderr"}
{"seq":[1,{"data":"x"}],"data":"\n","t":-1e3,"stream":"std\u006fut"}
{"DATA":"not this","data":"but this","STREAM":"stderr","stream":"stdout"}
{"data":"of no stream"}
{"stream":"metrics","data":[1,2]}
{"heartbeat":true}
{"stream":"error","data":{"code":"oops","message":"it broke"}}
{"command":{"id":"cmd_1","exitCode":3}}
`

// ofLine decodes one line with encoding/json only.
func ofLine(line []byte) (e event, err error) {
	if !json.Valid(line) {
		return e, errNotJSON
	}
	var v struct {
		Stream  json.RawMessage `json:"stream"`
		Data    json.RawMessage `json:"data"`
		Command *Command        `json:"command"`
	}
	if err := json.Unmarshal(line, &v); err != nil || line[0] != '{' {
		return e, errShape
	}
	stream := "" // from the last field of that name
	if v.Stream != nil && json.Unmarshal(v.Stream, &stream) != nil {
		return e, errShape
	}
	switch stream {
	case "stdout", "stderr":
		var data *string
		if json.Unmarshal(v.Data, &data) != nil || data == nil {
			return e, errShape
		}
		e.Data = *data
		if e.Kind = KindStdout; stream == "stderr" {
			e.Kind = KindStderr
		}
	case "error":
		var data *struct{ Code, Message string }
		if json.Unmarshal(v.Data, &data) != nil || data == nil {
			return e, errShape
		}
		e = event{Kind: KindError, Code: data.Code, Message: data.Message}
	default:
		e.Kind = KindUnknown
		if stream == "" && v.Command != nil {
			e = event{Kind: KindCommand, Command: v.Command.ID}
		}
	}
	return e, nil
}

var (
	errNotJSON = errors.New("not JSON")
	errShape   = errors.New("wrong shape")
)

// ofStream decodes a stream with encoding/json only.
func ofStream(stream []byte) (events []event, err error) {
	for len(stream) > 0 {
		line, rest, ended := bytes.Cut(stream, []byte("\n"))
		stream = rest
		if line = bytes.Trim(line, " \t\r"); len(line) == 0 {
			continue
		}
		e, err := ofLine(line)
		if !ended && errors.Is(err, errNotJSON) {
			var v json.RawMessage
			if json.NewDecoder(bytes.NewReader(line)).Decode(&v) == io.ErrUnexpectedEOF {
				return events, io.ErrUnexpectedEOF
			}
		}
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, io.EOF
}

// kindOfError maps a decoder's error to ofStream's.
func kindOfError(err error) error {
	if e, ok := errors.AsType[*LineError](err); ok {
		if e.NotJSON {
			return errNotJSON
		}
		return errShape
	}
	return err
}

func TestLogDecoderRecords(t *testing.T) {
	want, wantErr := ofStream([]byte(sample))
	require.Equal(t, io.EOF, wantErr)
	require.Len(t, want, 19)
	assert.Equal(t, "hé é € 😀 😀 \"\\/\b\f\n\r\t end", want[2].Data)
	readers := map[string]func(io.Reader) io.Reader{
		"whole":    func(r io.Reader) io.Reader { return r },
		"bytes":    iotest.OneByteReader,
		"halves":   iotest.HalfReader,
		"data+EOF": iotest.DataErrReader,
	}
	for name, reader := range readers {
		t.Run(name, func(t *testing.T) {
			d := NewLogDecoder(reader(strings.NewReader(sample)))
			defer d.Close()
			got, err := readAll(t, d)
			assert.Equal(t, io.EOF, err)
			assert.Equal(t, want, got)

			got, err = readAll(t, newSmallDecoder(reader(strings.NewReader(sample))))
			assert.Equal(t, io.EOF, err)
			assert.Equal(t, want, got)
		})
	}
}

// A stream may be cut anywhere and read in any two parts: the data delivered before the cut
// is a prefix of the whole stream's data.
func TestLogDecoderCutAtEveryByte(t *testing.T) {
	want, _ := ofStream([]byte(sample))
	whole := joined(want)
	reset := errors.New("connection reset")
	for cut := range len(sample) {
		for _, cutErr := range []error{io.EOF, reset} {
			for _, decoder := range []func(io.Reader) *LogDecoder{NewLogDecoder, newSmallDecoder} {
				d := decoder(io.MultiReader(strings.NewReader(sample[:cut]), iotest.ErrReader(cutErr)))
				got, err := readAll(t, d)
				if d.limits == defaultLimits {
					d.Close()
				}
				data := joined(got)
				for i := range data {
					require.True(t, strings.HasPrefix(whole[i], data[i]), "cut at %d: %q", cut, data[i])
				}
				_, wantErr := ofStream([]byte(sample[:cut]))
				if cutErr == reset {
					wantErr = reset
				}
				require.Equal(t, wantErr, err, "cut at %d", cut)
			}
		}
		d := NewLogDecoder(io.MultiReader(strings.NewReader(sample[:cut]), strings.NewReader(sample[cut:])))
		got, err := readAll(t, d)
		d.Close()
		require.Equal(t, io.EOF, err)
		require.Equal(t, want, got, "in two parts, at %d", cut)
	}
}

func TestLogDecoderBadLines(t *testing.T) {
	for _, test := range []struct {
		line    string
		notJSON bool
	}{
		{"<html>", true},
		{"{", true},
		{`{"stream":"stdout","data":"x"`, true},
		{`{"stream":"stdout","data":"x"}}`, true},
		{`{"stream":"stdout","data":"x"}{"stream":"stdout","data":"y"}`, true},
		{"{\"stream\":\"stdout\",\"data\":\"a\tb\"}", true},
		{`{"stream":"stdout","data":"\x"}`, true},
		{`{"stream":"stdout","data":"\u12g4"}`, true},
		{`{"stream":"stdout","data":5}`, false},
		{`{"stream":"stdout","data":null}`, false},
		{`{"stream":"stdout"}`, false},
		{`{"data":"x","stream":"stdout"`, true},
		{`{"data":"x","stream":"stdout"}}`, true},
		{`{"data":"x","stream":"stdout"]`, true},
		{`{"data":"x" "stream":"stdout"}`, true},
		{"{\"data\":\"a\tb\",\"stream\":\"stdout\"}", true},
		{`{"data":"\x","stream":"stdout"}`, true},
		{`{"data":5,"stream":"stderr"}`, false},
		{`{"data":"x","stream":"error"}`, false},
		{`{"data":"x","command":"x","stream":"stdout"}`, false},
		{`{"stream":5,"data":"x"}`, false},
		{`{"stream":"error","data":"x"}`, false},
		{`{"stream":"error"}`, false},
		{`{"command":"x"}`, false},
		{`{"command":{"exitCode":"x"}}`, false},
		{"null", false},
		{"5", false},
		{"[]", false},
		{`"x"`, false},
	} {
		t.Run(test.line, func(t *testing.T) {
			good := `{"stream":"stdout","data":"good"}` + "\n"
			d := NewLogDecoder(strings.NewReader(good + test.line + "\n" + good))
			defer d.Close()
			got, err := readAll(t, d)
			assert.Equal(t, []event{{Kind: KindStdout, Data: "good"}}, got)
			e, ok := errors.AsType[*LineError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, test.notJSON, e.NotJSON)
			assert.NotEmpty(t, e.Error())
		})
	}
}

func TestLogDecoderExcerptIsBounded(t *testing.T) {
	d := NewLogDecoder(strings.NewReader(strings.Repeat("x", 10_000) + "\n"))
	defer d.Close()
	_, err := d.Next()
	e, ok := errors.AsType[*LineError](err)
	require.True(t, ok)
	assert.Len(t, e.Excerpt, maxExcerpt)
	assert.Less(t, len(e.Error()), 300)
}

// repeat returns a reader of text repeated up to n bytes.
func repeat(text string, n int64) io.Reader {
	return io.LimitReader(&repeater{text: text}, n)
}

type repeater struct {
	text string
	at   int
}

func (r *repeater) Read(p []byte) (n int, err error) {
	for n < len(p) {
		k := copy(p[n:], r.text[r.at:])
		n += k
		r.at = (r.at + k) % len(r.text)
	}
	return n, nil
}

// TestLogDecoderLongLines: a line of up to 16 MiB is one record. A longer one is an error,
// before it needs more memory.
func TestLogDecoderLongLines(t *testing.T) {
	rows := []struct{ name, head, unit, decoded, tail string }{
		{"escapes", `{"stream":"stderr","data":"`, `\n\u00e9`, "\né", `"}`},
		{"data first, spaces and more", `{ "ts" : {"a":[1]}, "data" : "`, "abcdefg", "abcdefg", `" , "more" : {"data":1} , "stream" : "stderr" } `},
		// Only in the slow run:
		{"invalid", `{"stream":"stdout","data":"`, "\xe2\x82x", "\ufffd\ufffdx", `"}`},
		{"plain", `{"stream":"stdout","data":"`, "abcdefg", "abcdefg", `"}`},
		{"pairs", `{"stream":"stdout","data":"`, `x\ud83d\ude00`, "x😀", `"}`},
		{"halves", `{"stream":"stdout","data":"`, `\ud83dx`, "\ufffdx", `"}`},
		{"UTF-8", `{"stream":"stdout","data":"`, "x€😀", "x€😀", `"}`},
		{"data first", `{"data":"`, "abcdefg", "abcdefg", `","stream":"stdout"}`},
		{"data first, escapes", `{"data":"`, `\n\u00e9😀`, "\né😀", `","stream":"stderr"}`},
	}
	if !needs.Slow() {
		rows = rows[:2]
	}
	for _, test := range rows {
		t.Run(test.name, func(t *testing.T) {
			// The line feed counts.
			units := (maxLine - len(test.head+test.tail) - 1) / len(test.unit)
			after := `{"stream":"stderr","data":"after"}` + "\n"
			line := func(units int) *LogDecoder {
				return NewLogDecoder(io.MultiReader(strings.NewReader(test.head), repeat(test.unit, int64(units*len(test.unit))),
					strings.NewReader(test.tail+"\n"+after)))
			}
			d := line(units)
			defer d.Close()
			rec, err := d.Next()
			require.NoError(t, err)
			require.True(t, string(rec.Data) == strings.Repeat(test.decoded, units))
			rec, err = d.Next()
			require.NoError(t, err)
			assert.Equal(t, "after", string(rec.Data))
			_, err = d.Next()
			assert.Equal(t, io.EOF, err)

			d = line(4 * units)
			defer d.Close()
			_, err = d.Next()
			e, ok := errors.AsType[*LineError](err)
			require.True(t, ok, "%v", err)
			assert.True(t, e.TooLong)
			assert.Len(t, d.buf, maxLine, "memory")
		})
	}
}

func TestLogDecoderClosed(t *testing.T) {
	d := NewLogDecoder(strings.NewReader(sample))
	d.Close()
	d.Close()
	_, err := d.Next()
	require.Error(t, err)
	assert.NotEqual(t, io.EOF, err)
}

func TestLogDecoderNoProgress(t *testing.T) {
	d := NewLogDecoder(readerFunc(func([]byte) (int, error) { return 0, nil }))
	defer d.Close()
	_, err := d.Next()
	assert.Equal(t, io.ErrNoProgress, err)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestLogDecoderAllocatesNothingPerLine(t *testing.T) {
	line := `{"stream":"stdout","data":"some text, é, \"quoted\"\n"}` + "\n"
	d := NewLogDecoder(&repeater{text: line})
	defer d.Close()
	_, err := d.Next()
	require.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(5000, func() { _, _ = d.Next() }))
}

// Lines of output in the exact order, spacing and members of the platform are decoded
// without encoding/json. Only the two lines about the command need it.
func TestLogDecoderKnowsThePlatformsLines(t *testing.T) {
	stream := `{"command":{"id":"cmd_5a1d","name":"sh","args":["-c","echo \"a\"; ls | wc"],"cwd":"/vercel","sessionId":"sbx_9Yk2","startedAt":1760000000123,"exitCode":null}}
{"data":"one\n","stream":"stdout"}
{"data":"no such file\n","stream":"stderr"}
{"data":"NAME=\"Some OS\"\nVERSION=\"1\"\n/home/é\n\u001b[32mok\u001b[0m\n","stream":"stdout"}
{"data":"no newline","stream":"stdout"}
{"command":{"id":"cmd_5a1d","name":"sh","args":["-c","echo \"a\"; ls | wc"],"cwd":"/vercel","sessionId":"sbx_9Yk2","startedAt":1760000000123,"exitCode":0,"durationMs":1007}}
`
	want, err := ofStream([]byte(stream))
	require.Equal(t, io.EOF, err)
	require.Len(t, want, 6)
	for name, reader := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader,
	} {
		t.Run(name, func(t *testing.T) {
			d := NewLogDecoder(reader(strings.NewReader(stream)))
			defer d.Close()
			got, err := readAll(t, d)
			assert.Equal(t, io.EOF, err)
			assert.Equal(t, want, got)
			assert.Equal(t, 2, d.slow, "lines decoded by encoding/json")
		})
	}
}

// Lines recorded from the hosted service are decoded in the same way. SANDBOX_LIVE_TRACES
// names the folder of the recordings; they are not part of this module.
func TestLogDecoderKnowsRecordedLines(t *testing.T) {
	dir := os.Getenv("SANDBOX_LIVE_TRACES")
	if dir == "" {
		needs.Other(t, "needs recorded exchanges of the hosted API, in the folder that SANDBOX_LIVE_TRACES names")
	}
	traces, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	require.NoError(t, err)
	streams, records := 0, 0
	for _, trace := range traces {
		data, err := os.ReadFile(trace)
		require.NoError(t, err)
		for line := range bytes.Lines(data) {
			var exchange struct {
				Headers map[string]string
				Body    json.RawMessage
			}
			var body string
			require.NoError(t, json.Unmarshal(line, &exchange))
			if exchange.Headers["content-type"] != "application/x-ndjson" || json.Unmarshal(exchange.Body, &body) != nil {
				continue
			}
			d := NewLogDecoder(strings.NewReader(body))
			events, err := readAll(t, d)
			assert.Equal(t, io.EOF, err, body)
			commands := 0
			for _, e := range events {
				if e.Kind == KindCommand {
					commands++
				}
			}
			assert.Equal(t, commands, d.slow, "lines decoded by encoding/json of %s", body)
			d.Close()
			streams, records = streams+1, records+len(events)
		}
	}
	require.Greater(t, records, 10, "the traces hold streams")
	t.Logf("%d records of %d streams", records, streams)
}

// Lines with members in another order, additional members, or spaces between
// tokens are read as well.
func TestLogDecoderKnowsOddLines(t *testing.T) {
	for _, line := range []string{
		`{"stream":"stderr","data":"text\n"}`,
		`{ "data": "text\n", "stream": "stderr" }`,
		` {	"stream" : "stderr" , "data" : "text\n" }  `,
		`{"ts":1760000000123,"data":"text\n","seq":[1,null,{"a":true}],"stream":"stderr"}`,
		`{"stream":"stderr","ts":-1.5e3,"data":"text\n","last":"x"}`,
		`{"data":"t\u0065xt\n","stream":"\u0073tderr"}`,
	} {
		for _, reader := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader} {
			d := NewLogDecoder(reader(strings.NewReader(line + "\n")))
			got, err := readAll(t, d)
			assert.Equal(t, io.EOF, err)
			assert.Equal(t, []event{{Kind: KindStderr, Data: "text\n"}}, got, line)
			d.Close()
		}
	}
}
