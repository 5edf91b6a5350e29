package shell

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowConn returns from a Write once until is closed, if that is set.
type slowConn struct {
	net.Conn
	until *atomic.Pointer[chan struct{}]
}

func (c slowConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if until := c.until.Load(); until != nil {
		<-*until
	}
	return n, err
}

// TestLastInput: Write succeeds for input that ends the program, such as an editor's q,
// even if the program ends before Write returns. Later writes fail.
func TestLastInput(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if !assert.NoError(t, err) {
			return
		}
		for range 2 { // the start, and the input
			if _, _, err := ws.Read(r.Context()); !assert.NoError(t, err) {
				return
			}
		}
		assert.NoError(t, ws.Write(r.Context(), websocket.MessageText, []byte(`{"type":"exit","code":3}`)))
		_ = ws.Close(websocket.StatusNormalClosure, "")
	}))
	defer srv.Close()
	var until atomic.Pointer[chan struct{}]
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return slowConn{conn, &until}, err
	}}
	defer transport.CloseIdleConnections()
	socket, err := Dial(t.Context(), transport, srv.URL, "token", false)
	require.NoError(t, err)
	c, err := Open(t.Context(), socket, &Start{Command: "vi"}, func(err error, _ int, _ string) error { return err })
	require.NoError(t, err)
	defer c.Close()

	until.Store(&c.done)
	n, err := c.Write([]byte("q"))
	assert.NoError(t, err)
	assert.Equal(t, 1, n)
	n, err = c.Write([]byte("q"))
	assert.Error(t, err)
	assert.Zero(t, n)
	code, err := c.Wait(t.Context())
	assert.NoError(t, err)
	assert.Equal(t, 3, code)
}
