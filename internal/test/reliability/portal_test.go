package reliability_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
)

// portal is something that responds in place of the API, always the same.
type portal struct {
	status int
	header http.Header
	body   string
}

func portals() map[string]portal {
	const page = "<html><head><title>Sign in</title></head><body><h1>Please accept our terms</h1></body></html>"
	html := http.Header{"Content-Type": {"text/html; charset=utf-8"}}
	with := func(name, value string) http.Header {
		h := html.Clone()
		h.Set(name, value)
		return h
	}
	object := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	return map[string]portal{
		"a page":                               {200, html, page},
		"a page that says it is JSON":          {200, object, page},
		"a page that says it is a file":        {200, with("Content-Type", "application/octet-stream"), page},
		"a page that says it has records":      {200, with("Content-Type", "application/x-ndjson"), page},
		"nothing":                              {200, html, ""},
		"nothing, as JSON":                     {200, object, ""},
		"null":                                 {200, object, "null"},
		"a list":                               {200, object, "[]"},
		"a text":                               {200, object, `"ok"`},
		"a login elsewhere":                    {302, with("Location", "https://login.test/"), page},
		"a login here":                         {303, with("Location", "/login"), page},
		"a login that takes the request again": {307, with("Location", "/login"), page},
		"401":                                  {401, with("Www-Authenticate", `Basic realm="proxy"`), page},
		"401 in JSON":                          {401, object, `{"error":"unauthorized","message":"sign in"}`},
		"403":                                  {403, html, page},
		"404":                                  {404, html, page},
		"404 in JSON":                          {404, object, `{"message":"no Route matched with those values"}`},
		"405":                                  {405, html, page},
		"407":                                  {407, with("Proxy-Authenticate", `Basic realm="proxy"`), page},
		"409":                                  {409, html, page},
		"410":                                  {410, html, page},
		"413":                                  {413, html, page},
		"422":                                  {422, object, `{"errors":[]}`},
		"429":                                  {429, with("Retry-After", "3"), page},
		"451":                                  {451, html, page},
		"502":                                  {502, html, page},
		"503 for an hour":                      {503, with("Retry-After", "3600"), page},
		"511":                                  {511, html, page},
	}
}

// words are the errors by which the API alone says something.
var words = []error{
	sandbox.ErrNotFound, sandbox.ErrUnauthorized, sandbox.ErrDeleted, sandbox.ErrStopped, sandbox.ErrConflict, sandbox.ErrSnapshotNotFound,
	sandbox.ErrQuotaExceeded, sandbox.ErrReplaced, sandbox.ErrImageNotReady, fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, io.EOF,
}

// TestPortals calls every method that takes a context through each portal: none
// succeeds, none fails with what only the API can say, none goes on for ever, and
// nothing but the API's host is given the token.
func TestPortals(t *testing.T) {
	names := callsWithContext(t)
	cells, third := 0, 0
	for what, p := range portals() {
		third++
		t.Run(what, func(t *testing.T) {
			for i, name := range names {
				if (i+third)%3 != 0 && !needs.Slow() {
					continue
				}
				synctest.Test(t, func(t *testing.T) { p.play(t, name) })
				cells++
			}
		})
	}
	t.Logf("%d cells", cells)
}

func (p portal) play(t *testing.T, name string) {
	typ, method, _ := strings.Cut(name, ".")
	var requests atomic.Int64
	all := handles(t, canned.RoundTripper(func(req *http.Request) (*http.Response, error) {
		requests.Add(1)
		if req.Body != nil {
			_, _ = io.Copy(io.Discard, req.Body)
			req.Body.Close()
		}
		if req.URL.Host != "api.test" {
			assert.Empty(t, req.Header.Get("Authorization"), "%s: the token goes to %s", name, req.URL.Host)
		}
		resp := canned.Response(p.status, "", strings.NewReader(p.body))
		resp.Header, resp.Request = p.header.Clone(), req
		return resp, nil
	}))
	const limit = 20 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begin := time.Now()
	err := callForError(ctx, t, all, typ, method)
	took := time.Since(begin)
	switch method {
	case "KeepAlive", "EnsureTimeLeft": // outlast what is temporary
		return
	case "WaitForPort", "WaitForLog":
	default:
		assert.Less(t, took, limit, "%s goes on for ever, %d requests", name, requests.Load())
	}
	assert.Positive(t, requests.Load(), "%s: requests", name)
	if !assert.Error(t, err, "%s", name) {
		return
	}
	for _, word := range words {
		assert.NotErrorIs(t, err, word, name)
	}
	if e, ok := errors.AsType[*sandbox.APIError](err); ok {
		assert.Empty(t, e.Code, name)
	}
}

// callForError is callByName, and reads what was opened.
func callForError(ctx context.Context, t *testing.T, handles []any, typ, method string) error {
	if fsys, ok := handles[3].(*sandbox.FileSystem); ok && typ == "FileSystem" && method == "Open" {
		f, err := fsys.Open(ctx, "x", nil)
		if err == nil {
			_, err = io.Copy(io.Discard, f)
			f.Close()
		}
		return err
	}
	err, _ := reflect.TypeAssert[error](callByName(ctx, t, handles, typ, method, true))
	return err
}
