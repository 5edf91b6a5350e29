package api

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// roundTripper is a function that implements http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestContentType: every request has the content type of JSON, even without a body, except
// for uploads.
func TestContentType(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var now *Op
	c := testClient(roundTripper(func(r *http.Request) (*http.Response, error) {
		got = r
		if r.Body != nil {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(success(now)))}, nil
	}))
	for _, op := range Table {
		now = op
		for name, body := range map[string]any{"no body": nil, "a body": map[string]int{"signal": 15}} {
			require.NoError(t, c.Do(t.Context(), &Request{Op: op, Path: values(op), Body: body}, nil))
			assert.Equal(t, []string{"application/json"}, got.Header["Content-Type"], "%s with %s", op.Name, name)
		}
	}
	now = WriteFiles
	upload := &Request{
		Op: WriteFiles, Path: values(WriteFiles), Header: http.Header{"Content-Type": {"application/gzip"}},
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil },
	}
	require.NoError(t, c.Do(t.Context(), upload, nil))
	assert.Equal(t, []string{"application/gzip"}, got.Header["Content-Type"])
}
