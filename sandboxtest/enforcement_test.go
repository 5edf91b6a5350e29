package sandboxtest_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestHostAddress: commands in a sandbox reach servers on this machine's loopback interface
// by HostAddress and by HostName. The tests of sources check the same for sources.
func TestHostAddress(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "curl")
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("here")) }))
	t.Cleanup(here.Close)
	inModes(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		sess := c.create(nil).Session.ID
		for _, host := range []string{srv.HostAddress(), sandboxtest.HostName} {
			url := strings.Replace(here.URL, "127.0.0.1", host, 1)
			if host == srv.HostAddress() {
				res := c.run(sess, obj{"command": "curl", "args": []string{"-sS", "--noproxy", "*", url}})
				assert.Equal(t, "here", res.stdout, "%s: %s", url, res.stderr)
				continue
			}
			res := c.run(sess, obj{"command": "sh", "args": []string{"-c", `curl -sS --noproxy '*' "$URL"`}, "env": obj{"URL": url}})
			assert.Equal(t, "here", res.stdout, "%s: %s", url, res.stderr)
		}
		res := c.run(sess, obj{"command": "echo", "args": []string{"not.host.internal.example and host.internals"}})
		assert.Equal(t, "not.host.internal.example and host.internals\n", res.stdout)
	})
}

// TestEnforces compares what a server reports about itself with what it does.
func TestEnforces(t *testing.T) {
	t.Parallel()
	inModes(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		e := srv.Enforces()
		assert.Equal(t, e.Missing == nil, e.Files && e.Users && e.Policies, "%+v", e)
		sess := c.create(nil).Session.ID
		users := c.run(sess, obj{"command": "sh", "args": []string{"-c", "touch /etc/probe && rm /etc/probe"}, "sudo": true})
		if srv.Mode() == sandboxtest.Namespace {
			assert.Equal(t, e.Users, users.code == 0, "%+v", e)
		}
		assert.Equal(t, e.Files, srv.Mode() == sandboxtest.Namespace)
	})
}

// inUserNamespace returns a command that runs a script and then a server, as root of a user
// namespace, without privileges outside it. flags are further flags of unshare.
func inUserNamespace(t *testing.T, flags, script string) *exec.Cmd {
	t.Helper()
	if runtime.GOOS != "linux" {
		needs.Other(t, "Linux only")
	}
	needs.Programs(t, "unshare")
	args := append(strings.Fields(flags), "sh", "-c")
	// A machine may allow user namespaces in which nothing can be mounted.
	if out, err := exec.Command("unshare", append([]string{"-m"}, append(args, script+"true")...)...).CombinedOutput(); err != nil {
		needs.Missing(t, "user namespaces: %s", out)
	}
	return exec.Command("unshare", append(args, script+`exec "$0" "$@"`, os.Args[0], "-test.run=^TestVictim$")...)
}

// TestRootOfAUserNamespace runs the server as in a rootless container.
func TestRootOfAUserNamespace(t *testing.T) {
	t.Parallel()
	v := runVictim(t, sandboxtest.Auto, "", inUserNamespace(t, "-r", ""))
	assert.Equal(t, sandboxtest.Namespace, v.mode)
	var at wire.SandboxResponse
	require.NoError(t, v.try("POST", "/v2/sandboxes", obj{"projectId": "prj"}, &at))
	out, err := v.sh(at.Session.ID, "cd /vercel/sandbox; touch file; id -u")
	require.NoError(t, err)
	assert.Equal(t, "1000", out)
	v.kill()
	assert.NotContains(t, v.stderr.String(), "folder mode")
}

// TestFolderModeIsReported: if namespaces are unavailable, users are told before they
// lose files.
func TestFolderModeIsReported(t *testing.T) {
	t.Parallel()
	v := runVictim(t, sandboxtest.Auto, "", inUserNamespace(t, "-U --map-user=1000 --map-group=1000 --keep-caps", noNamespaces))
	assert.Equal(t, sandboxtest.Folder, v.mode)
	v.kill()
	assert.Contains(t, v.stderr.String(), "folder mode")
	assert.Contains(t, v.stderr.String(), "user namespace", "the reason")
	assert.Equal(t, 2, strings.Count(v.stderr.String(), "\n"), "%s", &v.stderr)
	assert.Contains(t, v.stderr.String(), "to give them namespaces: ", "the remedy")

	// If a mode was tried and does not work, the log has only the reason.
	if os.Geteuid() == 0 {
		needs.Programs(t, "setpriv")
		v = runVictim(t, sandboxtest.Auto, "", exec.Command("setpriv", "--bounding-set=-sys_admin", os.Args[0], "-test.run=^TestVictim$"))
		v.kill()
		assert.NotContains(t, v.stderr.String(), "keyrings")
	}
}

// noNamespaces removes the right to create namespaces from a user namespace.
const noNamespaces = "echo 0 > /proc/sys/user/max_user_namespaces && echo 0 > /proc/sys/user/max_mnt_namespaces && "

// TestFolderModeWithRootsRights: a server that is root, has no namespaces and can't
// become another user runs commands as root only if requested.
func TestFolderModeWithRootsRights(t *testing.T) {
	t.Parallel()
	v, output := tryVictim(t, sandboxtest.Auto, "", inUserNamespace(t, "-r", noNamespaces))
	require.Empty(t, v.url)
	assert.Contains(t, output+v.stderr.String(), "request folder mode")
	v = runVictim(t, sandboxtest.Folder, "", inUserNamespace(t, "-r", noNamespaces))
	assert.Equal(t, sandboxtest.Folder, v.mode)
}

// TestUnenforcedPoliciesAreRefused: a server with RefuseUnenforced refuses policies that
// have no effect, at the start of a session and while one runs. A refused policy changes
// nothing.
func TestUnenforcedPoliciesAreRefused(t *testing.T) {
	t.Parallel()
	for refuse, status := range map[bool]int{true: 400, false: 200} {
		_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, RefuseUnenforced: refuse})
		sess := c.create(obj{"name": "one", "networkPolicy": obj{"mode": "allow-all"}}).Session.ID
		for _, policy := range []obj{{"mode": "deny-all"}, {"allow": []string{"a.com"}}} {
			var out struct{ Error struct{ Message string } }
			c.call("POST", "/v2/sandboxes", obj{"projectId": "prj", "networkPolicy": policy}, status, &out)
			c.call("POST", session(sess)+"/network-policy", policy, status, &out)
			c.call("PATCH", "/v2/sandboxes/one?projectId=prj", obj{"networkPolicy": policy}, status, &out)
			if refuse {
				assert.Contains(t, out.Error.Message, "can't enforce this network policy here: commands are ordinary processes")
				assert.Equal(t, "allow-all", c.get("one", "", 200).Sandbox.NetworkPolicy.Mode)
			}
		}
		c.call("POST", session(sess)+"/network-policy", obj{"mode": "allow-all"}, 200, nil)
	}
}
