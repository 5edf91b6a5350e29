package api

import (
	"context"
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

// Retry holds the limits of repeating a request.
type Retry struct {
	Max  int           // how often after the first attempt
	Wait time.Duration // before the first repetition; doubles each time
}

// attempts follows one operation through its attempts. It travels in the
// request's context, because retryablehttp's CheckRetry sees nothing else.
type attempts struct {
	op        *Op
	count     int         // attempts begun
	traced    atomic.Bool // the transport tells what it does
	wrote     atomic.Bool // this attempt's request reached a connection
	uncertain bool        // an attempt may have acted without a clear answer
}

type attemptsKey struct{}

// trace returns a context in which the attempts know whether a request was
// written. WroteHeaders comes before any byte can act on the server; without
// it the request surely did not, if the transport tells of such things at all:
// one that does begins with GetConn.
func (a *attempts) trace(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, attemptsKey{}, a)
	if a.op.Class == Safe && !a.op.Delete {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { a.traced.Store(true) },
		WroteHeaders: func() { a.wrote.Store(true) },
	})
}

// checkRetry decides by the operation's class whether it is sent again.
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	a, _ := ctx.Value(attemptsKey{}).(*attempts)
	a.count++
	wrote := a.wrote.Swap(false)
	if err != nil {
		if !a.traced.Load() && a.op.Class != Safe && !unconnected(err) {
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
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		return patient(resp), nil
	case resp.StatusCode >= 500:
		a.uncertain = true
		return a.op.Class == Safe && patient(resp), nil
	}
	return false, nil
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
	return ok && e.Op == "dial"
}

// permanent reports transport errors that a repetition can't mend.
func permanent(err error) bool {
	return errors.Is(err, errRedirect) || errors.Is(err, errSource) ||
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
