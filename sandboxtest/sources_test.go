package sandboxtest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

const gitPassword = "planted-p@ss word"

// gitServer serves a repository with two commits, a tag and a branch, over HTTP
// with a password, on this machine's loopback interface. host is its name where
// the URL is used.
func gitServer(t *testing.T, host string) (url string, first string) {
	needs.Programs(t, "git")
	git := "git"
	root := t.TempDir()
	run := func(input string, args ...string) string {
		cmd := exec.Command(git, args...)
		cmd.Dir = root
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	run("", "init", "-q", "-b", "main", "repo")
	commit := func(branch, from, content string) string {
		return fmt.Sprintf("commit refs/heads/%s\ncommitter a <a@x> 1000000000 +0000\ndata %[3]d\n%[2]s\n%[4]sM 644 inline file\ndata %[3]d\n%[2]s\n", branch, content, len(content), from)
	}
	run(commit("main", "", "first")+"reset refs/tags/v1\nfrom refs/heads/main\n"+commit("main", "", "second")+
		commit("side", "from refs/heads/main\n", "side"), "-C", "repo", "fast-import", "--quiet")
	first = run("", "-C", "repo", "rev-parse", "v1")

	exe := run("", "--exec-path")
	handler := &cgi.Handler{Stderr: io.Discard, Path: filepath.Join(exe, "git-http-backend"), Env: []string{
		"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=x", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, ok := r.BasicAuth(); strings.HasPrefix(r.URL.Path, "/private/") && (!ok || user != "bot" || pass != gitPassword) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/private")
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return strings.Replace(srv.URL, "127.0.0.1", host, 1), first
}

func TestGitSource(t *testing.T) {
	t.Parallel()
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		url, first := gitServer(t, srv.HostAddress())
		clone := func(source obj) string {
			source["type"] = "git"
			return c.create(obj{"source": source}).Session.ID
		}
		if needs.Slow() {
			assert.Equal(t, "second2\n", c.sh(clone(obj{"url": url + "/repo/.git"}), "cat file; git rev-list --count HEAD"))
			assert.Equal(t, "1\n", c.sh(clone(obj{"url": url + "/repo/.git", "depth": 1}), "git rev-list --count HEAD"))
			for revision, content := range map[string]string{first: "first", "v1": "first", "side": "side"} {
				assert.Equal(t, content, c.sh(clone(obj{"url": url + "/repo/.git", "revision": revision}), "cat file"), revision)
			}
		}
		sess := clone(obj{"url": url + "/repo/.git", "revision": "side", "depth": 1})
		assert.Equal(t, "side1\n", c.sh(sess, "cat file; git rev-list --count HEAD"))

		private := obj{"url": url + "/private/repo/.git", "username": "bot", "password": gitPassword, "revision": first[:12]}
		sess = clone(private)
		assert.Equal(t, "first1\n", c.sh(sess, "cat file; git rev-list --count HEAD"))
		assert.NotContains(t, c.sh(sess, "cat .git/config; git config -l; env; cat ~/.git* 2>/dev/null || true"), "planted")

		private["password"] = "planted-wrong"
		message := c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "source": private}, 400, "bad_request")
		assert.NotContains(t, message, "planted")
		assert.Contains(t, message, "git clone failed")
		if needs.Slow() {
			message = c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "source": obj{"type": "git", "url": url + "/none.git"}}, 400, "bad_request")
			assert.Contains(t, message, "git clone failed")
		}
		for _, bad := range []obj{
			{"url": "--upload-pack=touch /tmp/x"}, {"url": url, "depth": 0}, {"url": url, "revision": "--help"}, {"url": url, "username": "x"}, {},
		} {
			bad["type"] = "git"
			c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "source": bad}, 400, "bad_request")
		}
		if srv.Mode() == sandboxtest.Namespace {
			c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "networkPolicy": obj{"mode": "deny-all"},
				"source": obj{"type": "git", "url": url + "/repo/.git"}}, 400, "bad_request")
		}
	})
}

// entry is a file of an archive.
type entry struct {
	name, content string
	mode          int64
	link          string
	kind          byte
	owner         int // user and group
}

func tarball(t testing.TB, entries ...entry) []byte {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Size: int64(len(e.content)), Mode: e.mode, Linkname: e.link, Typeflag: e.kind, Uid: e.owner, Gid: e.owner}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		require.NoError(t, tw.WriteHeader(h))
		_, err := tw.Write([]byte(e.content))
		require.NoError(t, err)
	}
	require.NoError(t, tw.Close())
	return buf.Bytes()
}

func gz(t testing.TB, data []byte) []byte {
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	_, err := zw.Write(data)
	require.NoError(t, err)
	require.NoError(t, zw.Close())
	return buf.Bytes()
}

func TestTarballSource(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	needs.GNU(t)
	plain := tarball(t, entry{name: "a/b.txt", content: "inside", kind: tar.TypeCont}, entry{name: "run.sh", content: "#!/bin/sh\necho ran", mode: 0o755})
	made := func(script string) []byte {
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir = t.TempDir()
		out, err := cmd.Output()
		require.NoError(t, err)
		return out
	}
	sparse := made("truncate -s 1M s; echo end >>s; tar -V label -S --format=gnu -czf - s")
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/plain":
			w.Write(plain)
		case "/gz":
			w.Write(gz(t, plain))
		case "/broken":
			w.Write(gz(t, plain)[:50])
		case "/text":
			w.Write([]byte("hello"))
		case "/sparse":
			w.Write(sparse)
		case "/bz2":
			w.Write([]byte("BZh91AY&SY"))
		case "/xz":
			w.Write([]byte("\xfd7zXZ\x00\x00\x04"))
		case "/zst":
			w.Write([]byte("(\xb5/\xfd\x04X"))
		case "/zip":
			w.Write([]byte("PK\x03\x04\x14"))
		case "/empty":
		default:
			http.NotFound(w, r)
		}
	}))
	defer files.Close()
	asSeen := strings.Replace(files.URL, "127.0.0.1", srv.HostAddress(), 1)
	for _, url := range []string{files.URL + "/plain", files.URL + "/gz", asSeen + "/plain"} {
		sess := c.create(obj{"source": obj{"type": "tarball", "url": url}}).Session.ID
		assert.Equal(t, "insideran\n", c.sh(sess, "cat a/b.txt; ./run.sh"))
	}
	sess := c.create(obj{"source": obj{"type": "tarball", "url": files.URL + "/sparse"}}).Session.ID
	assert.Equal(t, "1048580\nend\n", c.sh(sess, "stat -c %s s; tail -c 4 s"))
	for name, why := range map[string]string{
		"/broken": "unexpected EOF", "/text": "tar", "/empty": "it is empty", "/none": "the server answered 404",
		"/bz2": "bzip2", "/xz": "xz", "/zst": "zstd", "/zip": "zip",
	} {
		message := c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "source": obj{"type": "tarball", "url": files.URL + name}}, 400, "bad_request")
		assert.Contains(t, message, why, name)
	}
	c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "source": obj{"type": "tarball", "url": "file:///etc/passwd"}}, 400, "bad_request")
	c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "networkPolicy": obj{"mode": "deny-all"},
		"source": obj{"type": "tarball", "url": files.URL + "/gz"}}, 400, "bad_request")
	assert.Len(t, c.allNames(map[string][]string{"project": {"prj"}}), 4)
}

// TestSilentTarballServer: a tarball's server that stops sending, or never starts, does not
// reserve the sandbox's name forever. TestSlowServer shows that a slow server may send for
// as long as it needs.
func TestSilentTarballServer(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, BodyTimeout: 300 * time.Millisecond})
	archive := gz(t, tarball(t, entry{name: "file", content: "inside"}))
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stops" {
			_, _ = w.Write(archive[:30])
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}))
	t.Cleanup(files.Close)
	for _, name := range []string{"never", "stops"} {
		body := obj{"projectId": "prj", "name": name, "source": obj{"type": "tarball", "url": files.URL + "/" + name}}
		message := c.refused("POST", "/v2/sandboxes", body, 400, "bad_request")
		assert.Contains(t, message, "its server has sent nothing for 300ms", name)
		c.create(obj{"name": name}) // the name is free again
	}
}
