package tunnel

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzReadFrame: whatever stands for the helper in the sandbox, a frame is what was
// written, and what is none ends the connection.
func FuzzReadFrame(f *testing.F) {
	for _, text := range []string{
		told(frameData, "hi") + told(frameEnd, ""), told(frameData, "hi")[:8], told(frameEnd, "x"), told('q', ""), told(frameMore, "1234"), told(frameOpen, ""),
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

// told is a frame of the first connection.
func told(kind byte, data string) string { return string(appendFrame(nil, kind, 1, []byte(data))) }
