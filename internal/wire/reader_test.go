package wire

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pieces reads in pieces of the given size.
type pieces struct {
	r io.Reader
	n int
}

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.n)]) }

// TestReader: objects are counted by structure, and fractions of zeros are removed from
// numbers only, wherever the text is cut.
func TestReader(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		in, out string
		objects int
	}{
		{`{}`, `{}`, 1},
		{`[{"a":"{{{"},{"b":"\"{\\"},"{\\\"{",{"c":{}}]`, `[{"a":"{{{"},{"b":"\"{\\"},"{\\\"{",{"c":{}}]`, 4},
		{`"\\\\"{`, `"\\\\"{`, 1},
		{`{"a":7.0,"b":[0.000,-3.00],"c":1.0}`, `{"a":7,"b":[0,-3],"c":1}`, 1},
		{`{"a":7.05,"b":7.0e1,"c":"7.0","d":1.50,"e":10.0 }`, `{"a":7.05,"b":7.0e1,"c":"7.0","d":1.50,"e":10 }`, 1},
		{`[7.0`, `[7.0`, 0}, // cut off: the decoder reports that
		{`[1.` + strings.Repeat("0", 100) + `]`, `[1` + strings.Repeat("0", 0) + `]`, 0},
		{" \n\t{\r\n\"a  b\" :  [ 1.0  ,2.0 ] \n }  ", " \n\t{\r\n\"a  b\" :  [ 1  ,2 ] \n }  ", 1},
		{``, ``, 0},
	} {
		for size := 1; size <= len(x.in)+1; size++ {
			for _, r := range []io.Reader{pieces{strings.NewReader(x.in), size}, iotest.DataErrReader(pieces{strings.NewReader(x.in), size})} {
				in := NewReader(r)
				got, err := io.ReadAll(in)
				require.NoError(t, err)
				require.Equal(t, x.objects, in.objects, x.in)
				require.EqualValues(t, len(x.in), in.Size)
				if len(x.in) < 100 || size == len(x.in)+1 {
					require.Equal(t, x.out, string(got), "in pieces of %d", size)
				}
			}
		}
	}
}

// FuzzReader: the reader does not change the meaning of valid JSON.
func FuzzReader(f *testing.F) {
	for _, s := range []string{`{"a":[1.0,2.50,"\"{\\",{"b":null}]}`, `"{\\\"{"`, `[-0.0,1e5,1.0E+2]`} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, text string, size int) {
		var want any
		if json.Unmarshal([]byte(text), &want) != nil {
			return
		}
		in := NewReader(pieces{strings.NewReader(text), max(1, size)})
		data, err := io.ReadAll(in)
		require.NoError(t, err)
		var got any
		require.NoError(t, json.Unmarshal(data, &got), "%s", data)
		require.Equal(t, want, got)
		require.Equal(t, objectsIn(want) > 0, in.objects > 0)
		if !strings.Contains(text, `"`) { // without keys that come twice
			require.Equal(t, objectsIn(want), in.objects)
		}
	})
}

func objectsIn(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		n = 1
		for _, e := range v {
			n += objectsIn(e)
		}
	case []any:
		for _, e := range v {
			n += objectsIn(e)
		}
	}
	return n
}

// TestRefusalsOfAnyForm: the code counts, whatever the message is.
func TestRefusalsOfAnyForm(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]RecordError{
		`{"code":"c","message":"m"}`:                   {"c", "m"},
		`{"code":"c"}`:                                 {"c", ""},
		`{"code":"c","message":null}`:                  {"c", ""},
		`{"message":{"en":"m"},"code":"c"}`:            {"c", `{"en":"m"}`},
		`{"message":["m",1],"code":"c"}`:               {"c", `["m",1]`},
		`{"message":404,"code":"c","more":{"code":5}}`: {"c", `404`},
	} {
		var got RecordError
		require.NoError(t, json.Unmarshal([]byte(text), &got), text)
		assert.Equal(t, want, got, text)
	}
}
