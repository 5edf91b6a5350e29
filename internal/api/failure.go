package api

import (
	"compress/gzip"
	"encoding/json"
	"errors"
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
	Sandbox   string // the sandbox's name, if the path has one
	Session   string // the session's ID, if the path has one
	Attempts  int
	Uncertain bool // a request that may have taken effect received no clear response

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

// Refused reports whether the API refused the operation because the session
// does not run, before it or an earlier attempt could have any effect. It is
// the only place that decides this, from the response to this very request.
func (f *Failure) Refused() bool {
	if f.Uncertain && f.Op.Class != Safe {
		return false
	}
	switch f.Status {
	case http.StatusGone:
		// Without a code it may be a gateway's page, which follows an operation
		// that has acted.
		return f.Code != "" && !f.SnapshotGone()
	case http.StatusUnprocessableEntity:
		return f.Stopping()
	}
	return false
}

// Stopping reports whether the session is ending.
func (f *Failure) Stopping() bool {
	return f.Status == http.StatusUnprocessableEntity && (f.Code == "sandbox_stopping" || f.Code == "sandbox_snapshotting")
}

// SnapshotGone reports whether the sandbox can't be resumed because its files
// are gone. The service has reported that with 400 and with 410, with and
// without a specific code.
func (f *Failure) SnapshotGone() bool {
	if f.Status < 400 || f.Status >= 500 {
		return false
	}
	return f.Code == "snapshot_not_found" ||
		f.Status == http.StatusBadRequest && strings.Contains(f.Message, "Cannot resume sandbox")
}

// Transient reports whether the response says nothing about the operation: that
// of a proxy or an overloaded server.
func (f *Failure) Transient() bool { return transient(f.Status) }

// errorBodyTime is how long the body of an error response is read.
const errorBodyTime = 2 * time.Second

// readError fills f from an error response, and closes it.
func (f *Failure) readError(resp *http.Response) {
	f.Status, f.Header = resp.StatusCode, resp.Header
	// The body may never end.
	stop := time.AfterFunc(errorBodyTime, func() { resp.Body.Close() })
	defer func() {
		stop.Stop()
		resp.Body.Close()
	}()
	f.RetryAfter, _ = retryAfter(resp, time.Now())
	content := io.Reader(resp.Body)
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		// Streams are asked for uncompressed, which proxies ignore in the errors
		// that they pass on.
		content = &unzipping{from: resp.Body}
	}
	body, err := io.ReadAll(io.LimitReader(content, maxErrorBody))
	if err != nil {
		f.Err = &BodyError{Err: err}
		return
	}
	f.Body = body
	if len(body) == 0 {
		return
	}
	var response wire.ErrorResponse
	if err := json.Unmarshal(body, &response); err != nil {
		if !json.Valid(body) {
			f.Err = &DecodeError{Err: err}
		}
		return
	}
	f.Code, f.Message = response.Error.Code, response.Error.Message
}

// unzipping decompresses from the first Read on.
type unzipping struct {
	from io.Reader
	zip  *gzip.Reader
}

func (u *unzipping) Read(p []byte) (int, error) {
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

// BadResponse returns the failure of an operation whose successful response lacks
// its main content, which is as good as no response.
func BadResponse(req *Request, err error) error {
	return &Failure{
		Op: req.Op, Attempts: 1, Uncertain: true, Status: http.StatusOK, Err: err,
		Sandbox: req.Op.placeholder("sandbox", req.Path), Session: req.Op.placeholder("session", req.Path),
	}
}

// BodyError reports a response whose body broke off.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return "reading the response: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *BodyError) Unwrap() error { return e.Err }

// DecodeError reports a response that is not the expected JSON.
type DecodeError struct{ Err error }

func (e *DecodeError) Error() string { return "decoding the response: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }

// ContentTypeError reports a response of an unexpected media type.
type ContentTypeError struct{ Got, Want string }

func (e *ContentTypeError) Error() string {
	return "the response's content type is " + strconv.Quote(e.Got) + ", want " + strconv.Quote(e.Want)
}

// errTooLarge reports a JSON response larger than maxResponse.
var errTooLarge = errors.New("the response is larger than 64 MiB")

// errTooMany reports one with more objects than maxObjects.
var errTooMany = errors.New("the response holds more than 100,000 objects")
