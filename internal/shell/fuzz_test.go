package shell

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// frame returns a message of the other end in one frame.
func frame(op byte, payload string) []byte {
	head := []byte{0x80 | op, byte(len(payload))}
	if len(payload) > 125 {
		head = binary.BigEndian.AppendUint16([]byte{0x80 | op, 126}, uint16(len(payload)))
	}
	return append(head, payload...)
}

// otherEnd is a transport whose connections send the given bytes and then nothing.
type otherEnd []byte

func (says otherEnd) RoundTrip(req *http.Request) (*http.Response, error) {
	sum := sha1.Sum([]byte(req.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return &http.Response{
		StatusCode: http.StatusSwitchingProtocols, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Accept": {base64.StdEncoding.EncodeToString(sum[:])}},
		Body:   &scriptedConn{from: bytes.NewReader(says)},
	}, nil
}

// scriptedConn is a connection of otherEnd.
type scriptedConn struct {
	mu     sync.Mutex
	from   *bytes.Reader
	closed bool
}

func (s *scriptedConn) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, io.ErrClosedPipe
	}
	return s.from.Read(p)
}

func (s *scriptedConn) Write(p []byte) (int, error) { return len(p), nil }

func (s *scriptedConn) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// FuzzConn receives any bytes from a terminal service. The result is an exit code or an
// error, and no more output than was sent.
func FuzzConn(f *testing.F) {
	const text, data, closes, ping, pong = 1, 2, 8, 9, 10
	exit := frame(text, `{"type":"exit","code":3}`)
	for _, says := range [][]byte{
		nil, exit, append(frame(data, "hello\r\n"), exit...), append(frame(text, "no message"), exit...), frame(text, `{"type":"exit"}`),
		frame(text, `{"type":"exit","code":1e400}`), frame(text, `{"type":"exit","code":-9223372036854775808}`), frame(text, `{"type":7,"code":"x"}`), frame(text, "null"),
		frame(closes, "\x03\xe8bye"), frame(closes, "\x03"), frame(closes, ""), append(frame(ping, "p"), exit...), append(frame(pong, ""), exit...),
		{0x01, 2, '{', '"', 0x80, 2, 't', '"'}, {0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0xf2, 0}, {0x82, 0x81, 0, 0, 0, 0, 'x'}, {0x83, 0},
		append(append(frame(data, "a"), exit...), frame(data, "after the end")...), frame(data, string(make([]byte, 40000))),
	} {
		f.Add(says)
	}
	described := errors.New("described")
	f.Fuzz(func(t *testing.T, says []byte) {
		socket, err := Dial(t.Context(), otherEnd(says), "wss://terminal.test/", "token", true)
		require.NoError(t, err)
		c, err := Open(t.Context(), socket, &Start{Command: "sh", Cols: 80, Rows: 24}, func(error, int, string) error { return described })
		require.NoError(t, err)
		out, readErr := io.ReadAll(c)
		code, err := c.Wait(t.Context())
		assert.LessOrEqual(t, len(out), len(says))
		if err == nil {
			assert.NoError(t, readErr, "the output of a program that has ended has an end")
			assert.Contains(t, string(says), "exit", "the code is %d", code)
		} else {
			assert.ErrorIs(t, err, described)
			assert.Zero(t, code)
			assert.ErrorIs(t, readErr, described)
		}
		_, err = c.Write([]byte("late"))
		assert.Error(t, err)
		c.Close()
	})
}
