package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// event is a record with its data kept; pieces of one line are joined.
type event struct {
	Kind          Kind
	Data          string
	Command       string
	Code, Message string
}

// smallLimits makes every line but the shortest a long one. Such a decoder must
// not be closed: its buffers do not belong into the pool.
var smallLimits = limits{buffer: 48, whole: 48, line: 4 << 10}

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
		e := event{Kind: rec.Kind, Data: string(rec.Data), Code: rec.ErrCode, Message: rec.ErrMessage}
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
{"stream":"metrics","data":[1,2]}
{"heartbeat":true}
{"stream":"error","data":{"code":"oops","message":"it broke"}}
{"command":{"id":"cmd_1","exitCode":3}}
`

// ofLine decodes one line with encoding/json alone.
func ofLine(line []byte) (e event, err error) {
	if !json.Valid(line) {
		return e, errNotJSON
	}
	var v struct {
		Stream  *string         `json:"stream"`
		Data    json.RawMessage `json:"data"`
		Command *Command        `json:"command"`
	}
	if err := json.Unmarshal(line, &v); err != nil || line[0] != '{' {
		return e, errShape
	}
	stream := ""
	if v.Stream != nil {
		stream = *v.Stream
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

// ofStream decodes a stream with encoding/json alone.
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
	require.Len(t, want, 13)
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
			assert.Equal(t, joined(want), joined(got))
		})
	}
}

// A stream may be cut anywhere and be read in any two parts: what was delivered
// before the cut is a prefix of what the whole stream gives.
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
					require.NoError(t, d.Close())
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
		require.NoError(t, d.Close())
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

// repeat is an endless supply of a text, cut at n bytes.
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

func TestLogDecoderLongLines(t *testing.T) {
	const units = 300_000
	for _, test := range []struct{ name, head, unit, decoded, tail string }{
		{"plain", `{"stream":"stdout","data":"`, "abcdefg", "abcdefg", `"}`},
		{"escapes", `{"stream":"stderr","data":"`, `\n\u00e9`, "\né", `"}`},
		{"pairs", `{"stream":"stdout","data":"`, `x\ud83d\ude00`, "x😀", `"}`},
		{"halves", `{"stream":"stdout","data":"`, `\ud83dx`, "\ufffdx", `"}`},
		{"UTF-8", `{"stream":"stdout","data":"`, "x€😀", "x€😀", `"}`},
		{"invalid", `{"stream":"stdout","data":"`, "\xe2\x82x", "\ufffd\ufffdx", `"}`},
		{"spaces and more", `{ "ts" : {"a":[1]}, "stream" : "stdout" , "data" : "`, "abcdefg", "abcdefg", `" , "more" : {"data":1} } `},
	} {
		t.Run(test.name, func(t *testing.T) {
			after := `{"stream":"stderr","data":"after"}` + "\n"
			d := NewLogDecoder(io.MultiReader(strings.NewReader(test.head), repeat(test.unit, units*int64(len(test.unit))),
				strings.NewReader(test.tail+"\n"+after)))
			defer d.Close()
			want := repeat(test.decoded, units*int64(len(test.decoded)))
			buf := make([]byte, 8<<20)
			for {
				rec, err := d.Next()
				require.NoError(t, err)
				if string(rec.Data) == "after" {
					break
				}
				require.LessOrEqual(t, len(d.buf), 1<<20, "memory")
				require.LessOrEqual(t, cap(d.pooled.out), 4<<20, "memory")
				_, err = io.ReadFull(want, buf[:len(rec.Data)])
				require.NoError(t, err)
				require.True(t, bytes.Equal(buf[:len(rec.Data)], rec.Data))
			}
			n, _ := io.Copy(io.Discard, want)
			assert.Zero(t, n, "all was delivered")
			_, err := d.Next()
			assert.Equal(t, io.EOF, err)
		})
	}
}

func TestLogDecoderLongLineAtOnce(t *testing.T) {
	data := strings.Repeat("x", 1<<20-100)
	d := NewLogDecoder(strings.NewReader(`{"stream":"stdout","data":"` + data + `"}`))
	defer d.Close()
	got, err := readAll(t, d)
	assert.Equal(t, io.EOF, err)
	assert.Len(t, got, 1, "a line of up to a megabyte is one record")
	assert.True(t, got[0].Data == data)
}

func TestLogDecoderBadLongLines(t *testing.T) {
	data := strings.Repeat("0123456789", 100)
	for _, test := range []struct {
		name, line string
		want       error
	}{
		{"newline within", `{"stream":"stdout","data":"` + data + "\n" + `"}`, errNotJSON},
		{"bad escape", `{"stream":"stdout","data":"` + data + `\q"}`, errNotJSON},
		{"garbage behind", `{"stream":"stdout","data":"` + data + `"]`, errNotJSON},
		{"two data", `{"stream":"stdout","data":"` + data + `","data":"x"}`, errShape},
		{"two streams", `{"stream":"stdout","data":"` + data + `","stream":"stderr"}`, errShape},
		{"much behind", `{"stream":"stdout","data":"` + data + `","x":"` + data + `"}`, errShape},
		{"longer than the limit", `{"data":"` + strings.Repeat(data, 10) + `"}`, errShape},
		{"cut in the data", `{"stream":"stdout","data":"` + data, io.ErrUnexpectedEOF},
		{"cut in an escape", `{"stream":"stdout","data":"` + data + `\u12`, io.ErrUnexpectedEOF},
		{"cut behind", `{"stream":"stdout","data":"` + data + `"`, io.ErrUnexpectedEOF},
		{"no newline", `{"stream":"stdout","data":"` + data + `"}`, io.EOF},
	} {
		t.Run(test.name, func(t *testing.T) {
			line := test.line
			if kindOfError(test.want) == errNotJSON || test.want == errShape {
				line += "\n"
			}
			_, err := readAll(t, newSmallDecoder(strings.NewReader(line)))
			assert.Equal(t, test.want, kindOfError(err), "%v", err)
		})
	}
}

func TestLogDecoderClosed(t *testing.T) {
	d := NewLogDecoder(strings.NewReader(sample))
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
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

func FuzzLogDecoder(f *testing.F) {
	for line := range strings.Lines(sample) {
		f.Add([]byte(line), 7)
	}
	f.Add([]byte(sample), 1000)
	f.Add([]byte(`{"stream":"stdout","data":"0123456789012345678901234567890123456789","ts":1}`), 3)
	f.Fuzz(func(t *testing.T, stream []byte, split int) {
		want, wantErr := ofStream(stream)
		split = min(max(split, 0), len(stream))
		reader := func() io.Reader {
			return io.MultiReader(bytes.NewReader(stream[:split]), bytes.NewReader(stream[split:]))
		}
		d := NewLogDecoder(reader())
		defer d.Close()
		got, err := readAll(t, d)
		require.Equal(t, want, got)
		require.Equal(t, wantErr, kindOfError(err), "%v", err)

		// In pieces, what comes is at least what came before a bad line, and
		// never anything else.
		got, err = readAll(t, newSmallDecoder(reader()))
		wantData, gotData := joined(want), joined(got)
		if err == io.EOF && wantErr == io.EOF {
			require.Equal(t, wantData, gotData)
		}
		if wantErr != io.EOF {
			require.NotEqual(t, io.EOF, err)
		}
	})
}

func BenchmarkLogDecoder(b *testing.B) {
	for _, bench := range []struct{ name, line string }{
		{"ascii4096", `{"stream":"stdout","data":"` + strings.Repeat("0123456789abcdef", 256) + `\n"}`},
		{"ascii4096clean", `{"stream":"stdout","data":"` + strings.Repeat("0123456789abcdef", 256) + `"}`},
		{"ascii40", `{"stream":"stdout","data":"` + strings.Repeat("0123456789", 4) + `\n"}`},
		{"escapes", `{"stream":"stdout","data":"` + strings.Repeat(`say \"é\" \\ €\n😀\u001b[0m `, 30) + `"}`},
		{"keysSwapped", `{"data":"` + strings.Repeat("0123456789abcdef", 64) + `","stream":"stdout"}`},
		{"command", `{"command":{"id":"cmd_1","name":"node","args":["-v"],"cwd":"/vercel/sandbox","sessionId":"s","exitCode":0,"startedAt":1700000002000}}`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			d := NewLogDecoder(&repeater{text: bench.line + "\n"})
			defer d.Close()
			b.SetBytes(int64(len(bench.line) + 1))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func ExampleLogDecoder() {
	stream := `{"stream":"stdout","data":"hello\n"}` + "\n"
	d := NewLogDecoder(strings.NewReader(stream))
	defer d.Close()
	for {
		rec, err := d.Next()
		if err != nil {
			break
		}
		fmt.Printf("%q\n", rec.Data)
	}
	// Output: "hello\n"
}
