package backend

import (
	"context"
	"net"
	"strconv"
)

// DialLoopback connects to a port of 127.0.0.1 or, if that fails, of ::1: servers differ in
// which address they call localhost.
func DialLoopback(ctx context.Context, port int) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	conn, err6 := d.DialContext(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(port)))
	if err6 == nil {
		return conn, nil
	}
	return nil, err
}
