package otelsandbox

import (
	"cmp"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
)

// Transport returns a transport for [sandbox.ClientOptions].HTTPClient that adds the context of a
// request's span to the request. The propagator writes it, for example
// [propagation.TraceContext] to the header traceparent. Only requests of clients with an observer
// from [New], and only requests to the host of the API, carry it. Without this transport no
// request carries a trace context.
//
// A nil next means [http.DefaultTransport].
func Transport(next http.RoundTripper, propagator propagation.TextMapPropagator) http.RoundTripper {
	next = cmp.Or(next, http.DefaultTransport)
	return &transport{next, propagator}
}

type transport struct {
	next       http.RoundTripper
	propagator propagation.TextMapPropagator
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if b, ok := req.Context().Value(activeSpanKey{}).(*activeSpan); ok && b.host == req.URL.Host {
		clone := *req // a transport may not change the request
		clone.Header = req.Header.Clone()
		t.propagator.Inject(req.Context(), propagation.HeaderCarrier(clone.Header))
		req = &clone
	}
	return t.next.RoundTrip(req)
}

// CloseIdleConnections closes the idle connections of the next transport.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
