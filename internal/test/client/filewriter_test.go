package client_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// beforeRequest is a transport that calls do once, before a POST request whose path ends
// with suffix.
type beforeRequest struct {
	http.RoundTripper
	suffix string
	mu     sync.Mutex
	do     func()
}

func (b *beforeRequest) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, b.suffix) {
		b.mu.Lock()
		do := b.do
		b.do = nil
		b.mu.Unlock()
		if do != nil {
			do()
		}
	}
	return b.RoundTripper.RoundTrip(r)
}

func (b *beforeRequest) arm(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.do = do
}

// startBefore starts an emulator and creates a sandbox with a client that uses b.
func startBefore(t *testing.T, b *beforeRequest, create *sandbox.CreateOptions) (*sandboxtest.Server, *sandbox.Sandbox) {
	t.Helper()
	srv := sandboxtest.New(t, nil)
	b.RoundTripper = testkit.Transport(t)
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: b}}).Create(t.Context(), testkit.Lasting(create))
	require.NoError(t, err)
	return srv, sb
}

// noTemporaries checks that no temporary file is left in the sandbox.
func noTemporaries(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	done, err := sb.RunCommand(t.Context(), "find", []string{"/tmp", sb.Cwd(), "-name", ".piece-*", "-o", "-name", ".write-*"}, nil)
	require.NoError(t, err)
	left, err := done.Stdout(t.Context())
	require.NoError(t, err)
	assert.Empty(t, left)
}

// AppendFile keeps the file's existing content, whatever happens to the uploaded data.
func TestAppendKeepsTheFile(t *testing.T) {
	t.Parallel()
	old := bytes.Repeat([]byte("precious\n"), 20_000)
	added := bytes.Repeat([]byte("n"), 70<<10)
	for name, disturb := range map[string]func(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox){
		"a cleaner of /tmp": func(t *testing.T, _ *sandboxtest.Server, sb *sandbox.Sandbox) {
			_, err := sb.RunCommand(context.WithoutCancel(t.Context()), "sh", []string{"-c", "rm -f /tmp/.piece-*"}, nil)
			require.NoError(t, err)
		},
		"a crash": func(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox) { assert.True(t, srv.Crash(sb.Name())) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "a cleaner of /tmp" {
				needs.Long(t, "the row with a crash loses the same files")
			}
			b := &beforeRequest{suffix: "/cmd"}
			srv, sb := startBefore(t, b, nil)
			require.NoError(t, sb.FS().WriteFile(t.Context(), "db.log", old, 0o600))
			_, err := sb.Stop(t.Context(), nil) // makes a snapshot with the file
			require.NoError(t, err)
			_, err = sb.RunCommand(t.Context(), "true", nil, nil)
			require.NoError(t, err)
			b.arm(func() { disturb(t, srv, sb) })
			require.NoError(t, sb.FS().AppendFile(t.Context(), "db.log", added))
			now, err := sb.FS().ReadFile(t.Context(), "db.log")
			require.NoError(t, err)
			assert.True(t, bytes.Equal(now, append(old, added...)), "%d bytes", len(now))
			info, err := sb.FS().Stat(t.Context(), "db.log")
			require.NoError(t, err)
			assert.Equal(t, fs.FileMode(0o600), info.Mode())
			noTemporaries(t, sb)
		})
	}

	t.Run("credentials are missing for a moment", func(t *testing.T) {
		t.Parallel()
		srv := light().use(t)
		var gone atomic.Bool
		client, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: srv.URL, Credentials: auth.ProviderFunc(func(ctx context.Context) (auth.Credentials, error) {
			if gone.Swap(false) {
				return auth.Credentials{}, &fs.PathError{Op: "open", Path: "token", Err: syscall.ENOENT}
			}
			return testkit.Credentials(srv).Credentials(ctx)
		})})
		require.NoError(t, err)
		t.Cleanup(client.CloseIdleConnections)
		sb, err := client.Create(t.Context(), nil)
		require.NoError(t, err)
		deleteLast(t, sb)
		require.NoError(t, sb.FS().WriteFile(t.Context(), "db.log", old, 0o644))
		gone.Store(true)
		require.ErrorIs(t, sb.FS().AppendFile(t.Context(), "db.log", []byte("one more line\n")), fs.ErrNotExist)
		now, err := sb.FS().ReadFile(t.Context(), "db.log")
		require.NoError(t, err)
		assert.True(t, bytes.Equal(now, old))
	})

	t.Run("a program prints messages in another language", func(t *testing.T) {
		t.Parallel()
		sb := shareIsolated(t, &sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/vercel/bin:/usr/local/bin:/usr/bin:/bin"}})
		require.NoError(t, sb.FS().WriteFile(t.Context(), "bin/dd", []byte(`#!/bin/sh
[ "$LC_ALL" = C ] && m='Permission denied' || m='Keine Berechtigung'
echo "dd: $m" >&2
exit 1
`), 0o755))
		require.NoError(t, sb.FS().WriteFile(t.Context(), "locked.log", old, 0o444))
		for _, data := range [][]byte{[]byte("small"), added} {
			assert.ErrorIs(t, sb.FS().AppendFile(t.Context(), "locked.log", data), fs.ErrPermission)
		}
		now, err := sb.FS().ReadFile(t.Context(), "locked.log")
		require.NoError(t, err)
		assert.True(t, bytes.Equal(now, old))
		noTemporaries(t, sb)
	})
}

// Each of several concurrent appends arrives whole, as with package os, even if the
// directory does not exist at first.
func TestAppendConcurrently(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	writers, each := 8, 4
	if !needs.Slow() {
		writers, each = 3, 2
	}
	line := func(w, i int) string {
		return fmt.Sprintf("%02d-%02d:%s\n", w, i, strings.Repeat(string(rune('a'+w)), 20_000+30_000*(i%2)))
	}
	want := map[string]int{}
	var group sync.WaitGroup
	for w := range writers {
		for i := range each {
			want[line(w, i)]++
		}
		group.Go(func() {
			for i := range each {
				assert.NoError(t, sb.FS().AppendFile(t.Context(), "new/dir/log", []byte(line(w, i))))
			}
		})
	}
	group.Wait()
	data, err := sb.FS().ReadFile(t.Context(), "new/dir/log")
	require.NoError(t, err)
	for l := range strings.Lines(string(data)) {
		want[l]--
	}
	for l, n := range want {
		assert.Zero(t, n, "%.20q", l)
	}
}

// If the sandbox loses written data, a FileWriter returns an error and leaves no temporary
// file.
func TestWriterAcrossSessions(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	first, second := bytes.Repeat([]byte("A"), 8<<20+1), bytes.Repeat([]byte("B"), 4<<20)
	for name, c := range map[string]struct {
		persistent bool
		end        func(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox)
		lost       bool
	}{
		"a stop that keeps the files": {true, func(t *testing.T, _ *sandboxtest.Server, sb *sandbox.Sandbox) {
			_, err := sb.Stop(t.Context(), nil)
			require.NoError(t, err)
		}, false},
		"a stop that keeps nothing": {false, func(t *testing.T, _ *sandboxtest.Server, sb *sandbox.Sandbox) {
			_, err := sb.Stop(t.Context(), nil)
			require.NoError(t, err)
		}, true},
		"a crash": {true, func(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox) {
			assert.True(t, srv.Crash(sb.Name()))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "a crash" {
				needs.Long(t, "the row with a crash loses written data")
			}
			srv, sb := start(t, &sandbox.CreateOptions{Ephemeral: !c.persistent})
			if c.persistent { // make a snapshot, from which the sandbox can resume after the crash
				_, err := sb.Stop(t.Context(), nil)
				require.NoError(t, err)
			}
			require.NoError(t, sb.FS().WriteFile(t.Context(), "dump.sql", []byte("old"), 0o644))
			w, err := sb.FS().Create(t.Context(), "dump.sql", nil)
			require.NoError(t, err)
			_, err = w.Write(first)
			require.NoError(t, err)
			joined, err := sb.RunCommand(t.Context(), "timeout", []string{"120", "sh", "-c",
				`until [ "$(stat -c %s .write-*)" = 8388608 ] && [ -z "$(ls -A /tmp)" ]; do sleep .1; done`}, nil)
			require.NoError(t, err)
			require.Zero(t, joined.ExitCode, "the file with the first piece, in time")
			c.end(t, srv, sb)
			_, err = w.Write(second)
			if closeErr := w.Close(); err == nil {
				err = closeErr
			}
			got, readErr := sb.FS().ReadFile(t.Context(), "dump.sql")
			switch {
			case c.lost && c.persistent:
				assert.ErrorContains(t, err, "gone")
				assert.ErrorIs(t, readErr, fs.ErrNotExist) // the snapshot is older than the file
			case c.lost: // the sandbox can't resume
				assert.ErrorContains(t, err, "no snapshot available")
				assert.ErrorContains(t, readErr, "no snapshot available")
				return
			default:
				require.NoError(t, err)
				assert.True(t, bytes.Equal(got, append(first, second...)), "%d bytes", len(got))
			}
			noTemporaries(t, sb)
		})
	}
}

// lateProxy breaks the connection of one upload after some bytes. It delivers these bytes
// to the server once the test closes deliver.
type lateProxy struct {
	url     string
	armed   atomic.Bool
	after   int64
	deliver chan struct{}
	late    chan struct{} // closed after the server has received them
}

func newLateProxy(t *testing.T, target string, after int64) *lateProxy {
	t.Helper()
	u, err := url.Parse(target)
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &lateProxy{url: "http://" + ln.Addr().String() + u.Path, after: after, deliver: make(chan struct{}), late: make(chan struct{})}
	var group sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	keep := func(c net.Conn) net.Conn { mu.Lock(); defer mu.Unlock(); open = append(open, c); return c }
	group.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			keep(c)
			group.Go(func() {
				defer c.Close()
				s, err := net.Dial("tcp", u.Host)
				if err != nil {
					return
				}
				defer keep(s).Close()
				var buf bytes.Buffer
				head := make([]byte, 4096)
				n, _ := c.Read(head)
				buf.Write(head[:n])
				if bytes.Contains(head[:n], []byte("/fs/write")) && p.armed.CompareAndSwap(true, false) {
					_, _ = io.CopyN(&buf, c, p.after)
					_ = c.(*net.TCPConn).SetLinger(0)
					c.Close() // the client sees a reset
					<-p.deliver
					_, _ = s.Write(buf.Bytes())
					_ = s.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, s)
					close(p.late)
					return
				}
				_, _ = s.Write(buf.Bytes())
				group.Go(func() {
					_, _ = io.Copy(s, c)
					_ = s.(*net.TCPConn).CloseWrite()
				})
				_, _ = io.Copy(c, s)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		group.Wait()
	})
	return p
}

// If the network delivers the data of an abandoned upload late, this data does not get
// into the file that FileWriter or AppendFile writes.
func TestLateUpload(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv := newServer(t)
	size := 5 << 20
	if !needs.Slow() {
		size = 1 << 20
	}
	data := make([]byte, size)
	_, err := rand.Read(data)
	require.NoError(t, err)
	for name, write := range map[string]func(ctx context.Context, f *sandbox.FileSystem) error{
		"FileWriter": func(ctx context.Context, f *sandbox.FileSystem) error {
			w, err := f.Create(ctx, "f", nil)
			if err != nil {
				return err
			}
			_, err = w.Write(data)
			return errors.Join(err, w.Close())
		},
		"AppendFile": func(ctx context.Context, f *sandbox.FileSystem) error { return f.AppendFile(ctx, "f", data) },
	} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, delivered before the command: %t", name, early), func(t *testing.T) {
				t.Parallel()
				if name != "FileWriter" {
					needs.Long(t, "both upload pieces")
				}
				p := newLateProxy(t, srv.URL, 300_000)
				b := &beforeRequest{suffix: "/cmd", RoundTripper: &http.Transport{DisableKeepAlives: true}}
				client, err := sandbox.NewClient(&sandbox.ClientOptions{
					BaseURL: p.url, Credentials: testkit.Credentials(srv), HTTPClient: &http.Client{Transport: b},
				})
				require.NoError(t, err)
				sb, err := client.Create(t.Context(), nil)
				require.NoError(t, err)
				p.armed.Store(true)
				deliver := func() { close(p.deliver); <-p.late }
				if early { // deliver when the whole file is uploaded, before the command that moves it
					b.arm(deliver)
				}
				require.NoError(t, write(t.Context(), sb.FS()))
				check := func(when string) {
					got, err := sb.FS().ReadFile(t.Context(), "f")
					require.NoError(t, err)
					assert.True(t, bytes.Equal(got, data), "%s: %d bytes", when, len(got))
				}
				check("at once")
				if !early {
					deliver()
				}
				check("after the late delivery")
			})
		}
	}
}

// If the response to the command that joins the pieces is lost, the client runs it again.
func TestWriterLosesResponses(t *testing.T) {
	t.Parallel()
	needs.Long(t, "it writes 40 MiB; TestJoinRunsTwice also loses a response")
	needs.GNU(t)
	srv, sb := start(t, nil)
	data := make([]byte, 8<<20+1<<10) // two pieces, the last one short
	_, err := rand.Read(data)
	require.NoError(t, err)
	for i, f := range []sandboxtest.Fault{
		{Operation: sandboxtest.RunCommand, ActThenStatus: 502, Times: 2},
		{Operation: sandboxtest.RunCommand, DropAfter: true, Times: 1},
		{Operation: sandboxtest.RunCommand, DropBefore: true, Times: 2},
		{Operation: sandboxtest.WriteFiles, ActThenStatus: 504, Times: 2},
		{Operation: sandboxtest.WriteFiles, DropAfter: true, Times: 2},
	} {
		name := fmt.Sprint("f", i)
		remove := srv.Inject(f)
		w, err := sb.FS().Create(t.Context(), name, nil)
		require.NoError(t, err)
		_, err = io.Copy(w, bytes.NewReader(data))
		require.NoError(t, err)
		require.NoError(t, w.Close(), "%+v", f)
		remove()
		got, err := sb.FS().ReadFile(t.Context(), name)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(got, data), "%+v: %d bytes", f, len(got))
	}
	noTemporaries(t, sb)
}

// Creating a small file takes two requests. For an invalid name, the error has the reason.
func TestCreateNames(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv, sb := testkit.Start(t, nil)
	f := sb.FS()
	create := func(name string) error {
		w, err := f.Create(t.Context(), name, nil)
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, name)
		return errors.Join(err, w.Close())
	}
	asked := len(srv.Requests())
	require.NoError(t, create("small"))
	assert.Equal(t, 2, len(srv.Requests())-asked)

	require.NoError(t, f.MkdirAll(t.Context(), "a/b", 0o755))
	require.NoError(t, f.Symlink(t.Context(), "a/b", "l"))
	require.NoError(t, f.Symlink(t.Context(), "small", "link"))
	names := map[string]string{
		"l/../x": "a/x", // the kernel follows the link l before it applies ".."
		"link":   "small", "-new/deep/name\xff": "-new/deep/name\xff",
	}
	if needs.Slow() {
		names["/tmp/abs"] = "/tmp/abs"
	}
	for name, at := range names {
		require.NoError(t, create(name), "%q", name)
		got, err := f.ReadFile(t.Context(), at)
		require.NoError(t, err, "%q", name)
		assert.Equal(t, name, string(got))
	}
	info, err := f.Lstat(t.Context(), "link")
	require.NoError(t, err)
	assert.Equal(t, fs.ModeSymlink, info.Mode().Type(), "the link still exists")

	_, err = sb.RunCommand(t.Context(), "mkfifo", []string{"pipe"}, nil)
	require.NoError(t, err)
	assert.ErrorContains(t, create("pipe"), "not a regular file")
	for name, want := range map[string]error{
		"l": syscall.EISDIR, "small/x": syscall.ENOTDIR, "new/": syscall.EISDIR, "": fs.ErrNotExist,
	} {
		assert.ErrorIs(t, create(name), want, "%q", name)
	}
	noTemporaries(t, sb)
}

// A path that ends with a slash means the same as in package os, or causes an error.
func TestTrailingSlash(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	f := sb.FS()
	require.NoError(t, f.WriteFile(t.Context(), "store/data", []byte("x"), 0o644))
	require.NoError(t, f.Symlink(t.Context(), "store", "link"))
	require.NoError(t, f.RemoveAll(t.Context(), "link//"))
	_, err := f.Lstat(t.Context(), "link")
	assert.ErrorIs(t, err, fs.ErrNotExist, "the link is gone")
	_, err = f.Stat(t.Context(), "store/data")
	require.NoError(t, err, "the link's target remains")
	require.NoError(t, f.RemoveAll(t.Context(), "store/data/"))
	_, err = f.Stat(t.Context(), "store/data")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	before := len(srv.Requests())
	assert.ErrorIs(t, f.RemoveAll(t.Context(), "//"), fs.ErrPermission)
	assert.Len(t, srv.Requests(), before, "no request, because BusyBox's rm would remove everything")

	assert.ErrorIs(t, f.WriteFile(t.Context(), "new/", nil, 0o644), syscall.EISDIR)
	assert.ErrorIs(t, f.AppendFile(t.Context(), "new/", nil), syscall.EISDIR)
}

// Renaming a file to another hard link of the same file does nothing, like rename(2).
func TestRenameHardLinks(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	f := sb.FS()
	require.NoError(t, f.WriteFile(t.Context(), "one", []byte("x"), 0o644))
	_, err := sb.RunCommand(t.Context(), "ln", []string{"one", "two"}, nil)
	require.NoError(t, err)
	require.NoError(t, f.Rename(t.Context(), "one", "two"))
	for _, name := range []string{"one", "two"} {
		got, err := f.ReadFile(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, "x", string(got))
	}
}

// If a path names a pipe that no process reads, an operation fails at once or ends with
// its context. No process stays behind in the sandbox.
func TestFilesThatArePipes(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	_, err := sb.RunCommand(t.Context(), "mkfifo", []string{"pipe"}, nil)
	require.NoError(t, err)
	assert.ErrorIs(t, sb.FS().Truncate(t.Context(), "pipe", 0), syscall.EINVAL)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		assert.Eventually(t, func() bool { // until the command of AppendFile runs
			return slices.ContainsFunc(must(sb.ListCommands(t.Context())), func(cmd *sandbox.Command) bool {
				_, over := cmd.ExitStatus()
				return !over
			})
		}, testkit.Patience, 10*time.Millisecond)
	}()
	assert.ErrorIs(t, sb.FS().AppendFile(ctx, "pipe", []byte("nobody reads")), context.Canceled)
	for _, cmd := range must(sb.ListCommands(t.Context())) {
		_, err := cmd.Wait(t.Context())
		assert.NoError(t, err)
	}
}

// A relative path is relative to the working directory of the session that receives the
// file, which may be another one after a resume.
func TestRelativeAfterResume(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	moved := testkit.Transport(t)
	var move atomic.Bool
	client := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := moved.RoundTrip(r)
		if err != nil || !move.Load() || !strings.Contains(r.URL.RawQuery, "resume=true") {
			return resp, err
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		body = bytes.ReplaceAll(body, []byte(`"/vercel"`), []byte(`"/tmp/elsewhere"`))
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return resp, err
	})}})
	for name, write := range map[string]func(sb *sandbox.Sandbox) error{
		"WriteFiles": func(sb *sandbox.Sandbox) error {
			return sb.WriteFiles(t.Context(), []sandbox.File{{Path: "f", Reader: strings.NewReader("x")}}, nil)
		},
		"CopyFS": func(sb *sandbox.Sandbox) error {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(path.Join(dir, "f"), []byte("x"), 0o600))
			return sb.FS().CopyFS(t.Context(), ".", os.DirFS(dir), nil)
		},
	} {
		move.Store(false)
		sb, err := client.Create(t.Context(), nil)
		require.NoError(t, err)
		_, err = sb.Stop(t.Context(), nil)
		require.NoError(t, err)
		move.Store(true)
		require.NoError(t, write(sb), name)
		got, err := sb.FS().ReadFile(t.Context(), "/tmp/elsewhere/f")
		require.NoError(t, err, name)
		assert.Equal(t, "x", string(got), name)
	}
}

// If the API does not respond, a call returns when its context ends, or after the
// documented additional time for killing its command or cleaning up.
func TestFilesEndWithTheirContext(t *testing.T) {
	t.Parallel()
	const kill, cleanup = 5 * time.Second, 2 * time.Second
	for name, c := range map[string]struct {
		bound time.Duration
		run   func(ctx context.Context, sb *sandbox.Sandbox) error
	}{
		"Stat":       {kill, func(ctx context.Context, sb *sandbox.Sandbox) error { _, err := sb.FS().Stat(ctx, "f"); return err }},
		"ReadFile":   {0, func(ctx context.Context, sb *sandbox.Sandbox) error { _, err := sb.FS().ReadFile(ctx, "f"); return err }},
		"WriteFile":  {0, func(ctx context.Context, sb *sandbox.Sandbox) error { return sb.FS().WriteFile(ctx, "f", nil, 0o644) }},
		"AppendFile": {kill, func(ctx context.Context, sb *sandbox.Sandbox) error { return sb.FS().AppendFile(ctx, "f", []byte("x")) }},
		"AppendFile of much": {cleanup, func(ctx context.Context, sb *sandbox.Sandbox) error {
			return sb.FS().AppendFile(ctx, "f", make([]byte, 100<<10))
		}},
		"FileWriter": {cleanup, func(ctx context.Context, sb *sandbox.Sandbox) error {
			w, err := sb.FS().Create(ctx, "f", nil)
			if err != nil {
				return err
			}
			_, err = w.Write(make([]byte, 9<<20))
			return errors.Join(err, w.Close())
		}},
		"DownloadFile": {0, func(ctx context.Context, sb *sandbox.Sandbox) error {
			return sb.FS().DownloadFile(ctx, "f", path.Join(t.TempDir(), "f"), nil)
		}},
		"DownloadDir": {kill, func(ctx context.Context, sb *sandbox.Sandbox) error {
			return sb.FS().DownloadDir(ctx, ".", t.TempDir(), nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sb := canned.API(canned.Unanswered).Sandbox(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var ended time.Time
				time.AfterFunc(200*time.Millisecond, func() { ended = time.Now(); cancel() })
				require.ErrorIs(t, c.run(ctx, sb), context.Canceled)
				assert.LessOrEqual(t, time.Since(ended), c.bound)
			})
		})
	}
}
