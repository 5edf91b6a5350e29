package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// maxRetryAfter is the longest Retry-After that is honored. A longer one is
// returned to the caller at once.
const maxRetryAfter = 20 * time.Second

// maxTurns is how often a request is sent again that the API has refused since
// a limit is spent.
const maxTurns = 10

// Retry limits the retries of a request.
type Retry struct {
	Max  int           // maximum number of retries
	Wait time.Duration // before the first retry; doubles each time
}

// attempts tracks one operation through its attempts. It is a value of the
// request's context, because retryablehttp's CheckRetry receives nothing else.
type attempts struct {
	client    *Client
	req       *Request
	out       any           // what a whole response is decoded into; may be nil
	whole     bool          // the response counts once it has been read
	verdict   verdict       // of this attempt's response
	count     int           // number of attempts
	failed    int           // of them, those that failed otherwise than by a rate limit
	refused   int           // those that a rate limit refused without saying when it is reset
	turns     int           // those that one refused which did, so that the next waited for its turn
	spent     bool          // this attempt was one of the latter
	ticket    uint64        // its place among those who wait for limits; zero before the first
	waited    time.Duration // for limits
	turn      chan struct{} // closed when it may go
	going     *time.Timer   // until it counts no more
	traced    atomic.Bool   // the transport supports httptrace
	wrote     atomic.Bool   // this attempt's request reached a connection
	asked     atomic.Bool   // its body was read, if Open opens it
	http2     atomic.Bool   // one did so over HTTP/2
	uncertain bool          // an attempt may have taken effect without a clear response

	observed
}

type attemptsKey struct{}

// trace returns a context that records whether a request was written.
// WroteHeaders comes before any byte can have an effect on the server; without
// it the request surely had none, provided that the transport supports
// httptrace, in which case it calls GetConn first.
func (a *attempts) trace(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, attemptsKey{}, a)
	if a.req.Op.Class == Safe {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { a.traced.Store(true) },
		WroteHeaders: func() { a.wrote.Store(true) },
		WroteHeaderField: func(name string, _ []string) {
			if strings.HasPrefix(name, ":") {
				a.http2.Store(true)
			}
		},
	})
}

// check decides whether the operation is retried, and notes why.
func (r Retry) check(ctx context.Context, resp *http.Response, err error) (bool, error) {
	again, final := r.decide(ctx, resp, err)
	if again {
		a, _ := ctx.Value(attemptsKey{}).(*attempts)
		a.because(err)
	}
	return again, final
}

// decide decides by the operation's class whether it is retried after an attempt
// that received a response or failed with err. Refusals by a rate limit have a
// count of their own.
func (r Retry) decide(ctx context.Context, resp *http.Response, err error) (bool, error) {
	a, _ := ctx.Value(attemptsKey{}).(*attempts)
	wrote := a.wrote.Swap(false)
	if _, unsent := errors.AsType[notSentError](err); unsent {
		return false, err
	}
	a.count++
	if err == nil && a.verdict.kind == RateLimited && a.verdict.again == always {
		if a.spent {
			a.turns++
			return a.turns <= maxTurns, nil
		}
		a.refused++
		return a.refused <= r.Max && patient(resp), nil
	}
	a.failed++
	again, err := a.again(ctx, resp, wrote, err)
	return again && a.failed <= r.Max, err
}

// again decides whether an attempt that did not meet a rate limit is followed by
// another.
func (a *attempts) again(ctx context.Context, resp *http.Response, wrote bool, err error) (bool, error) {
	if err != nil {
		switch {
		case unprocessed(err):
			wrote = false
		case !a.traced.Load() && !unconnected(err):
			wrote = true
		}
		if wrote {
			a.uncertain = true
		}
		if ctx.Err() != nil || permanent(err) {
			return false, err
		}
		return a.req.Op.Class == Safe || !wrote, nil
	}
	if a.verdict.perhaps {
		a.uncertain = true
	}
	return (a.verdict.again == always || a.verdict.again == ifSafe && a.req.Op.Class == Safe) && patient(resp), nil
}

// patient reports whether the server's Retry-After is short enough to wait for.
func patient(resp *http.Response) bool {
	after, _ := retryAfter(resp.Header, time.Now())
	return after <= maxRetryAfter
}

// unconnected reports whether err says that no connection was made.
func unconnected(err error) bool {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial" || untrusted(err)
}

// The errors of net/http after HTTP/2's two ways of saying that a request was
// not processed, of which neither is exported. Where net/http can't send the
// request again, it quotes them.
const (
	gotGoAway     = "http2: Transport received Server's graceful shutdown GOAWAY"
	refusedStream = "; REFUSED_STREAM; received from peer"
	notSentAgain  = "http2: Transport: cannot retry err ["
)

// unprocessed reports whether err says that the server has not processed the
// request, although it was sent: its stream was refused (RFC 9113, 8.7), or is
// above the last that a closing connection processes (6.8).
func unprocessed(err error) bool {
	if _, begun := errors.AsType[*BodyError](err); begun {
		return false // there was a response
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	// The text begins with it: other errors quote what the server has sent.
	text := strings.TrimPrefix(err.Error(), notSentAgain)
	if strings.HasPrefix(text, "stream error: ") {
		return strings.Contains(text, refusedStream)
	}
	return text == gotGoAway || strings.HasPrefix(text, gotGoAway+"]")
}

// untrusted reports whether the server's certificate was rejected.
func untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	if !ok {
		_, ok = errors.AsType[x509.UnknownAuthorityError](err)
	}
	return ok
}

// permanent reports whether a retry would fail with the same transport error.
func permanent(err error) bool {
	return errors.Is(err, errRedirect) || errors.Is(err, errSource) || untrusted(err) ||
		strings.Contains(err.Error(), "unsupported protocol scheme")
}

// backoff returns the pause after attempt n (from 0): the server's Retry-After,
// if any, plus Wait·2ⁿ times a random factor between 1 and 2, which keeps
// clients from retrying at the same time. A request that waits for a limit does so
// in its turn.
func (r Retry) backoff(_, _ time.Duration, n int, resp *http.Response) time.Duration {
	pause := time.Duration(float64(r.Wait<<max(0, min(n, r.Max-1, 16))) * (1 + rand.Float64()))
	if resp != nil {
		if a, ok := resp.Request.Context().Value(attemptsKey{}).(*attempts); ok && a.spent {
			return 0
		}
		if after, ok := retryAfter(resp.Header, time.Now()); ok {
			pause += min(after, maxRetryAfter)
		}
	}
	return pause
}

// newRetrier wraps an HTTP client in the retry loop of retryablehttp.
func newRetrier(hc *http.Client, r Retry) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient:   hc,
		RetryMax:     math.MaxInt, // check counts
		CheckRetry:   r.check,
		Backoff:      r.backoff,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// Sleep waits for d. It returns false if ctx ends first.
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

// Pause is Sleep, and returns the error of a context that has ended.
func Pause(ctx context.Context, d time.Duration) error {
	if !Sleep(ctx, d) {
		return ContextError(ctx)
	}
	return nil
}

// retryAfter reads Retry-After in seconds or as an HTTP date.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
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
