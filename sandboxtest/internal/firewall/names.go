package firewall

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"time"
)

// names implements Options.Names: servers that replace others.
type names struct {
	servers map[string]nameServer
	byAddr  map[netip.Addr]string
}

type nameServer struct {
	addr   netip.Addr // in the network of sandboxes
	target string     // host:port
	plain  bool       // it speaks plain HTTP
}

func newNames(list map[string]string) (*names, error) {
	n := &names{servers: make(map[string]nameServer), byAddr: make(map[netip.Addr]string)}
	for i, name := range slices.Sorted(maps.Keys(list)) {
		target, plain := list[name], false
		if u, err := url.Parse(target); err == nil && u.Scheme == "http" && u.Host != "" {
			target, plain = u.Host, true
		}
		if _, _, err := net.SplitHostPort(target); err != nil {
			return nil, fmt.Errorf("Options.Names: %q for %q is neither host:port nor http://host:port", list[name], name)
		}
		addr, ok := namedAddr(i)
		if !ok {
			return nil, errors.New("too many Options.Names")
		}
		name = plainName(name)
		n.servers[name], n.byAddr[addr] = nameServer{addr: addr, target: target, plain: plain}, name
	}
	return n, nil
}

// addr returns the address of a name in sandboxes. It is invalid if the name is not one
// of Options.Names.
func (n *names) addr(name string) netip.Addr { return n.servers[plainName(name)].addr }

// name returns the name of an address, or "".
func (n *names) name(addr netip.Addr) string { return n.byAddr[addr] }

func (n *names) target(name string) string { return n.servers[name].target }
func (n *names) isPlain(name string) bool  { return n.servers[name].plain }

// replayed is a connection from which some bytes were already read. Read returns those
// first.
type replayed struct {
	net.Conn
	before []byte
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.before) > 0 {
		n := copy(p, r.before)
		r.before = r.before[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}

// CloseWrite closes the sending direction, if the connection supports that.
func (r *replayed) CloseWrite() error {
	if w, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return r.Conn.Close()
}

// peekServerName reads the first message of a TLS client. It returns the server name in
// it and everything that was read.
func peekServerName(conn net.Conn, first []byte) (name string, read []byte) {
	var seen bytes.Buffer
	client := &readOnlyConn{r: io.TeeReader(io.MultiReader(bytes.NewReader(first), conn), &seen)}
	_ = tls.Server(client, &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name = hello.ServerName
			return nil, errors.New("the server name is known")
		},
	}).Handshake() // always fails
	return name, seen.Bytes()
}

// readOnlyConn is a connection that sends nothing.
type readOnlyConn struct{ r io.Reader }

func (l *readOnlyConn) Read(p []byte) (int, error)       { return l.r.Read(p) }
func (l *readOnlyConn) Write([]byte) (int, error)        { return 0, io.ErrClosedPipe }
func (l *readOnlyConn) Close() error                     { return nil }
func (l *readOnlyConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (l *readOnlyConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (l *readOnlyConn) SetDeadline(time.Time) error      { return nil }
func (l *readOnlyConn) SetReadDeadline(time.Time) error  { return nil }
func (l *readOnlyConn) SetWriteDeadline(time.Time) error { return nil }
