package tunnel

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A frame is its kind in one byte, the length of its data in two, big-endian,
// and the data. Only frameData has any.
const (
	frameData  = 'd'
	frameEnd   = 'e' // no more data follows
	frameReset = 'r' // from the sandbox: the server has reset the connection
	frameDeaf  = 'x' // from the sandbox: the server takes no more data
	frameClose = 'c' // to the sandbox: deliver what was sent, and exit
)

const (
	headSize = 3
	// maxData is how much a frame carries to the sandbox: with its head, what a
	// message of a terminal does. The other way it may be all that a length says.
	maxData = 32<<10 - headSize
)

// putHead writes the head of a frame to the beginning of b.
func putHead(b []byte, kind byte, size int) {
	b[0] = kind
	binary.BigEndian.PutUint16(b[1:], uint16(size)) //nolint:gosec // at most maxData
}

// readFrame reads a frame from the sandbox. Its data is in buf, which it makes
// larger if need be. The error is io.EOF only between frames.
func readFrame(r io.Reader, buf []byte) (kind byte, data []byte, err error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := int(binary.BigEndian.Uint16(head[1:]))
	switch kind = head[0]; {
	case kind == frameData:
	case size == 0 && (kind == frameEnd || kind == frameReset || kind == frameDeaf):
		return kind, nil, nil
	default:
		return 0, nil, fmt.Errorf("the helper in the sandbox sent %q with %d bytes, which it never does", kind, size)
	}
	if len(buf) < size {
		buf = make([]byte, size)
	}
	if _, err := io.ReadFull(r, buf[:size]); err == io.EOF {
		return 0, nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return 0, nil, err
	}
	return kind, buf[:size], nil
}
