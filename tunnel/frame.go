package tunnel

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A frame consists of its kind in one byte, the ID of a connection in four bytes, the
// length of its data in two bytes, and the data. Integers are big-endian.
const (
	frameOpen        = 'o' // to the sandbox: connect to this port; back: it is connected
	frameRefused     = 'n' // from the sandbox: nothing listens there
	frameData        = 'd'
	frameCredit      = 'w' // grants the other end this many more bytes
	frameEOF         = 'e' // no more data follows
	frameReset       = 'r' // from the sandbox: the server has reset the connection
	frameWriteClosed = 'x' // from the sandbox: the server no longer reads
	frameClose       = 'c' // to the sandbox: close once all data is delivered; back: it is closed
	frameAbort       = 'k' // to the sandbox: close at once
	frameQuit        = 'q' // to the sandbox: exit
)

const (
	headerSize = 7
	// maxMessage is the maximum size of a terminal's message.
	maxMessage = 32 << 10
	// maxData is the maximum data of a frame to the sandbox, so that the frame fits into a
	// message. A frame from the sandbox may have up to 64 KiB - 1.
	maxData = maxMessage - headerSize
)

// A window is the number of bytes that one end may send before the other end has consumed
// some. A connection starts with firstWindow. It grows up to maxWindow as long as the
// windows of all connections stay below maxTotalWindow.
const (
	firstWindow    = 256 << 10
	maxWindow      = 2 << 20
	maxTotalWindow = 32 << 20
)

// appendFrame appends a frame to b.
func appendFrame(b []byte, kind byte, id uint32, data []byte) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, id)
	b = binary.BigEndian.AppendUint16(b, uint16(len(data))) //nolint:gosec // at most maxData
	return append(b, data...)
}

// payloadSizes are the lengths of the data of frames from the sandbox, except frameData.
var payloadSizes = map[byte]int{frameOpen: 0, frameRefused: 0, frameCredit: 4, frameEOF: 0, frameReset: 0, frameWriteClosed: 0, frameClose: 0}

// readFrame reads a frame from the sandbox into buf, which has room for 64 KiB. The error
// is io.EOF only between frames.
func readFrame(r io.Reader, buf []byte) (kind byte, id uint32, data []byte, err error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, nil, err
	}
	kind, id = head[0], binary.BigEndian.Uint32(head[1:])
	size := int(binary.BigEndian.Uint16(head[5:]))
	if want, ok := payloadSizes[kind]; kind != frameData && (!ok || size != want) {
		return 0, 0, nil, fmt.Errorf("the helper in the sandbox sent %q with %d bytes, which is not a valid frame", kind, size)
	}
	if _, err := io.ReadFull(r, buf[:size]); err == io.EOF {
		return 0, 0, nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return 0, 0, nil, err
	}
	return kind, id, buf[:size], nil
}
