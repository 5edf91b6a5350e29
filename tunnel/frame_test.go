package tunnel

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzReadFrame: readFrame returns exactly the bytes that were sent, or an error.
func FuzzReadFrame(f *testing.F) {
	for _, text := range []string{
		firstConnFrame(frameData, "hi") + firstConnFrame(frameEOF, ""), firstConnFrame(frameData, "hi")[:8], firstConnFrame(frameEOF, "x"), firstConnFrame('q', ""), firstConnFrame(frameCredit, "1234"), firstConnFrame(frameOpen, ""),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		r := bytes.NewReader(sent)
		buf := make([]byte, 1<<16)
		var again []byte
		for {
			kind, id, data, err := readFrame(r, buf)
			if err != nil {
				if err == io.EOF {
					assert.Equal(t, len(sent), len(again), "whole frames only")
				}
				break
			}
			again = appendFrame(again, kind, id, data)
		}
		assert.True(t, bytes.HasPrefix(sent, again))
	})
}

// firstConnFrame returns a frame of the first connection.
func firstConnFrame(kind byte, data string) string {
	return string(appendFrame(nil, kind, 1, []byte(data)))
}
