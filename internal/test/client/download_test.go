package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDownloadFile(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	ctx := t.Context()
	content := strings.Repeat("\x00\xff0123456789", 50_000)
	require.NoError(t, sb.WriteFiles(ctx, []sandbox.File{{Path: "dir/a", Content: []byte(content)}, {Path: "empty"}}, nil))
	dir := t.TempDir()
	dst := filepath.Join(dir, "new/dirs/a")

	err := sb.FS().DownloadFile(ctx, "dir/a", dst, nil)
	pe, ok := errors.AsType[*fs.PathError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, dst, pe.Path, "the caller's name, not that of a temporary file")
	assert.ErrorIs(t, err, fs.ErrNotExist)

	var last sandbox.Progress
	require.NoError(t, sb.FS().DownloadFile(ctx, "a", dst, &sandbox.DownloadFileOptions{
		Cwd: "/vercel/dir", MkdirAll: true, Progress: func(p sandbox.Progress) { last = p },
	}))
	assert.EqualValues(t, len(content), last.Done)
	assert.EqualValues(t, -1, last.Total, "the API does not report the length of a file")
	data, err := os.ReadFile(dst)
	require.NoError(t, err)
	assert.Equal(t, content, string(data))
	assert.Equal(t, []string{"a"}, testkit.DirNames(t, filepath.Dir(dst)))

	// A download keeps the permissions of the file that it replaces, and links to it.
	script := filepath.Join(dir, "script")
	require.NoError(t, os.WriteFile(script, []byte("old"), 0o600))
	require.NoError(t, os.Chmod(script, 0o751))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("script", link))
	require.NoError(t, sb.FS().DownloadFile(ctx, "/vercel/empty", link, nil))
	info, err := os.Lstat(script)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o751), info.Mode())
	assert.Zero(t, info.Size())
	target, err := os.Readlink(link)
	require.NoError(t, err)
	assert.Equal(t, "script", target)
}

func TestDownloadFileRefusals(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	ctx := t.Context()
	require.NoError(t, sb.FS().WriteFile(ctx, "a", []byte("x"), 0o644))
	dir := t.TempDir()
	dst := filepath.Join(dir, "dst")

	err := sb.FS().DownloadFile(ctx, "missing", dst, nil)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.NotErrorIs(t, err, sandbox.ErrNotFound)
	assert.ErrorIs(t, sb.FS().DownloadFile(ctx, "/vercel", dst, nil), syscall.EISDIR)
	assert.ErrorIs(t, sb.FS().DownloadFile(ctx, "a", dir, nil), syscall.EISDIR)
	assert.ErrorIs(t, sb.FS().DownloadFile(ctx, "", dst, nil), sandbox.ErrInvalid)
	assert.ErrorIs(t, sb.FS().DownloadFile(ctx, "a", "", nil), sandbox.ErrInvalid)
	require.NoError(t, sb.FS().WriteFile(ctx, "large", []byte("twelve bytes"), 0o644))
	var tooLarge *http.MaxBytesError
	err = sb.FS().DownloadFile(ctx, "large", dst, &sandbox.DownloadFileOptions{MaxBytes: 11})
	require.ErrorAs(t, err, &tooLarge)
	assert.ErrorContains(t, err, "the file is larger than the limit of 11 bytes")
	closed, err := sb.FS().Open(ctx, "large", nil)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	_, err = closed.Read(make([]byte, 1))
	assert.ErrorIs(t, err, fs.ErrClosed)

	remove := srv.Inject(sandboxtest.Fault{Operation: sandboxtest.ReadFile, Status: 404, Code: "session_not_found"})
	err = sb.FS().DownloadFile(ctx, "a", dst, nil)
	assert.ErrorIs(t, err, sandbox.ErrNotFound, "the session is missing, not the file")
	assert.NotErrorIs(t, err, fs.ErrNotExist)
	remove()
	assert.Empty(t, testkit.DirNames(t, dir))
}

// TestDownloadCut cuts a download at random places. In the end the file is complete or,
// if the connection breaks each time, unchanged.
func TestDownloadCut(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	ctx := t.Context()
	content := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{7}).Read(content)
	require.NoError(t, sb.FS().WriteFile(ctx, "a", content, 0o644))
	dir := t.TempDir()
	dst := filepath.Join(dir, "dst")
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2 {
		remove := srv.Inject(sandboxtest.Fault{Operation: sandboxtest.ReadFile, CutAfterBytes: 1 + rnd.Int64N(int64(len(content))-1), Times: 1})
		var fellBack bool
		last := int64(0)
		require.NoError(t, sb.FS().DownloadFile(ctx, "a", dst, &sandbox.DownloadFileOptions{Progress: func(p sandbox.Progress) {
			fellBack = fellBack || p.Done < last
			last = p.Done
		}}))
		remove()
		data, err := os.ReadFile(dst)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(content, data))
		assert.EqualValues(t, len(content), last)
		require.NoError(t, os.Remove(dst))
	}

	before := testkit.Count(srv, sandboxtest.ReadFile)
	remove := srv.Inject(sandboxtest.Fault{Operation: sandboxtest.ReadFile, CutAfterBytes: 1 << 19})
	err := sb.FS().DownloadFile(ctx, "a", dst, nil)
	remove()
	require.Error(t, err)
	pe, ok := errors.AsType[*fs.PathError](err)
	require.True(t, ok)
	assert.Equal(t, "a", pe.Path)
	assert.Equal(t, before+3, testkit.Count(srv, sandboxtest.ReadFile))
	assert.Empty(t, testkit.DirNames(t, dir))
}

// A canceled download does not change an existing file.
func TestDownloadCancelled(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	require.NoError(t, sb.FS().WriteFile(t.Context(), "a", make([]byte, 8<<20), 0o644))
	dir := t.TempDir()
	dst := filepath.Join(dir, "dst")
	require.NoError(t, os.WriteFile(dst, []byte("old"), 0o644))
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	err := sb.FS().DownloadFile(ctx, "a", dst, &sandbox.DownloadFileOptions{Progress: func(p sandbox.Progress) {
		if p.Done > 1<<20 {
			cancel(why)
		}
	}})
	assert.ErrorIs(t, err, why)
	data, err := os.ReadFile(dst)
	require.NoError(t, err)
	assert.Equal(t, "old", string(data))
	assert.Equal(t, []string{"dst"}, testkit.DirNames(t, dir))

	if !needs.Slow() {
		return // TestFilesEndWithTheirContext cancels DownloadDir
	}
	require.NoError(t, sb.FS().MkdirAll(t.Context(), "big", 0o777))
	require.NoError(t, sb.FS().Rename(t.Context(), "a", "big/a"))
	ctx, cancel = context.WithCancelCause(t.Context())
	out := filepath.Join(dir, "out")
	err = sb.FS().DownloadDir(ctx, "big", out, &sandbox.DownloadDirOptions{Progress: func(sandbox.Progress) { cancel(why) }})
	assert.ErrorIs(t, err, why)
	assert.Empty(t, testkit.DirNames(t, out))
}

// TestDownloadDirHostile: DownloadDir omits pipes and links that lead out of the
// directory, and does not exceed MaxBytes and MaxEntries.
func TestDownloadDirHostile(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	ctx := t.Context()
	f := sb.FS()
	require.NoError(t, f.MkdirAll(ctx, "evil", 0o777))
	require.NoError(t, f.Symlink(ctx, "/etc/passwd", "evil/absolute"))
	testkit.Output(t, sb, "mkfifo", "evil/pipe")
	dir := t.TempDir()
	dst := filepath.Join(dir, "dst")
	var leftOut []string
	opts := &sandbox.DownloadDirOptions{LeftOut: func(name string) { leftOut = append(leftOut, name) }}
	require.NoError(t, sb.FS().DownloadDir(ctx, "evil", dst, opts))
	assert.ElementsMatch(t, []string{"absolute", "pipe"}, leftOut)
	assert.Empty(t, testkit.DirNames(t, dst))
	leftOut, opts.OutsideLinks, opts.Exclude = nil, true, []string{"pipe"}
	require.NoError(t, sb.FS().DownloadDir(ctx, "evil", dst, opts))
	assert.Empty(t, leftOut, "excluded files are not reported")
	assert.Equal(t, []string{"absolute"}, testkit.DirNames(t, dst))

	testkit.Output(t, sb, "sh", "-c", "rm evil/*; truncate -s 3M evil/a")
	assert.ErrorIs(t, sb.FS().DownloadDir(ctx, "evil", dst, &sandbox.DownloadDirOptions{MaxBytes: 1 << 20}), sandbox.ErrUnsafeArchive)
	testkit.Output(t, sb, "sh", "-c", "truncate -s 10 evil/a; cp evil/a evil/b")
	assert.ErrorIs(t, sb.FS().DownloadDir(ctx, "evil", dst, &sandbox.DownloadDirOptions{MaxEntries: 2}), sandbox.ErrUnsafeArchive)
	assert.Equal(t, []string{"dst"}, testkit.DirNames(t, dir))
}

// TestDownloadDirScripted downloads archives that no tar would create.
func TestDownloadDirScripted(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	ctx := t.Context()
	dst := filepath.Join(t.TempDir(), "dst")
	for name, out := range map[string]string{
		"nothing":       "",
		"no base64":     "!!!!",
		"no gzip":       "AAAAAAAAAAAAAAAAAAAA\n",
		"cut gzip":      "H4sIAAAAAAAAA+3RMQ4CMQwAwfwkP0B2lATec0V6\n",
		"only the head": "H4sIAAAAAAAA/w==\n",
	} {
		srv.HandleCommand("bash", func(_ context.Context, c *sandboxtest.Invocation) int {
			_, _ = c.Stdout.Write([]byte(out))
			return 0
		})
		err := sb.FS().DownloadDir(ctx, "d", dst, nil)
		assert.Error(t, err, name)
	}
	for _, out := range []string{"", "H4sIAAAAAAAA/w==\n"} { // tar fails before or after it has written
		srv.HandleCommand("bash", func(_ context.Context, c *sandboxtest.Invocation) int {
			_, _ = c.Stdout.Write([]byte(out))
			_, _ = c.Stderr.Write([]byte("bash: line 1: cd: d: Permission denied\n"))
			return 1
		})
		err := sb.FS().DownloadDir(ctx, "d", dst, nil)
		assert.ErrorIs(t, err, fs.ErrPermission)
		pathErr, ok := errors.AsType[*fs.PathError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, "d", pathErr.Path)
	}
}

// io.Copy returns the same with WriteTo and with Read, for complete and for truncated files.
func TestReadFileCopied(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 100_000)
	size := len(content)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasSuffix(req.URL.Path, "/fs/read") {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"sandbox":%s,"session":%s,"routes":[]}`, fmt.Sprintf(canned.Sandbox, 0), canned.Session)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", fmt.Sprint(size))
		_, _ = io.WriteString(w, content)
	}))
	t.Cleanup(srv.Close)
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL:     srv.URL,
		Credentials: auth.Static(auth.Credentials{Token: "token", TeamID: "team", ProjectID: "project"}),
	})
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	sb, err := c.Create(t.Context(), nil)
	require.NoError(t, err)

	read := func(t *testing.T, hide bool) (string, error) {
		rc, err := sb.FS().Open(t.Context(), "/file", &sandbox.OpenOptions{NoSizeCheck: true})
		require.NoError(t, err)
		defer rc.Close()
		var src io.Reader = rc
		if hide {
			src = struct{ io.Reader }{rc}
		}
		var buf bytes.Buffer
		n, err := io.Copy(&buf, src)
		assert.EqualValues(t, buf.Len(), n)
		return buf.String(), err
	}
	for _, hide := range []bool{false, true} {
		got, err := read(t, hide)
		require.NoError(t, err)
		assert.True(t, got == content)
	}
	size++
	for _, hide := range []bool{false, true} {
		got, err := read(t, hide)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		var pathErr *fs.PathError
		require.ErrorAs(t, err, &pathErr)
		assert.Equal(t, "/file", pathErr.Path)
		assert.True(t, got == content)
	}
}

// changed returns a sandbox for which the test changes the responses of the file API.
func changed(t *testing.T, create *sandbox.CreateOptions, change func(*http.Response)) *sandbox.Sandbox {
	t.Helper()
	srv := sandboxtest.New(t, nil)
	tr := testkit.Transport(t)
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := tr.RoundTrip(r)
		if err == nil && strings.HasSuffix(r.URL.Path, "/fs/read") {
			change(resp)
		}
		return resp, err
	})}}).Create(t.Context(), testkit.Lasting(create))
	require.NoError(t, err)
	return sb
}

// A file without a known length is complete only when it is as long as the
// sandbox reports.
func TestDownloadWithoutLength(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	cuts := 0
	sb := changed(t, nil, func(resp *http.Response) {
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
		if cuts--; cuts >= 0 {
			body := resp.Body
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.LimitReader(body, 1000), body}
		}
	})
	content := bytes.Repeat([]byte("hello "), 100_000)
	require.NoError(t, sb.WriteFiles(t.Context(), []sandbox.File{{Path: "d/f", Content: content}}, nil))
	dir := t.TempDir()
	dst := filepath.Join(dir, "f")
	for _, cuts = range []int{0, 1, 2} {
		require.NoError(t, sb.FS().DownloadFile(t.Context(), "f", dst, &sandbox.DownloadFileOptions{Cwd: "d"}))
		got, err := os.ReadFile(dst)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(content, got))
	}
	require.NoError(t, os.WriteFile(dst, []byte("old"), 0o600))
	cuts = 3
	assert.ErrorIs(t, sb.FS().DownloadFile(t.Context(), "d/f", dst, nil), io.ErrUnexpectedEOF)
	got, err := os.ReadFile(dst)
	require.NoError(t, err)
	assert.Equal(t, "old", string(got))
	assert.Equal(t, []string{"f"}, testkit.DirNames(t, dir))

	// If the sandbox can't report the length, the download succeeds unchecked.
	sb = changed(t, &sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/nowhere"}}, func(resp *http.Response) {
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	})
	require.NoError(t, sb.WriteFiles(t.Context(), []sandbox.File{{Path: "f", Content: content}}, nil))
	require.NoError(t, sb.FS().DownloadFile(t.Context(), "f", dst, nil))
}

// TestDownloadKernelFile: a file below /sys, which reports the size of a page instead of
// its own, can be downloaded.
func TestDownloadKernelFile(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.Start(t, nil)
	if srv.Mode() == sandboxtest.Folder {
		needs.Missing(t, "namespaces: without them, files outside of the sandbox's folder can't be read")
	}
	done, err := sb.RunCommand(t.Context(), "sh", []string{"-c", `
for f in /sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/notes /sys/kernel/* /sys/module/*/parameters/*; do
	[ -f "$f" ] && [ -r "$f" ] && [ "$(stat -c %s "$f")" = 4096 ] && n=$(cat "$f" 2>/dev/null | wc -c) && [ "$n" -gt 0 ] && [ "$n" -lt 4096 ] && echo "$f" && exit
done`}, nil)
	require.NoError(t, err)
	out, err := done.Stdout(t.Context())
	require.NoError(t, err)
	name := strings.TrimSpace(out)
	if name == "" {
		needs.Missing(t, "a file below /sys that is shorter than its size")
	}
	want, err := sb.FS().ReadFile(t.Context(), name)
	require.NoError(t, err)
	dst := filepath.Join(t.TempDir(), "f")
	require.NoError(t, sb.FS().DownloadFile(t.Context(), name, dst, nil))
	got, err := os.ReadFile(dst)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
	assert.Less(t, len(got), 4096)
}

// If a response is compressed although the client did not ask for it, the call fails.
func TestDownloadCompressed(t *testing.T) {
	t.Parallel()
	sb := changed(t, nil, func(resp *http.Response) { resp.Header.Set("Content-Encoding", "gzip") })
	require.NoError(t, sb.FS().WriteFile(t.Context(), "f", []byte("x"), 0o644))
	_, err := sb.FS().ReadFile(t.Context(), "f")
	assert.ErrorContains(t, err, "gzip")
	dir := t.TempDir()
	assert.ErrorContains(t, sb.FS().DownloadFile(t.Context(), "f", filepath.Join(dir, "f"), nil), "gzip")
	assert.Empty(t, testkit.DirNames(t, dir))
}

// DownloadDir downloads the named directory even if the name means something else to the
// shell's cd, as "-" does, or any name with CDPATH.
func TestDownloadDirNames(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := shareIsolated(t, &sandbox.CreateOptions{Env: sandbox.Env{"CDPATH": "/tmp", "OLDPWD": "/tmp"}})
	names := []string{"data", "-P"}
	if needs.Slow() {
		names = append(names, "-", "/tmp/data")
	}
	for _, name := range names {
		require.NoError(t, sb.FS().WriteFile(t.Context(), name+"/f", []byte(name), 0o644))
	}
	for _, name := range names {
		dst := t.TempDir()
		require.NoError(t, sb.FS().DownloadDir(t.Context(), name, dst, nil), name)
		got, err := os.ReadFile(filepath.Join(dst, "f"))
		require.NoError(t, err)
		assert.Equal(t, name, string(got))
	}
}
