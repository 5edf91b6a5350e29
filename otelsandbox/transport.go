package otelsandbox

import (
	"net/http"

	"go.opentelemetry.io/otel/propagation"
)

// Transport returns a transport for [sandbox.ClientOptions].HTTPClient that sends
// the context of a request's span along with it, by the propagator, such as
// [propagation.TraceContext] with the header traceparent. It does so only for
// requests of clients with an observer of [New], and only to the host of the API.
// Without it, nothing about traces is sent to anyone.
//
// A nil next means [http.DefaultTransport].
func Transport(next http.RoundTripper, propagator propagation.TextMapPropagator) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return &transport{next, propagator}
}

type transport struct {
	next       http.RoundTripper
	propagator propagation.TextMapPropagator
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if b, ok := req.Context().Value(begunKey{}).(*begun); ok && b.host == req.URL.Host {
		clone := *req // a transport may not change the request
		clone.Header = req.Header.Clone()
		t.propagator.Inject(req.Context(), propagation.HeaderCarrier(clone.Header))
		req = &clone
	}
	return t.next.RoundTrip(req)
}

// CloseIdleConnections closes those of the next transport.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
