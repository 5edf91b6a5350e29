package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pipes is a listener whose connections are pipes, so that synctest can skip time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// TestIdleConnections: a connection without a request, or with only a part of one, is
// closed.
func TestIdleConnections(t *testing.T) {
	for name, sent := range map[string]string{
		"nothing": "", "a part of a request": "GET / HTTP/1.1\r\nHost: x\r\n", "no second request": "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				listener := make(pipes)
				defer close(listener)
				go serve(ctx, listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				conn, served := net.Pipe()
				defer conn.Close()
				listener <- served
				go fmt.Fprint(conn, sent)
				require.NoError(t, conn.SetReadDeadline(time.Now().Add(2*time.Minute)))
				_, err := io.ReadAll(conn) // to its end
				assert.NoError(t, err)
			})
		})
	}
}
