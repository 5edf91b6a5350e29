package proxy

import (
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
)

// trailerBody adds the allowed trailers to the outgoing request, once the body
// was read and their values are known.
type trailerBody struct {
	io.ReadCloser
	from, to http.Header
}

func (b *trailerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		for name := range b.to {
			b.to[name] = b.from[name]
		}
	}
	return n, err
}

// passTrailers announces the allowed trailers. A trailer must not contain what
// was removed from the header.
func passTrailers(p *httputil.ProxyRequest, edits []edit) {
	p.Out.Trailer = nil
	for name := range p.In.Trailer {
		if !mayTrail(name) || slices.ContainsFunc(edits, func(e edit) bool { return dashed(name) == dashed(e.Header) }) {
			continue
		}
		if p.Out.Trailer == nil {
			p.Out.Trailer = make(http.Header)
		}
		p.Out.Trailer[name] = nil
	}
	if p.Out.Trailer != nil && p.Out.Body != nil {
		p.Out.Body = &trailerBody{ReadCloser: p.Out.Body, from: p.In.Trailer, to: p.Out.Trailer}
	}
}

// mayTrail reports whether a trailer may be passed on: not those that describe
// how a message is sent or who sent it, nor those that only a firewall or the
// platform sets.
func mayTrail(name string) bool {
	name = dashed(name)
	switch name {
	case "Authorization", "Connection", "Content-Encoding", "Content-Length", "Content-Range", "Content-Type", "Cookie",
		"Forwarded", "Host", "Http2-Settings", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return false
	}
	return lookAlike(name) == "" && !ofThePlatform(name) &&
		!strings.HasPrefix(name, "X-Forwarded-") && !strings.HasPrefix(name, "Proxy-")
}
