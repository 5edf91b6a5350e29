package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

// maxErrorBody bounds how much of an error answer is kept.
const maxErrorBody = 64 << 10

// Failure is what went wrong with an operation. The root package makes its
// public errors of it.
type Failure struct {
	Op        *Op
	Sandbox   string // the sandbox's name, when the path has one
	Session   string // the session's ID, when the path has one
	Attempts  int
	Uncertain bool // a request that may have acted got no clear answer

	// Of an answer; Status is 0 when there was none.
	Status     int
	Header     http.Header
	Code       string
	Message    string
	Body       []byte
	RetryAfter time.Duration

	// Err is the cause: a transport error, or why an answer is unusable.
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

// OutcomeUnknown reports whether nobody can know if the operation took place.
func (f *Failure) OutcomeUnknown() bool { return f.Uncertain && f.Op.Class != Safe }

// Refused reports whether the API refused the operation because the session is
// not one that runs, before it or an earlier attempt could have acted. It is the
// only place that decides this, of the very answer to this request.
func (f *Failure) Refused() bool {
	if f.Uncertain && f.Op.Class != Safe {
		return false
	}
	switch f.Status {
	case http.StatusGone:
		return !f.SnapshotGone()
	case http.StatusUnprocessableEntity:
		return f.Stopping()
	}
	return false
}

// Stopping reports whether the session is on its way out.
func (f *Failure) Stopping() bool {
	return f.Status == http.StatusUnprocessableEntity && (f.Code == "sandbox_stopping" || f.Code == "sandbox_snapshotting")
}

// SnapshotGone reports whether the sandbox can't be resumed because its files
// are gone. The service has said so with 400 and with 410, with and without a
// code of its own.
func (f *Failure) SnapshotGone() bool {
	if f.Status < 400 || f.Status >= 500 {
		return false
	}
	return f.Code == "snapshot_not_found" ||
		f.Status == http.StatusBadRequest && strings.Contains(f.Message, "Cannot resume sandbox")
}

// Transient reports whether the answer says nothing of the operation: that of a
// proxy or an overloaded server.
func (f *Failure) Transient() bool { return transient(f.Status) }

// errorBodyTime is how long the body of an answer that is no success is read.
const errorBodyTime = 2 * time.Second

// readError fills f from an answer that is not a success, and closes it.
func (f *Failure) readError(resp *http.Response) {
	f.Status, f.Header = resp.StatusCode, resp.Header
	// Whatever this is may go on for ever.
	stop := time.AfterFunc(errorBodyTime, func() { resp.Body.Close() })
	defer func() {
		stop.Stop()
		resp.Body.Close()
	}()
	f.RetryAfter, _ = retryAfter(resp, time.Now())
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		f.Err = &BodyError{Err: err}
		return
	}
	f.Body = body
	if len(body) == 0 {
		return
	}
	var answer wire.ErrorAnswer
	if err := json.Unmarshal(body, &answer); err != nil {
		if !json.Valid(body) {
			f.Err = &DecodeError{Err: err}
		}
		return
	}
	f.Code, f.Message = answer.Error.Code, answer.Error.Message
}

// AuthError reports that the credentials could not be had. Nothing was sent.
type AuthError struct{ Err error }

func (e *AuthError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *AuthError) Unwrap() error { return e.Err }

// NoAnswer is the failure of an operation whose successful answer lacks what it
// is about: as good as none.
func NoAnswer(req *Request, err error) error {
	return &Failure{
		Op: req.Op, Attempts: 1, Uncertain: true, Status: http.StatusOK, Err: err,
		Sandbox: req.Op.placeholder("sandbox", req.Path), Session: req.Op.placeholder("session", req.Path),
	}
}

// BodyError reports an answer whose body broke off.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return "reading the answer: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *BodyError) Unwrap() error { return e.Err }

// DecodeError reports an answer that is not the JSON it should be.
type DecodeError struct{ Err error }

func (e *DecodeError) Error() string { return "decoding the answer: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }

// ContentTypeError reports an answer of another kind than the operation's.
type ContentTypeError struct{ Got, Want string }

func (e *ContentTypeError) Error() string {
	return "the answer's content type is " + strconv.Quote(e.Got) + ", want " + strconv.Quote(e.Want)
}

// errTooLarge reports a JSON answer beyond maxAnswer.
var errTooLarge = errors.New("the answer is larger than 64 MiB")
