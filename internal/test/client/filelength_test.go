package client_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestFileIsWholeOrAnError: a proxy truncates a file, but ends the response properly, so
// that only the file's size shows that data is missing. Reading then returns an error.
func TestFileIsWholeOrAnError(t *testing.T) {
	t.Parallel()
	srv, made := testkit.Start(t, nil)
	const size = 1_000_000
	whole := bytes.Repeat([]byte("0123456789"), size/10)
	require.NoError(t, made.FS().WriteFile(t.Context(), "f", whole, 0o644))
	require.NoError(t, made.FS().WriteFile(t.Context(), "small", whole[:1000], 0o644))
	var cut atomic.Int64 // the number of bytes after which the proxy ends a file
	client := clientWithoutLengths(t, srv, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil && isRead(r) {
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.LimitReader(resp.Body, cut.Load()), resp.Body}
		}
		return resp, err
	})
	sb, err := client.Get(t.Context(), made.Name(), nil)
	require.NoError(t, err)
	open := func(name string, opts *sandbox.OpenOptions) ([]byte, error) {
		r, err := sb.FS().Open(t.Context(), name, opts)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}
	for name, read := range map[string]func(string) ([]byte, error){
		"ReadFile": func(name string) ([]byte, error) { return sb.FS().ReadFile(t.Context(), name) },
		"Open":     func(name string) ([]byte, error) { return open(name, nil) },
		"WriteTo": func(name string) ([]byte, error) {
			r, err := sb.FS().Open(t.Context(), name, nil)
			if err != nil {
				return nil, err
			}
			defer r.Close()
			var b bytes.Buffer
			_, err = r.WriteTo(&b)
			return b.Bytes(), err
		},
		"IOFS.ReadFile": func(name string) ([]byte, error) {
			return fs.ReadFile(sb.FS().IOFS(t.Context(), "."), name)
		},
		"IOFS.Open": func(name string) ([]byte, error) {
			f, err := sb.FS().IOFS(t.Context(), ".").Open(name)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return io.ReadAll(f)
		},
	} {
		for file, full := range map[string]int64{"f": size, "small": 1000} {
			if !needs.Slow() && (file == "f") != (name == "IOFS.Open") {
				continue
			}
			for _, n := range []int64{0, 1, full / 2, full - 1} {
				if !needs.Slow() && n != 0 && n != full-1 {
					continue
				}
				cut.Store(n)
				_, err := read(file)
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF, fmt.Sprintf("%s of %s, %d of %d bytes", name, file, n, full))
			}
			cut.Store(full)
			data, err := read(file)
			require.NoError(t, err, name)
			assert.True(t, bytes.Equal(whole[:full], data), name)
		}
		cut.Store(1 << 40)
		if strings.HasPrefix(name, "IOFS") || !srv.Enforces().Files {
			continue // this row can't read /proc: an IOFS has no absolute names, and a folder has no /proc
		}
		_, err := read("/proc/version")
		assert.NoError(t, err, "%s of a file with content and a size of 0", name)
	}
	if srv.Enforces().Files {
		_, err = fs.ReadFile(sb.FS().IOFS(t.Context(), "/proc"), "version")
		require.NoError(t, err, "IOFS.ReadFile of a file with content and a size of 0")
	}
	cut.Store(10)
	data, err := open("f", &sandbox.OpenOptions{NoSizeCheck: true})
	require.NoError(t, err)
	assert.Len(t, data, 10)
}

// TestAnnouncedLength: a proxy sends a truncated file from its cache, and announces the
// truncated length. Reading returns an error.
func TestAnnouncedLength(t *testing.T) {
	t.Parallel()
	srv, made := shareServer(t, nil)
	require.NoError(t, made.FS().WriteFile(t.Context(), "f", bytes.Repeat([]byte("0123456789"), 1000), 0o644))
	const came = 5000
	next := testkit.Transport(t)
	client := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil && isRead(r) {
			resp.Body, resp.ContentLength = testkit.CleanCut(resp.Body, came), came
			resp.Header.Set("Content-Length", strconv.Itoa(came))
		}
		return resp, err
	})}})
	sb, err := client.Get(t.Context(), made.Name(), nil)
	require.NoError(t, err)
	dst := filepath.Join(t.TempDir(), "f")
	for name, read := range map[string]func() error{
		"ReadFile":      func() error { _, err := sb.FS().ReadFile(t.Context(), "f"); return err },
		"DownloadFile":  func() error { return sb.FS().DownloadFile(t.Context(), "f", dst, nil) },
		"IOFS.ReadFile": func() error { _, err := fs.ReadFile(sb.FS().IOFS(t.Context(), "."), "f"); return err },
		"Open": func() error {
			r, err := sb.FS().Open(t.Context(), "f", nil)
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = io.Copy(io.Discard, r)
			return err
		},
	} {
		assert.ErrorIs(t, read(), io.ErrUnexpectedEOF, name)
	}
	assert.NoFileExists(t, dst)
}

func isRead(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/fs/read") }

func isStart(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/cmd")
}

// clientWithoutLengths returns a client whose responses do not announce a file's length, as on the
// service.
func clientWithoutLengths(t *testing.T, srv *sandboxtest.Server, trip func(*http.Request, http.RoundTripper) (*http.Response, error)) *sandbox.Client {
	direct := testkit.Transport(t)
	return testkit.Client(t, srv, sandbox.ClientOptions{
		MaxRetries: 1, RetryWait: time.Millisecond,
		HTTPClient: &http.Client{Transport: canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := trip(r, direct)
			if err == nil && isRead(r) {
				resp.ContentLength = -1
				resp.Header.Del("Content-Length")
			}
			return resp, err
		})},
	})
}

// TestFileSizeCosts: the client gets a file's size with one request in addition to the
// transfer. The first byte does not wait for this request. The client does not make it if
// it knows the size, or if the size means nothing, as below /proc.
func TestFileSizeCosts(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv, made := testkit.Start(t, nil)
	require.NoError(t, made.FS().WriteFile(t.Context(), "f", []byte("content"), 0o644))
	var reads, starts atomic.Int64
	first := make(chan struct{}) // the first byte has been read
	client := clientWithoutLengths(t, srv, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		switch {
		case isRead(r):
			reads.Add(1)
		case isStart(r):
			starts.Add(1)
			<-first
		}
		return next.RoundTrip(r)
	})
	sb, err := client.Get(t.Context(), made.Name(), nil)
	require.NoError(t, err)
	fsys := sb.FS()
	r, err := fsys.Open(t.Context(), "f", nil)
	require.NoError(t, err)
	var b [1]byte
	_, err = r.Read(b[:])
	require.NoError(t, err)
	close(first)
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "ontent", string(rest))
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())

	iofs := fsys.IOFS(t.Context(), ".")
	for _, c := range []struct {
		name          string
		read          func() error
		reads, starts int64
	}{
		{"Open, without the check", func() error {
			r, err := fsys.Open(t.Context(), "f", &sandbox.OpenOptions{NoSizeCheck: true})
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = io.Copy(io.Discard, r)
			return err
		}, 1, 0},
		{"ReadFile", func() error { _, err := fsys.ReadFile(t.Context(), "f"); return err }, 1, 1},
		{"ReadFile below /proc", func() error { _, err := fsys.ReadFile(t.Context(), "/proc/version"); return err }, 1, 0},
		{"IOFS, whose Open has got the size", func() error {
			f, err := iofs.Open("f")
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.Copy(io.Discard, f)
			return err
		}, 1, 1},
	} {
		if strings.Contains(c.name, "/proc") && !srv.Enforces().Files {
			continue
		}
		reads.Store(0)
		starts.Store(0)
		require.NoError(t, c.read(), c.name)
		assert.Equal(t, c.reads, reads.Load(), "%s: requests for content", c.name)
		assert.Equal(t, c.starts, starts.Load(), "%s: commands", c.name)
	}
}

// TestFileSizeChanges: a file is read again if it grows after its transfer, or if it shrinks
// while it is read. If a file has shrunk since it was opened, reading it succeeds.
func TestFileSizeChanges(t *testing.T) {
	t.Parallel()
	srv, made := shareServer(t, nil)
	put := func(text string) { assert.NoError(t, made.FS().WriteFile(t.Context(), "f", []byte(text), 0o644)) }
	dst := filepath.Join(t.TempDir(), "f")
	for name, read := range map[string]func(*sandbox.FileSystem) ([]byte, error){
		"ReadFile": func(f *sandbox.FileSystem) ([]byte, error) { return f.ReadFile(t.Context(), "f") },
		"DownloadFile": func(f *sandbox.FileSystem) ([]byte, error) {
			if err := f.DownloadFile(t.Context(), "f", dst, nil); err != nil {
				return nil, err
			}
			return os.ReadFile(dst)
		},
	} {
		for _, row := range []struct {
			before, after string
			changesAfter  func(*http.Request) bool // the first transfer, or the request for the size
		}{{"one", "one, two", isRead}, {"one, two", "two", isStart}} {
			put(row.before)
			var reads atomic.Int64
			var changed atomic.Bool
			client := clientWithoutLengths(t, srv, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if err != nil {
					return nil, err
				}
				if isRead(r) && reads.Add(1) == 1 {
					resp.Body = testkit.CleanCut(resp.Body, 3)
				}
				if row.changesAfter(r) && !changed.Swap(true) {
					data, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					resp.Body = io.NopCloser(bytes.NewReader(data))
					put(row.after)
				}
				return resp, nil
			})
			sb, err := client.Get(t.Context(), made.Name(), nil)
			require.NoError(t, err)
			data, err := read(sb.FS())
			require.NoError(t, err, "%s of %q, then %q", name, row.before, row.after)
			assert.Equal(t, row.after, string(data), name)
			assert.EqualValues(t, 2, reads.Load(), name)
		}
	}

	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Get(t.Context(), made.Name(), nil)
	require.NoError(t, err)
	put("one")
	f, err := sb.FS().IOFS(t.Context(), ".").Open("f")
	require.NoError(t, err)
	put("1")
	data, err := io.ReadAll(f)
	require.NoError(t, err)
	assert.Equal(t, "1", string(data))
	require.NoError(t, f.Close())
}
