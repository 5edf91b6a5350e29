package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzLogDecoder(f *testing.F) {
	for line := range strings.Lines(sample) {
		f.Add([]byte(line), 7)
	}
	f.Add([]byte(sample), 1000)
	f.Add([]byte(`{"stream":"stdout","data":"0123456789012345678901234567890123456789","ts":1}`), 3)
	f.Add([]byte(`{"data":"0123456789012345678901234567890123456789\ud83d","STREAM":"stderr","stream":"stdout"}`), 3)
	f.Add([]byte(`{"Stream":"stdout","stream":"stderr","data":"0123456789012345678901234567890123456789","ts":1}`), 3)
	f.Add([]byte(`{"stream":"stdout","STREAM":"stderr","data":"0123456789012345678901234567890123456789","ts":1}`), 3)
	f.Add([]byte(`{"streAm":[],"streAm":""}`), 3)
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

		got, err = readAll(t, newSmallDecoder(reader()))
		if e, long := errors.AsType[*LineError](err); !long || !e.TooLong {
			require.Equal(t, want, got)
			require.Equal(t, wantErr, kindOfError(err), "%v", err)
		}
	})
}

// FuzzOutput puts any text into output records of many forms, and reads them in
// two parts.
func FuzzOutput(f *testing.F) {
	forms := []string{
		`{"data":"%s","stream":"stdout"}`,
		`{"data":"%s","stream":"stderr"}`,
		`{"stream":"stdout","data":"%s"}`,
		`{"stream":"stderr","data":"%s"}`,
		` { "data" : "%s" , "stream" : "stdout" } `,
		`{"stream": "stderr", "data": "%s"}`,
		`{"ts":1,"data":"%s","stream":"stdout","more":{"data":"x"}}`,
		`{"data":"%s","ts":[1],"stream":"stderr"}`,
		`{"data":"%s","stream":"std\u006fut"}`,
		`{"data":"%s","Stream":"stdout"}`,
		`{"data":"%s","data":"twice","stream":"stdout"}`,
		`{"data":"%s","stream":"stderr","stream":"stdout"}`,
		`{"data":"%s","stream":null}`,
	}
	for i, text := range []string{
		"", "text", `text\n`, `\n`, `a\nb\nc\n`, `\ud83d\ude00`, `\ud83d`, `\ude00\ud83d`, `\ud83dA\n`, `\u00e9é€😀`, "\xff\xe2\x82", "\xf0\x9f\x98",
		`"`, `\"`, `\\`, `\\\`, `\/\b\f\r\t`, "\t", `\x`, `\u12`, "0123456789012345678901234567890\\n", strings.Repeat("long ", 30) + `\n`, strings.Repeat(`é\n`, 40),
	} {
		f.Add([]byte(text), uint(i), 12)
	}
	f.Fuzz(func(t *testing.T, text []byte, form uint, split int) {
		// Lines before and after must not be affected.
		frame := `{"data":"frame\n","stream":"stdout"}` + "\n"
		line := strings.Replace(forms[form%uint(len(forms))], "%s", string(text), 1)
		stream := frame + line + "\n" + frame
		want, wantErr := ofStream([]byte(stream))
		split = min(max(split, 0), len(stream))
		reader := func() io.Reader {
			return io.MultiReader(strings.NewReader(stream[:split]), strings.NewReader(stream[split:]))
		}
		d := NewLogDecoder(reader())
		defer d.Close()
		got, err := readAll(t, d)
		require.Equal(t, want, got)
		require.Equal(t, wantErr, kindOfError(err), "%v", err)
		got, err = readAll(t, newSmallDecoder(reader()))
		if e, long := errors.AsType[*LineError](err); !long || !e.TooLong {
			require.Equal(t, want, got)
			require.Equal(t, wantErr, kindOfError(err), "%v", err)
		}
	})
}

func BenchmarkLogDecoder(b *testing.B) {
	output := func(data string) string { return `{"data":"` + data + `","stream":"stdout"}` }
	ascii := strings.Repeat("0123456789abcdef", 256)
	escapes := strings.Repeat(`say \"é\" \\ €\n😀\u001b[0m `, 30)
	for _, bench := range []struct{ name, line string }{
		{"ascii4096", output(ascii + `\n`)},
		{"ascii4096streamFirst", `{"stream":"stdout","data":"` + ascii + `\n"}`},
		{"ascii40", output(strings.Repeat("0123456789", 4) + `\n`)},
		{"ascii40streamFirst", `{"stream":"stdout","data":"` + strings.Repeat("0123456789", 4) + `\n"}`},
		{"lines", output(strings.Repeat("a line of sixty-four bytes, of which there are many in a record.\\n", 64))},
		{"escapes", output(escapes)},
		{"escapesStreamFirst", `{"stream":"stdout","data":"` + escapes + `"}`},
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
