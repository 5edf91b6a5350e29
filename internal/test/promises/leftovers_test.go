package promises_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestLostCreates: the request of a create is lost, and GetOrCreate retries it. OnCreate
// runs once, because this call has created the sandbox.
func TestLostCreates(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	gate := &testkit.Gateway{Next: testkit.Transport(t)}
	c := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}, RetryWait: time.Millisecond})
	creates, runs := 0, 0
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/v3/sandboxes") {
			return next.RoundTrip(req)
		}
		if creates++; creates < 3 {
			return nil, errReset
		}
		return next.RoundTrip(req)
	})
	_, err := c.GetOrCreate(t.Context(), "marked", &sandbox.CreateOptions{OnCreate: func(context.Context, *sandbox.Sandbox) error {
		runs++
		return nil
	}})
	require.NoError(t, err)
	assert.Equal(t, 3, creates)
	assert.Equal(t, 1, runs)
}

// TestCleanUpIsRepeated: the client removes temporary files even if its first request to do
// so is lost.
func TestCleanUpIsRepeated(t *testing.T) {
	t.Parallel()
	_, gate, sb, direct := testkit.LightBehind(t, sandbox.ClientOptions{}, nil)
	w, err := sb.FS().Create(t.Context(), "file", nil)
	require.NoError(t, err)
	_, err = w.Write(make([]byte, 9<<20)) // more than one piece
	require.NoError(t, err)
	const left = "ls -A | grep '^[.]write-'; ls -A /tmp | grep '^[.]piece-'; true"
	require.Eventually(t, func() bool { return strings.Contains(testkit.Output(t, direct, "sh", "-c", left), ".write-") }, testkit.Patience, 10*time.Millisecond)
	lost := 0
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if bytes.Contains(readBody(t, req), []byte(`"rm",`)) && lost == 0 {
			lost++
			return nil, errReset
		}
		return next.RoundTrip(req)
	})
	w.Abort()
	assert.Equal(t, 1, lost)
	assert.Empty(t, testkit.Output(t, direct, "sh", "-c", left))
}

// readBody returns the body of a request, and restores it so that the request can be sent.
func readBody(t *testing.T, req *http.Request) []byte {
	if req.Body == nil {
		return nil
	}
	body, err := io.ReadAll(req.Body)
	assert.NoError(t, err)
	setBody(req, body)
	return body
}

func setBody(req *http.Request, body []byte) {
	req.Body, req.ContentLength, req.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
}

// TestLateUploadIsSwept: an upload arrives after its caller has given up, and leaves a
// temporary file. A later write removes this file if it is older than a day.
func TestLateUploadIsSwept(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv := testkit.LightServer(t)
	late, gate := &delayer{next: testkit.Transport(t)}, &testkit.Gateway{}
	gate.Next = late
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}, RetryWait: time.Millisecond}).Create(t.Context(), nil)
	require.NoError(t, err)
	left := func() []string {
		return strings.Fields(testkit.Output(t, sb, "sh", "-c", "ls -A /tmp | grep '^[.]piece-'; true"))
	}
	small, large := bytes.Repeat([]byte("x"), 70<<10), make([]byte, 200<<10)
	late.hold(api.WriteFiles, 0)
	require.NoError(t, sb.FS().AppendFile(t.Context(), "file", small))
	assert.Empty(t, left())
	late.deliver(t)
	require.Len(t, left(), 1)
	require.NoError(t, sb.FS().AppendFile(t.Context(), "file", large))
	require.Len(t, left(), 1, "the file is too new to be removed")
	const old = "-ctime +0"
	for name, write := range map[string]func() error{
		"AppendFile": func() error { return sb.FS().AppendFile(t.Context(), "file", large) },
		"Create": func() error {
			w, err := sb.FS().Create(t.Context(), "made", nil)
			if err != nil {
				return err
			}
			_, err = w.Write(large)
			require.NoError(t, err)
			return w.Close()
		},
	} {
		testkit.Output(t, sb, "sh", "-c", "head -c 70000 /dev/zero > /tmp/.piece-late; head -c 70000 /dev/zero > /tmp/.piece")
		found := false
		gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if body := readBody(t, req); bytes.Contains(body, []byte(old)) {
				found = true
				setBody(req, bytes.Replace(body, []byte(old), []byte("-size -100k"), 1)) // a test can't set the change time of a file, so search by the size
			}
			return next.RoundTrip(req)
		})
		require.NoError(t, write(), name)
		gate.Set(nil)
		assert.True(t, found, name)
		assert.Empty(t, left(), name)
		assert.Equal(t, ".piece\n", testkit.Output(t, sb, "ls", "-A", "/tmp"), name)
	}
}

// TestSuccessOfNothingSent: a gateway reports the success of an upload before it has read
// any data. The call fails.
func TestSuccessOfNothingSent(t *testing.T) {
	t.Parallel()
	srv, made := testkit.LightStart(t, nil)
	gate := &testkit.Gateway{Next: testkit.Transport(t)}
	c := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}, RetryWait: time.Millisecond})
	sb, err := c.Get(t.Context(), made.Name(), nil)
	require.NoError(t, err)
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !strings.HasSuffix(req.URL.Path, "/fs/write") {
			return next.RoundTrip(req)
		}
		req.Body.Close()
		return canned.JSON(200, "{}"), nil
	})
	assert.Error(t, sb.FS().AppendFile(t.Context(), "f", make([]byte, 1<<20)))
	assert.Error(t, sb.FS().WriteFile(t.Context(), "f", []byte("x"), 0o644))
	assert.Error(t, sb.WriteFiles(t.Context(), []sandbox.File{{Path: "f", Content: []byte("x")}}, nil))
}
