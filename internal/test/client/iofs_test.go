package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// TestIOFS runs testing/fstest on a tree of 2,000 files with links, odd names and empty
// files. It opens each file about ten times, and each time runs a program in the sandbox.
func TestIOFS(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	needs.Long(t, "it runs 20,000 programs")
	const count, dirs = 2000, 20
	sb := share(t, nil)
	ctx := t.Context()
	var files []sandbox.File
	var expected []string
	for i := range count {
		name := fmt.Sprintf("dir%02d/sub/file %d", i%dirs, i)
		f := sandbox.File{Path: "tree/" + name}
		switch {
		case i%7 == 0: // empty
		case i%500 == 1:
			f.Content = []byte(strings.Repeat("large ", 100_000))
		default:
			f.Content = []byte("content of " + name)
		}
		files = append(files, f)
		if i%100 == 0 {
			expected = append(expected, name)
		}
	}
	for _, n := range testkit.OddNames {
		if !strings.Contains(n, `\`) { // TestFS rejects names with a backslash
			files = append(files, sandbox.File{Path: "tree/odd/" + n, Content: []byte(n)})
			expected = append(expected, "odd/"+n)
		}
	}
	require.NoError(t, sb.WriteFiles(ctx, files, nil))
	f := sb.FS()
	require.NoError(t, f.Mkdir(ctx, "tree/empty", 0o777))
	require.NoError(t, f.Symlink(ctx, "dir00/sub/file 0", "tree/link"))
	require.NoError(t, f.Symlink(ctx, "dir00", "tree/dirlink"))
	require.NoError(t, f.Symlink(ctx, "../link", "tree/odd/link\nin a line"))
	expected = append(expected, "empty", "link", "dirlink")

	require.NoError(t, fstest.TestFS(f.IOFS(ctx, "tree"), expected...))
}

func TestIOFSUses(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	ctx := t.Context()
	require.NoError(t, sb.WriteFiles(ctx, []sandbox.File{
		{Path: "site/index.html", Content: []byte("<h1>home</h1>")},
		{Path: "site/t/a.tmpl", Content: []byte(`{{define "a"}}a: {{.}}{{end}}`)},
		{Path: "site/t/b.tmpl", Content: []byte(`{{template "a" .}}!`)},
		{Path: "site/large", Content: []byte(strings.Repeat("0123456789", 100_000))},
	}, nil))
	fsys := sb.FS().IOFS(ctx, "/vercel/site/")

	var walked []string
	require.NoError(t, fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		walked = append(walked, name)
		return err
	}))
	assert.Equal(t, []string{".", "index.html", "large", "t", "t/a.tmpl", "t/b.tmpl"}, walked)

	dir, err := fsys.Open("t")
	require.NoError(t, err)
	defer dir.Close()
	var read []string
	for {
		list, err := dir.(fs.ReadDirFile).ReadDir(1)
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		read = append(read, list[0].Name())
		require.LessOrEqual(t, len(read), 2)
	}
	assert.Equal(t, []string{"a.tmpl", "b.tmpl"}, read)

	require.NoError(t, sb.FS().Symlink(ctx, "index.html", "site/link"))
	info, err := fs.Lstat(fsys, "link")
	require.NoError(t, err)
	assert.Equal(t, fs.ModeSymlink, info.Mode().Type())
	assert.Equal(t, "link", info.Name())
	info, err = fs.Stat(fsys, ".")
	require.NoError(t, err)
	assert.Equal(t, ".", info.Name())

	matches, err := fs.Glob(fsys, "*/*.tmpl")
	require.NoError(t, err)
	assert.Equal(t, []string{"t/a.tmpl", "t/b.tmpl"}, matches)

	tmpl, err := template.ParseFS(fsys, "t/*.tmpl")
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, tmpl.ExecuteTemplate(&b, "b.tmpl", "x"))
	assert.Equal(t, "a: x!", b.String())

	srv := httptest.NewServer(http.FileServerFS(fsys))
	defer srv.Close()
	get := func(path, rng string) (int, string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+path, nil)
		require.NoError(t, err)
		if rng != "" {
			req.Header.Set("Range", rng)
		}
		resp, err := srv.Client().Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	status, body := get("/", "")
	assert.Equal(t, "200 <h1>home</h1>", fmt.Sprint(status, " ", body))
	status, body = get("/t/", "")
	assert.Equal(t, 200, status)
	assert.Contains(t, body, "a.tmpl")
	status, body = get("/large", "bytes=500005-500009")
	assert.Equal(t, "206 56789", fmt.Sprint(status, " ", body))
	status, body = get("/large", "")
	assert.Equal(t, 200, status)
	assert.Len(t, body, 1_000_000)
	status, _ = get("/missing", "")
	assert.Equal(t, 404, status)
}

// TestIOFSRanges: reading a part of a large file transfers little else than this part, and
// returns the same bytes as a local reader.
func TestIOFSRanges(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv, _ := start(t, nil)
	var received atomic.Int64
	base := testkit.Transport(t)
	client := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err == nil {
			resp.Body = countedBody{resp.Body, &received}
		}
		return resp, err
	})}})
	ctx := t.Context()
	sb, err := client.Create(ctx, testkit.Lasting(nil))
	require.NoError(t, err)
	testkit.Output(t, sb, "sh", "-c", "truncate -s 800M video.mp4; printf last >>video.mp4")
	files := httptest.NewServer(http.FileServerFS(sb.FS().IOFS(ctx, ".")))
	defer files.Close()
	for rng, want := range map[string]string{"bytes=-4": "last", "bytes=400000000-400000009": strings.Repeat("\x00", 10)} {
		requests, before := len(srv.Requests()), received.Load()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, files.URL+"/video.mp4", nil)
		require.NoError(t, err)
		req.Header.Set("Range", rng)
		resp, err := files.Client().Do(req)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close()))
		assert.Equal(t, 206, resp.StatusCode)
		assert.Equal(t, want, string(got))
		assert.LessOrEqual(t, len(srv.Requests())-requests, 2)
		assert.Less(t, received.Load()-before, int64(1<<20))
	}

	content := make([]byte, 3<<20+12345)
	r := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	for i := range content {
		content[i] = byte(r.Uint32())
	}
	require.NoError(t, sb.FS().WriteFile(ctx, "a large file", content, 0o644))
	f, err := sb.FS().IOFS(ctx, "").Open("a large file")
	require.NoError(t, err)
	defer f.Close()
	file, same := f.(interface {
		io.ReadSeeker
		io.ReaderAt
	}), bytes.NewReader(content)
	rounds := 12
	if !needs.Slow() {
		rounds = 2
	}
	for range rounds {
		at, buf := r.Int64N(int64(len(content)+1000)), make([]byte, r.IntN(500_000))
		for _, read := range []func(io.ReadSeeker, io.ReaderAt) string{
			func(_ io.ReadSeeker, a io.ReaderAt) string {
				n, err := a.ReadAt(buf, at)
				return fmt.Sprint(n, err, bytes.Equal(buf[:n], content[min(at, int64(len(content))):][:n]))
			},
			func(s io.ReadSeeker, _ io.ReaderAt) string {
				_, err := s.Seek(at, io.SeekStart)
				require.NoError(t, err)
				n, err := io.ReadFull(s, buf)
				return fmt.Sprint(n, err, bytes.Equal(buf[:n], content[min(at, int64(len(content))):][:n]))
			},
		} {
			assert.Equal(t, read(same, same), read(file, file), "%d bytes at %d", len(buf), at)
		}
	}
	_, err = file.ReadAt(make([]byte, 1), int64(len(content))-1) // so that the file does not hold its start in memory
	require.NoError(t, err)
	require.NoError(t, sb.FS().Remove(ctx, "a large file"))
	_, err = io.ReadAll(io.NewSectionReader(file, 0, 10))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

type countedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}

func TestIOFSErrors(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	ctx := t.Context()
	require.NoError(t, sb.FS().WriteFile(ctx, "d/file", []byte("x"), 0o644))
	fsys := sb.FS().IOFS(ctx, "d")
	check := func(err error, want error) {
		t.Helper()
		pe, ok := errors.AsType[*fs.PathError](err)
		require.True(t, ok, "%v", err)
		assert.False(t, strings.HasPrefix(pe.Path, "d/"), "the path is relative to the IOFS: %v", err)
		assert.ErrorIs(t, err, want)
	}
	for _, name := range []string{"/file", "../x", "", "a//b", "file/"} {
		_, err := fsys.Open(name)
		check(err, fs.ErrInvalid)
		_, err = fs.ReadFile(fsys, name)
		check(err, fs.ErrInvalid)
	}
	_, err := fsys.Open("no")
	check(err, fs.ErrNotExist)
	_, err = fs.Stat(fsys, "no")
	check(err, fs.ErrNotExist)
	_, err = fs.ReadDir(fsys, "no")
	check(err, fs.ErrNotExist)
	_, err = fs.ReadLink(fsys, "file")
	require.Error(t, err)
	sub, err := fs.Sub(fsys, "no")
	require.NoError(t, err)
	_, err = fs.ReadFile(sub, "x")
	check(err, fs.ErrNotExist)

	file, err := fsys.Open("file")
	require.NoError(t, err)
	_, err = file.(io.Seeker).Seek(-1, io.SeekStart)
	check(err, fs.ErrInvalid)
	require.NoError(t, file.Close())
	_, err = file.Read(make([]byte, 1))
	check(err, fs.ErrClosed)
	check(file.Close(), fs.ErrClosed)
}
