package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// interference is a response of a proxy or gateway instead of the API's.
type interference struct {
	name   string
	status int
	header string
	body   func(*Op) string // nil for none
}

func text(s string) func(*Op) string { return func(*Op) string { return s } }

// interferences returns the tested responses.
func interferences() (list []interference) {
	const page, object, ndjson = "text/html; charset=utf-8", "application/json", "application/x-ndjson"
	for _, status := range []int{200, 201, 202, 300, 304, 400, 401, 402, 403, 404, 407, 408, 409, 410, 411, 413, 418, 421, 422, 425, 426, 429, 431, 451, 499, 500, 502, 503, 504, 511, 520, 530} {
		list = append(list,
			interference{"page", status, page, text("<html><h1>Please accept our terms</h1></html>")},
			interference{"page that says it is JSON", status, object, text("<html><h1>Please accept our terms</h1></html>")},
			interference{"empty", status, page, nil},
			interference{"null", status, object, text("null")},
			interference{"list", status, object, text("[]")},
			interference{"error without a code", status, object, text(`{"error":{"message":"no"},"message":"no"}`)},
			interference{"error that is a text", status, object, text(`{"error":"access_denied"}`)},
			interference{"error with an empty code", status, object, text(`{"error":{"code":"","message":"no"}}`)},
		)
	}
	half := func(op *Op) string { whole := success(op); return whole[:len(whole)-1] }
	other := func(op *Op) string {
		return strings.NewReplacer(`"one"`, `"other"`, `"two"`, `"other"`).Replace(success(op))
	}
	return append(list,
		interference{"object", 200, object, text("{}")},
		interference{"half of the success", 200, object, half},
		interference{"another object's success", 200, object, other},
		interference{"the success as a list", 200, object, func(op *Op) string { return "[" + success(op) + "]" }},
		interference{"packed", 200, ndjson + "\r\nContent-Encoding: gzip", func(*Op) string {
			var b bytes.Buffer
			zip := gzip.NewWriter(&b)
			_, _ = zip.Write([]byte("{}"))
			_ = zip.Close()
			return b.String()
		}},
		interference{"elsewhere", 302, page + "\r\nLocation: /login", text("moved")},
		interference{"here", 303, page + "\r\nLocation: http://api.test/api/v2/sandboxes/other", text("moved")},
	)
}

// expected is the result of an operation after an interference: a proxy's response shows
// neither that the operation took effect nor that it did not.
func (i interference) expected(op *Op) (sent int, succeeds, unknown bool) {
	isObject := i.body != nil && (strings.HasPrefix(i.body(op), "{") && i.name != "half of the success" || i.name == "packed")
	switch {
	case i.status < 300 && i.body == nil && i.status != 200 && op.Bare:
		return 1, true, false // the API may send this success without a body
	case i.status < 300 && isObject && op.Success == "{}":
		return 1, true, false // any object is a success of these operations
	case i.name == "another object's success" && namesNothing(op):
		return 1, true, false // it looks the same as the requested object's
	case op.Class == Safe && strings.Contains(i.header, "Location") && op.Method == http.MethodGet:
		return 30, false, false // the client follows the redirect, which leads back to itself
	case op.Class == Safe && strings.Contains(i.header, "Location"):
		return 1, false, false // following the redirect would make it another operation
	case op.Class == Safe:
		return 3, false, false
	}
	return 1, false, true
}

// namesNothing reports whether a success of the operation contains no name of the request.
func namesNothing(op *Op) bool {
	return !op.Stream() && !strings.Contains(success(op), `"one"`) && !strings.Contains(success(op), `"two"`)
}

// TestWhatStandsBetween tests every operation with every interference: safe operations are
// retried, and the outcome of others is unknown. By default it tests one operation of each
// method and class, with and without a stream.
func TestWhatStandsBetween(t *testing.T) {
	type kind struct {
		method string
		class  Class
		stream bool
	}
	tested := map[kind]bool{}
	for _, op := range Table {
		k := kind{op.Method, op.Class, op.Stream()}
		if tested[k] && !needs.Slow() {
			continue
		}
		tested[k] = true
		for _, i := range interferences() {
			t.Run(fmt.Sprintf("%s %s/%s %d", op.Name, op.Path, i.name, i.status), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var attempts atomic.Int64
					body := ""
					if i.body != nil && i.status != 304 {
						body = i.body(op)
					}
					f := failure{response: fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", i.status, i.header, len(body), body)}
					c := testClient(&http.Transport{DialContext: f.dialer(&attempts), DisableKeepAlives: true})
					c.cfg.Refresh = func(context.Context, Auth) (Auth, bool) {
						assert.Fail(t, "credentials were refreshed because of an interference")
						return Auth{}, false
					}
					req := &Request{Op: op, Path: values(op)}
					if op.Method == http.MethodPost {
						req.Body = struct{}{}
					}
					var err error
					if op.Stream() {
						_, err = c.Stream(t.Context(), req)
					} else {
						err = c.Do(t.Context(), req, nil)
					}
					sent, succeeds, unknown := i.expected(op)
					assert.EqualValues(t, sent, attempts.Load(), "requests")
					if succeeds {
						require.NoError(t, err)
						return
					}
					fail, ok := errors.AsType[*Failure](err)
					require.True(t, ok, "%v", err)
					assert.Equal(t, unknown, fail.OutcomeUnknown())
					assert.True(t, fail.Kind.Passing(), "the failure looks like a refusal of the API")
					assert.False(t, fail.Refused())
					assert.NotRegexp(t, `it has no [^,]*[{}|\[\]=?]`, err.Error(), "the error shows the notation of Op.Success")
					if i.name == "page" && i.status != 304 {
						assert.Equal(t, i.status, fail.Status)
						assert.Contains(t, err.Error(), "text/html")
						if !op.Stream() {
							assert.Contains(t, err.Error(), "Please accept our terms")
						}
					}
				})
			})
		}
	}
}
