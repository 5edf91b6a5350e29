package sandbox_test

import (
	"net/http"
	"strings"
	"sync"
)

// before is a transport that does something once, before a request that is
// waited for.
type before struct {
	http.RoundTripper
	op string // how the path of the request ends
	mu sync.Mutex
	do func()
}

func (b *before) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, b.op) {
		b.mu.Lock()
		do := b.do
		b.do = nil
		b.mu.Unlock()
		if do != nil {
			do()
		}
	}
	return b.RoundTripper.RoundTrip(r)
}
