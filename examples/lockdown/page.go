package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// defaultPage returns the address of a page to fetch, and a function that stops
// its server. With the emulator the page is served by this program, so that the
// example works offline: sandboxes reach this machine as host.internal.
func defaultPage() (address string, done func(), err error) {
	if !strings.HasPrefix(os.Getenv("VERCEL_SANDBOX_BASE_URL"), "http://127.0.0.1:") {
		return "https://example.com/", func() {}, nil
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "<h1>A page</h1>")
	})}
	go func() { _ = server.Serve(ln) }() // until it is closed
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return "http://host.internal:" + port + "/", func() { server.Close() }, err
}
