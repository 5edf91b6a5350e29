package sandboxtest

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// TestSpareConnection: a client can send a request on a connection that it has kept idle
// for as long as clients keep one.
func TestSpareConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, served := net.Pipe()
		conns := make(pipeListener, 1)
		conns <- served
		server := store.NewHTTPServer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, slog.New(slog.DiscardHandler))
		go func() { _ = server.Serve(conns) }()
		defer func() { assert.NoError(t, server.Close()) }()
		time.Sleep(http.DefaultTransport.(*http.Transport).IdleConnTimeout)

		spare := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil }}
		defer spare.CloseIdleConnections()
		res, err := (&http.Client{Transport: spare}).Get("http://sandbox.test")
		require.NoError(t, err)
		assert.Equal(t, http.StatusNoContent, res.StatusCode)
		require.NoError(t, res.Body.Close())
	})
}

// TestSlowServer: the download of a tarball may take longer than its server may pause.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pause = 30 * time.Second
		ctx, body, stop := limitSilence(t.Context(), pause)
		defer stop()
		r, w := io.Pipe()
		body.r = r
		go func() {
			for range 10 {
				time.Sleep(pause - time.Second)
				_, _ = w.Write([]byte("x"))
			}
			_ = w.Close()
		}()
		data, err := io.ReadAll(body)
		require.NoError(t, err)
		assert.Len(t, data, 10)
		require.NoError(t, ctx.Err())
		<-ctx.Done()
		require.ErrorContains(t, context.Cause(ctx), "its server has sent nothing for 30s")
	})
}

// pipeListener is a listener that returns the connections in a channel.
type pipeListener chan net.Conn

func (p pipeListener) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (p pipeListener) Close() error { close(p); return nil }
func (pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
