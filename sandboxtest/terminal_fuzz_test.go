package sandboxtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// hijacked is the response to a request that opens a WebSocket. Its connection sends given
// data, and then nothing.
type hijacked struct {
	*httptest.ResponseRecorder
	from *bytes.Reader
}

func (c hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn := clientConn{from: c.from}
	return conn, bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn)), nil
}

// clientConn is a connection that reads from a reader and discards what is written.
type clientConn struct{ from io.Reader }

func (c clientConn) Read(p []byte) (int, error)       { return c.from.Read(p) }
func (c clientConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c clientConn) Close() error                     { return nil }
func (c clientConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c clientConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c clientConn) SetDeadline(time.Time) error      { return nil }
func (c clientConn) SetReadDeadline(time.Time) error  { return nil }
func (c clientConn) SetWriteDeadline(time.Time) error { return nil }

// program receives the input of a terminal.
type program struct {
	t   *testing.T
	got bytes.Buffer
}

func (p *program) Write(b []byte) (int, error) { return p.got.Write(b) }

func (p *program) Resize(size backend.Size) error {
	checkCells(p.t, size)
	return nil
}

func checkCells(t *testing.T, size backend.Size) {
	assert.True(t, size.Cols >= 1 && size.Cols <= wire.MaxCells && size.Rows >= 1 && size.Rows <= wire.MaxCells, "%+v", size)
}

// FuzzTerminal: whatever the client of a terminal sends, only a valid message starts a
// program, and the program gets no more input than was sent.
func FuzzTerminal(f *testing.F) {
	const text, data = 1, 2
	frame := func(op byte, payload string) []byte { // masked by zeros
		head := binary.BigEndian.AppendUint16([]byte{0x80 | op, 0x80 | 126}, uint16(len(payload)))
		return append(append(head, 0, 0, 0, 0), payload...)
	}
	start := frame(text, `{"type":"start","command":"sh","args":["-c","x"],"env":["A=b"],"cols":80,"rows":24}`)
	for _, says := range [][]byte{
		nil, start, append(start, frame(data, "ls\r")...), append(start, frame(text, `{"type":"resize","cols":-1,"rows":99999999999}`)...),
		append(start, frame(text, `{"type":"resize","cols":65536,"rows":0}`)...), append(start, frame(text, "[")...), frame(data, `{"type":"start"}`),
		frame(text, `{"type":"start"}`), frame(text, `{"type":"start","env":["=x"]}`), frame(text, `{"type":"start","env":[""],"args":null}`), frame(text, `{"type":"start","cols":1e9}`),
		frame(text, "null"), frame(8, "\x03\xe8"), frame(9, "ping"), {0x81, 2, '{', '}'}, {0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x01, 0x80, 0, 0, 0, 0},
	} {
		f.Add(says)
	}
	f.Fuzz(func(t *testing.T, says []byte) {
		r := httptest.NewRequestWithContext(t.Context(), "GET", interactivePath+"s", nil)
		for name, value := range map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			r.Header.Set(name, value)
		}
		w := hijacked{httptest.NewRecorder(), bytes.NewReader(says)}
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, w.Code)
		defer conn.CloseNow()
		conn.SetReadLimit(maxFrame)
		term := &terminal{conn: conn, ctx: t.Context()}
		m, err := term.readStart()
		if err != nil {
			return
		}
		assert.NotEmpty(t, m.Command)
		checkCells(t, m.size())
		for _, kv := range m.Env {
			assert.Greater(t, strings.IndexByte(kv, '='), 0, "%q", kv)
		}
		p := &program{t: t}
		term.forwardInput(t.Context(), p)
		assert.LessOrEqual(t, p.got.Len(), len(says))
	})
}
