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

// maxLimitRetries limits the retries after refusals by a rate limit with a known reset.
const maxLimitRetries = 10

// Retry limits the retries of a request.
type Retry struct {
	Max  int           // maximum number of retries
	Wait time.Duration // before the first retry; doubles each time
}

// attempts is the state of an operation. It is a value of the request's context, because
// retryablehttp's CheckRetry receives nothing else.
type attempts struct {
	client       *Client
	req          *Request
	out          any           // a buffered response is decoded into it; may be nil
	buffered     bool          // the response is read before it is returned
	verdict      verdict       // of this attempt's response
	count        int           // number of attempts
	failed       int           // attempts that failed for another reason than a rate limit
	refused      int           // attempts that a rate limit without a known reset refused
	limitRetries int           // attempts that a rate limit with a known reset refused
	limitSpent   bool          // this attempt was refused by a rate limit with a known reset
	ticket       uint64        // order in the gate's queue; zero before the first wait
	waited       time.Duration // total wait for limits
	admitted     chan struct{} // closed when the gate admits the request
	inFlight     *time.Timer   // when the request no longer counts as in flight; nil if not admitted
	traced       atomic.Bool   // the transport supports httptrace
	wrote        atomic.Bool   // this attempt's request reached a connection
	bodyRead     atomic.Bool   // the transport has read this attempt's body, if Open opens it
	http2        atomic.Bool   // an attempt's request reached an HTTP/2 connection
	uncertain    bool          // an attempt may have taken effect without a clear response

	observation
}

type attemptsKey struct{}

// trace returns a context that records whether a request was written. WroteHeaders is called
// before any byte can have an effect on the server. If it was not called, the request had
// no effect, provided that the transport supports httptrace. Such a transport calls GetConn
// first.
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

// checkRetry decides whether the operation is retried and records the cause.
func (r Retry) checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	retry, final := r.decide(ctx, resp, err)
	if retry {
		a, _ := ctx.Value(attemptsKey{}).(*attempts)
		a.setCause(err)
	}
	return retry, final
}

// decide decides whether the operation is retried after an attempt that received a response
// or failed with err. Refusals by a rate limit are counted separately.
func (r Retry) decide(ctx context.Context, resp *http.Response, err error) (bool, error) {
	a, _ := ctx.Value(attemptsKey{}).(*attempts)
	wrote := a.wrote.Swap(false)
	if _, unsent := errors.AsType[notSentError](err); unsent {
		return false, err
	}
	a.count++
	if err == nil && a.verdict.kind == RateLimited && a.verdict.retry == always {
		if a.limitSpent {
			a.limitRetries++
			return a.limitRetries <= maxLimitRetries, nil
		}
		a.refused++
		return a.refused <= r.Max && hasShortRetryAfter(resp), nil
	}
	a.failed++
	retry, err := a.shouldRetry(ctx, resp, wrote, err)
	return retry && a.failed <= r.Max, err
}

// shouldRetry decides, by the operation's class, about an attempt that no rate limit has
// refused.
func (a *attempts) shouldRetry(ctx context.Context, resp *http.Response, wrote bool, err error) (bool, error) {
	if err != nil {
		switch {
		case unprocessed(err):
			wrote = false
		case !a.traced.Load() && !notConnected(err):
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
	if a.verdict.mayHaveEffect {
		a.uncertain = true
	}
	return (a.verdict.retry == always || a.verdict.retry == ifSafe && a.req.Op.Class == Safe) && hasShortRetryAfter(resp), nil
}

// hasShortRetryAfter reports whether the response has no Retry-After, or one that is short enough to
// wait for.
func hasShortRetryAfter(resp *http.Response) bool {
	after, _ := retryAfter(resp.Header, time.Now())
	return after <= maxRetryAfter
}

// notConnected reports whether err means that no connection was made.
func notConnected(err error) bool {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial" || untrusted(err)
}

// The unexported errors of net/http for the two ways in which HTTP/2 reports that a request
// was not processed. If net/http can't resend the request, it quotes them.
const (
	gotGoAway     = "http2: Transport received Server's graceful shutdown GOAWAY"
	refusedStream = "; REFUSED_STREAM; received from peer"
	notSentAgain  = "http2: Transport: cannot retry err ["
)

// unprocessed reports whether err means that the server has not processed a request that was
// sent: its stream was refused (RFC 9113, 8.7), or is above the last stream that a closing
// connection processes (6.8).
func unprocessed(err error) bool {
	if _, ok := errors.AsType[*BodyError](err); ok {
		return false // there was a response
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	// Check the start of the text: other errors quote what the server has sent.
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

// backoff returns the pause after attempt n (from 0): the server's Retry-After, if any, plus
// Wait·2ⁿ times a random factor between 1 and 2, which keeps clients from retrying at the
// same time. A request that a spent limit has refused waits in the gate instead.
func (r Retry) backoff(_, _ time.Duration, n int, resp *http.Response) time.Duration {
	pause := time.Duration(float64(r.Wait<<max(0, min(n, r.Max-1, 16))) * (1 + rand.Float64()))
	if resp != nil {
		if a, ok := resp.Request.Context().Value(attemptsKey{}).(*attempts); ok && a.limitSpent {
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
		RetryMax:     math.MaxInt, // checkRetry limits them
		CheckRetry:   r.checkRetry,
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

// Pause is like Sleep, but returns the context's error.
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
