package api

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

// maxErrorBody limits how much of an error response is kept.
const maxErrorBody = 64 << 10

// Failure is the failure of an operation. The root package converts it to its
// public errors.
type Failure struct {
	Op        *Op
	Sandbox   string // the sandbox's name, from the path or the session
	Session   string // the session's ID, from the path
	Command   string // the command's ID, from the path
	Object    string // the snapshot's ID or the drive's name, from the path
	As        string // whose credentials were refused
	Attempts  int
	Uncertain bool // a request that may have taken effect received no clear response
	Kind      Kind

	// Of the response; Status is 0 if there was none.
	Status     int
	Header     http.Header
	Code       string
	Message    string
	Body       []byte
	RetryAfter time.Duration

	// Err is the cause: a transport error, or why a response is unusable.
	Err error
}

// Error is for logs of this package; users see the root package's errors.
func (f *Failure) Error() string {
	if f.Err != nil {
		return f.Op.Name + ": " + f.Err.Error()
	}
	return f.Op.Name + ": status " + strconv.Itoa(f.Status)
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// OutcomeUnknown reports whether it is unknown if the operation took effect.
func (f *Failure) OutcomeUnknown() bool { return f.Uncertain && f.Op.Class != Safe }

// Refused reports whether the API refused the operation because the session does not run,
// and neither this nor an earlier attempt had an effect. Only this method decides that, from
// the response to this request.
func (f *Failure) Refused() bool {
	return (f.Kind == Stopped || f.Kind == Stopping) && !f.OutcomeUnknown()
}

// errorBodyTime limits the time to read the body of an error response.
const errorBodyTime = 2 * time.Second

// verdict is the classification of the response to an attempt.
type verdict struct {
	failureRule
	refusal wire.ErrorResponse
	err     error // why the response is not the API's
}

// refusal classifies a response that is not a success. err is not nil if its body broke off.
func refusal(op *Op, resp *http.Response, body []byte, err error) (v verdict) {
	what := strings.ToLower(cmp.Or(http.StatusText(resp.StatusCode), "a refusal"))
	var code string
	if err != nil {
		v.err = &BodyError{Err: err}
	} else if err = json.Unmarshal(body, &v.refusal); err != nil || v.refusal.Error.Code == "" {
		v.err = foreignError(resp, body, errors.New(what+" without a code"))
	} else if code = v.refusal.Error.Code; !ownCode(code) && !reportsLimit(resp.Header) {
		v.err = foreignError(resp, body, fmt.Errorf("%s with the code %q", what, code))
		code = ""
	}
	v.failureRule = judge(op, resp.StatusCode, code, v.refusal.Error.Message)
	return v
}

// ownCode reports whether a code has the form of the API's codes: lower-case letters, digits
// and underscores. Gateways have others, such as 404, NOT_FOUND and ResourceNotFound. A code
// of the API in another form comes with a rate limit, unless a proxy drops the headers.
func ownCode(code string) bool {
	return strings.IndexFunc(code, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' }) < 0 &&
		(code[0] < '0' || code[0] > '9')
}

// lazyGzipReader reads the gzip header only at the first Read.
type lazyGzipReader struct {
	from io.Reader
	zip  *gzip.Reader
}

func (u *lazyGzipReader) Read(p []byte) (int, error) {
	if u.zip == nil {
		zip, err := gzip.NewReader(u.from)
		if err != nil {
			return 0, err
		}
		u.zip = zip
	}
	return u.zip.Read(p)
}

// AuthError reports that there are no credentials. Nothing was sent.
type AuthError struct{ Err error }

func (e *AuthError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *AuthError) Unwrap() error { return e.Err }

// BodyError reports a response whose body broke off.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return "reading the response: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *BodyError) Unwrap() error { return e.Err }

// ContentTypeError reports a response of an unexpected media type.
type ContentTypeError struct{ Got, Want string }

func (e *ContentTypeError) Error() string {
	return "the response's content type is " + strconv.Quote(e.Got) + ", want " + strconv.Quote(e.Want)
}

// ContextError returns the error of a context that has ended. It matches both
// its cause and its Err.
func ContextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(cause, err) {
		return cause
	}
	return &causeError{cause, err}
}

// causeError is a context's cause that does not match the context's error itself.
type causeError struct{ cause, err error }

func (e *causeError) Error() string   { return e.cause.Error() }
func (e *causeError) Unwrap() []error { return []error{e.cause, e.err} }
