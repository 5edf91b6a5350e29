package tunnel

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A frame is its kind in one byte, the number of a connection in four and the
// length of its data in two, both big-endian, and the data.
const (
	frameOpen    = 'o' // to the sandbox, with the port; back, when it is connected
	frameRefused = 'n' // from the sandbox: nothing listens there
	frameData    = 'd'
	frameMore    = 'w' // so many bytes more may be sent
	frameEnd     = 'e' // no more data follows
	frameReset   = 'r' // from the sandbox: the server has reset the connection
	frameDeaf    = 'x' // from the sandbox: the server takes no more data
	frameClose   = 'c' // to the sandbox: close when what was sent is delivered; back, when it is
	frameAbort   = 'k' // to the sandbox: close at once
	frameQuit    = 'q' // to the sandbox: exit
)

const (
	headSize = 7
	// maxMessage is what a message of a terminal carries.
	maxMessage = 32 << 10
	// maxData is how much a frame carries to the sandbox: with its head, a message.
	// The other way it may be all that a length says.
	maxData = maxMessage - headSize
)

// window is how many bytes one end may send before the other has let go of some:
// both ends begin with the first, and allow as much as the second where there are
// so few connections that all of them stay below the third.
const (
	firstWindow = 256 << 10
	maxWindow   = 2 << 20
	allWindows  = 32 << 20
)

// appendFrame appends a frame to b.
func appendFrame(b []byte, kind byte, id uint32, data []byte) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, id)
	b = binary.BigEndian.AppendUint16(b, uint16(len(data))) //nolint:gosec // at most maxData
	return append(b, data...)
}

// sizes are the lengths of the data of the frames that a sandbox sends, but for
// frameData.
var sizes = map[byte]int{frameOpen: 0, frameRefused: 0, frameMore: 4, frameEnd: 0, frameReset: 0, frameDeaf: 0, frameClose: 0}

// readFrame reads a frame from the sandbox. Its data is in buf, which has room for
// 64 KiB. The error is io.EOF only between frames.
func readFrame(r io.Reader, buf []byte) (kind byte, id uint32, data []byte, err error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, nil, err
	}
	kind, id = head[0], binary.BigEndian.Uint32(head[1:])
	size := int(binary.BigEndian.Uint16(head[5:]))
	if want, ok := sizes[kind]; kind != frameData && (!ok || size != want) {
		return 0, 0, nil, fmt.Errorf("the helper in the sandbox sent %q with %d bytes, which it never does", kind, size)
	}
	if _, err := io.ReadFull(r, buf[:size]); err == io.EOF {
		return 0, 0, nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return 0, 0, nil, err
	}
	return kind, id, buf[:size], nil
}
