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
	f.Add([]byte("d\x00\x02hie\x00\x00"))
	f.Add([]byte("d\xff\xffshort"))
	f.Add([]byte("e\x00\x01x"))
	f.Add([]byte("q\x00\x00"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		r := bytes.NewReader(sent)
		buf := make([]byte, 4)
		var again []byte
		for {
			kind, data, err := readFrame(r, buf)
			if err != nil {
				if err == io.EOF {
					assert.Equal(t, len(sent), len(again), "whole frames only")
				}
				break
			}
			head := make([]byte, headSize)
			putHead(head, kind, len(data))
			again = append(append(again, head...), data...)
		}
		assert.True(t, bytes.HasPrefix(sent, again))
	})
}
