// Package preview serves the exposed ports of a sandbox to visitors. A request resumes a
// sandbox that has stopped.
package preview

import (
	"net/http"
	"time"

	"github.com/go-vercel/sandbox"
)

// Options are the options of [Transport] and [ReverseProxy]. The zero value is ready to use.
type Options struct {
	// MaxWait limits how long one request waits for a stopped sandbox to wake
	// and for its server to listen. Zero means one minute.
	MaxWait time.Duration
	// Idle extends the session's timeout while requests are in flight, and for
	// this long after the last one. Zero leaves the timeout alone.
	Idle time.Duration
	// Base sends the requests. They contain no credentials of the sandbox's client.
	// Nil means a copy of [http.DefaultTransport].
	Base http.RoundTripper
	// Start starts the server. It is called, after the hooks, when nothing listens on
	// the port. Use [sandbox.Sandbox.EnsureCommand] in it, because the server may only be
	// slow to listen, and other processes may start it too. A request waits for Start and
	// fails with its error. Calls don't overlap, and there is at most one in two seconds.
	// If Start is nil, the request only waits.
	Start sandbox.Hook
}
