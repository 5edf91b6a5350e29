package sandboxtest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// upload sends an archive and returns the status.
func (c *raw) upload(sess string, cwd string, archive io.Reader) (int, string) {
	c.t.Helper()
	req := c.request("POST", session(sess)+"/fs/write", archive)
	req.Header.Set("Content-Type", "application/gzip")
	req.Header.Set("X-Cwd", cwd)
	resp := c.send(req)
	data, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	return resp.StatusCode, string(data)
}

func (c *raw) readFile(sess, path string) (int, []byte) {
	c.t.Helper()
	resp := c.send(c.request("POST", session(sess)+"/fs/read", obj{"path": path}))
	data, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	if resp.StatusCode == 200 {
		assert.Equal(c.t, "application/octet-stream", resp.Header.Get("Content-Type"))
	}
	return resp.StatusCode, data
}

func TestFiles(t *testing.T) {
	t.Parallel()
	onShared(t, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		sess := c.create(nil).Session.ID
		binary := make([]byte, 600<<10)
		_, _ = rand.Read(binary)
		status, body := c.upload(sess, "/", bytes.NewReader(gz(t, tarball(t,
			entry{name: "vercel/sandbox/deep/er/x.sh", content: "#!/bin/sh\necho ran", mode: 0o755},
			entry{name: "vercel/sandbox/big", content: string(binary)},
			entry{name: "tmp/odd 'name'\n-x", content: "odd"},
		))))
		require.Equal(t, 200, status, body)
		assert.JSONEq(t, "{}", body)
		assert.Equal(t, "ran\n", c.sh(sess, "deep/er/x.sh"))
		assert.Equal(t, c.sh(sess, "id -u"), c.sh(sess, "stat -c %u big"))
		_, got := c.readFile(sess, "big")
		assert.True(t, bytes.Equal(binary, got))
		_, got = c.readFile(sess, "/tmp/odd 'name'\n-x")
		assert.Equal(t, "odd", string(got))
		status, _ = c.readFile(sess, "none")
		assert.Equal(t, 404, status)
		c.refused("POST", session(sess)+"/fs/read", obj{"path": "deep"}, 400, "is_directory")
		c.refused("POST", session(sess)+"/fs/read", obj{}, 400, "bad_request")

		c.call("POST", session(sess)+"/fs/mkdir", obj{"path": "new"}, 200, nil)
		c.call("POST", session(sess)+"/fs/mkdir", obj{"path": "er2", "cwd": "/vercel/sandbox/new"}, 200, nil)
		assert.Equal(t, "er2\n", c.sh(sess, "ls new"))
		c.refused("POST", session(sess)+"/fs/mkdir", obj{"path": "new"}, 400, "file_error")
		c.refused("POST", session(sess)+"/fs/mkdir", obj{"path": "no/parent"}, 400, "file_error")
		c.call("POST", session(sess)+"/fs/mkdir", obj{"path": "no/parent", "recursive": true}, 200, nil)

		status, _ = c.upload(sess, "relative", bytes.NewReader(gz(t, tarball(t))))
		assert.Equal(t, 400, status)
		req := c.request("POST", session(sess)+"/fs/write", "x")
		assert.Equal(t, 415, c.send(req).StatusCode)
	})
}

func TestHostileArchives(t *testing.T) {
	t.Parallel()
	onShared(t, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		outside := filepath.Join(t.TempDir(), "outside")
		require.NoError(t, os.MkdirAll(outside, 0o777))
		up := strings.Repeat("../", 30)
		sess := c.create(nil).Session.ID
		for name, archive := range map[string][]byte{
			"dots":           tarball(t, entry{name: up + outside[1:] + "/x", content: "x"}),
			"absolute":       tarball(t, entry{name: outside + "/x", content: "x"}),
			"link":           tarball(t, entry{name: "l", link: outside, kind: tar.TypeSymlink}, entry{name: "l/x", content: "x"}),
			"link with dots": tarball(t, entry{name: "m", link: up + outside[1:], kind: tar.TypeSymlink}, entry{name: "m/x", content: "x"}),
			"hard link":      tarball(t, entry{name: "h", link: "/etc/passwd", kind: tar.TypeLink}, entry{name: "h", content: "x"}),
			"device":         tarball(t, entry{name: "dev", kind: tar.TypeChar}),
			"fifo":           tarball(t, entry{name: "fifo", kind: tar.TypeFifo}),
			"cut":            tarball(t, entry{name: "f", content: strings.Repeat("x", 5000)})[:2000],
			"text":           []byte(strings.Repeat("hello", 500)),
		} {
			status, body := c.upload(sess, "/vercel/sandbox", bytes.NewReader(gz(t, archive)))
			assert.Less(t, status, 500, "%s: %s", name, body)
			left, err := os.ReadDir(outside)
			require.NoError(t, err)
			assert.Empty(t, left, name)
		}
		for _, archive := range []string{"", "not gzip", "\x1f\x8b\x08\x00"} {
			status, _ := c.upload(sess, "/", strings.NewReader(archive))
			assert.Equal(t, 400, status)
		}
		for _, path := range []string{up + "etc/passwd", "/proc/self/environ", "a\x00b", strings.Repeat("x", 5000), "/dev/zero"} {
			status, _ := c.readFile(sess, path)
			assert.Less(t, status, 500, path)
		}
		assert.Equal(t, "alive\n", c.sh(sess, "echo alive"))
	})
}

// endless is a body without an end.
type endless struct{ drip time.Duration }

func (e endless) Read(p []byte) (int, error) {
	time.Sleep(e.drip) //nolint:sleeping // a slow body
	if e.drip > 0 {
		p = p[:1]
	}
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestHostileBodies(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, BodyTimeout: 300 * time.Millisecond, MaxUpload: 1 << 20})
	sess := c.create(nil).Session.ID
	// status returns 0 when the server closed the connection while the request was
	// being sent.
	status := func(req *http.Request) int {
		resp, err := c.client.Do(req)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	big := `{"projectId":"prj","name":"` + strings.Repeat("x", 6<<20) + `"}`
	// A busy machine may take longer than the server waits.
	assert.Contains(t, []int{0, 408, 413}, status(c.request("POST", "/v2/sandboxes", big)))
	assert.Contains(t, []int{0, 408, 413}, status(c.request("POST", "/v2/sandboxes", io.MultiReader(strings.NewReader("{"), endless{}))))
	assert.Contains(t, []int{0, 408}, status(c.request("POST", "/v2/sandboxes", io.MultiReader(strings.NewReader("{"), endless{20 * time.Millisecond}))))

	upload := func(body io.Reader) *http.Request {
		req := c.request("POST", session(sess)+"/fs/write", body)
		req.Header.Set("Content-Type", "application/gzip")
		return req
	}
	noise := make([]byte, 2<<20)
	_, _ = rand.Read(noise)
	assert.Contains(t, []int{0, 408, 413}, status(upload(bytes.NewReader(gz(t, tarball(t, entry{name: "noise", content: string(noise)}))))))
	assert.Contains(t, []int{0, 400, 408}, status(upload(endless{})))
	pr, pw := io.Pipe()
	defer pw.Close()
	// The client itself waits for its body after the server has closed the
	// connection.
	time.AfterFunc(2*time.Second, func() { pw.CloseWithError(io.ErrUnexpectedEOF) })
	go func() { _, _ = pw.Write([]byte("\x1f\x8b")) }()
	assert.Contains(t, []int{0, 400, 408}, status(upload(pr)))
	assert.Equal(t, "alive\n", c.sh(sess, "echo alive"))
}

func TestHostileNames(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	for _, name := range []string{"%2e%2e", "a%2Fb", "%00", "%0a", "a%20b", "%ff", strings.Repeat("x", 4000), "sessions%2Fx", "-", "..%2f..%2fetc"} {
		for _, method := range []string{"GET", "PATCH", "DELETE"} {
			resp := c.send(c.request(method, "/v2/sandboxes/"+name+"?projectId=prj", nil))
			assert.Contains(t, []int{400, 404}, resp.StatusCode, name)
			assert.Equal(t, "application/json; charset=utf-8", resp.Header.Get("Content-Type"))
		}
		for _, path := range []string{"sessions/" + name, "sessions/" + name + "/cmd/" + name, "snapshots/" + name} {
			resp := c.send(c.request("GET", "/v2/sandboxes/"+path, nil))
			assert.Contains(t, []int{400, 404}, resp.StatusCode, path)
		}
	}
}

// TestReadKernelFiles: a read of a file below /proc returns all of its data, although the
// file's size is zero.
func TestReadKernelFiles(t *testing.T) {
	t.Parallel()
	srv, c := start(t, nil)
	if srv.Mode() != sandboxtest.Namespace {
		needs.Missing(t, "namespace mode")
	}
	sess := c.create(nil).Session.ID
	for _, name := range []string{"/proc/version", "/proc/sys/kernel/ostype", "/sys/kernel/mm/transparent_hugepage/enabled"} {
		if want := c.sh(sess, "cat "+name+" 2>/dev/null"); want != "" {
			status, got := c.readFile(sess, name)
			assert.Equal(t, 200, status, name)
			assert.Equal(t, want, string(got), name)
		}
	}
}

// TestUploadOfAnEndingSession: if the session ends during an upload, the response says so,
// even if the upload has failed with another error first.
func TestUploadOfAnEndingSession(t *testing.T) {
	t.Parallel()
	onShared(t, func(t *testing.T, _ *sandboxtest.Server, c *raw) {
		for range 2 {
			made := c.create(nil)
			sess, first := made.Session.ID, made.Session.Cwd+"/first"

			body, w := io.Pipe()
			type response struct {
				status int
				text   string
			}
			responded := make(chan response, 1)
			go func() {
				status, text := c.upload(sess, "/", body)
				responded <- response{status, text}
			}()
			// Send one file, and begin a second one that never arrives completely.
			zip := gzip.NewWriter(w)
			pack := tar.NewWriter(zip)
			require.NoError(t, pack.WriteHeader(&tar.Header{Name: strings.TrimPrefix(first, "/"), Mode: 0o644, Size: 1}))
			_, err := io.WriteString(pack, "x")
			require.NoError(t, err)
			require.NoError(t, pack.WriteHeader(&tar.Header{Name: strings.TrimPrefix(first, "/") + "2", Mode: 0o644, Size: 1 << 20}))
			require.NoError(t, zip.Flush())
			for status := 0; status != 200; {
				status, _ = c.readFile(sess, first)
				require.Empty(t, responded, "the upload is in progress")
			}

			c.stop(sess)
			_ = w.Close()
			got := <-responded
			assert.Contains(t, []int{410, 422}, got.status, got.text)
			assert.Regexp(t, "sandbox_(stopped|stopping|snapshotting)", got.text)
		}
	})
}
