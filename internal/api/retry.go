package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// maxRetryAfter is the longest wait that a server may ask of us. A longer one
// is handed to the caller at once.
const maxRetryAfter = 20 * time.Second

// Retry holds the limits of retrying a request.
type Retry struct {
	Max  int           // how often after the first attempt
	Wait time.Duration // before the first retry; doubles each time
}

// attempts follows one operation through its attempts. It travels in the
// request's context, because retryablehttp's CheckRetry sees nothing else.
type attempts struct {
	op        *Op
	whole     bool        // the answer is read before it counts as one
	count     int         // attempts begun
	traced    atomic.Bool // the transport tells what it does
	wrote     atomic.Bool // this attempt's request reached a connection
	uncertain bool        // an attempt may have acted without a clear answer
	// uncertainBefore: so may one before the last.
	uncertainBefore bool
}

type attemptsKey struct{}

// trace returns a context in which the attempts know whether a request was
// written. WroteHeaders comes before any byte can act on the server; without
// it the request surely did not, if the transport tells of such things at all:
// one that does begins with GetConn.
func (a *attempts) trace(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, attemptsKey{}, a)
	if a.op.Class == Safe {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { a.traced.Store(true) },
		WroteHeaders: func() { a.wrote.Store(true) },
	})
}

// checkRetry decides by the operation's class whether it is sent once more after
// an attempt that got an answer, or none because of err.
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	a, _ := ctx.Value(attemptsKey{}).(*attempts)
	a.count++
	a.uncertainBefore = a.uncertain
	wrote := a.wrote.Swap(false)
	if err != nil {
		if !a.traced.Load() && !unconnected(err) {
			wrote = true
		}
		if wrote {
			a.uncertain = true
		}
		if ctx.Err() != nil || permanent(err) {
			return false, err
		}
		return a.op.Class == Safe || !wrote, nil
	}
	switch status := resp.StatusCode; {
	case status == http.StatusTooManyRequests:
		return patient(resp), nil
	case status == http.StatusTooEarly:
		// The server says that it did not act, but not that it will.
		return a.op.Class == Safe && patient(resp), nil
	case transient(status):
		// Whoever answers so may have passed the request on.
		a.uncertain = true
		return a.op.Class == Safe && patient(resp), nil
	}
	return false, nil
}

// transient reports statuses that say nothing of the operation: those of a proxy
// or an overloaded server.
func transient(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// patient reports whether the server's Retry-After is short enough to wait for.
func patient(resp *http.Response) bool {
	after, _ := retryAfter(resp, time.Now())
	return after <= maxRetryAfter
}

// unconnected reports errors that say that no connection was made.
func unconnected(err error) bool {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial" || untrusted(err)
}

// untrusted reports a server whose certificate is not accepted.
func untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	if !ok {
		_, ok = errors.AsType[x509.UnknownAuthorityError](err)
	}
	return ok
}

// permanent reports transport errors that another attempt would meet again.
func permanent(err error) bool {
	return errors.Is(err, errRedirect) || errors.Is(err, errSource) || untrusted(err) ||
		strings.Contains(err.Error(), "unsupported protocol scheme")
}

// backoff is the pause after attempt n (from 0): the server's Retry-After if it
// gave one, and then Wait·2ⁿ times a random factor between 1 and 2, which keeps
// many clients from coming back at once.
func (r Retry) backoff(_, _ time.Duration, n int, resp *http.Response) time.Duration {
	pause := time.Duration(float64(r.Wait<<min(n, 16)) * (1 + rand.Float64()))
	if resp != nil {
		if after, ok := retryAfter(resp, time.Now()); ok {
			pause += min(after, maxRetryAfter)
		}
	}
	return pause
}

// newRetrier wraps an HTTP client in the retry loop of retryablehttp.
func newRetrier(hc *http.Client, r Retry) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient:   hc,
		RetryMax:     r.Max,
		CheckRetry:   checkRetry,
		Backoff:      r.backoff,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// Sleep waits for d, and reports false when ctx ends before.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// retryAfter reads Retry-After in seconds or as an HTTP date.
func retryAfter(resp *http.Response, now time.Time) (time.Duration, bool) {
	v := strings.TrimSpace(resp.Header.Get("Retry-After"))
	if v == "" {
		return 0, false
	}
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		if !(s > 0) {
			return 0, false
		}
		return time.Duration(min(s, 1e9) * float64(time.Second)), true
	}
	t, err := http.ParseTime(v)
	if err != nil || !t.After(now) {
		return 0, false
	}
	return t.Sub(now), true
}
