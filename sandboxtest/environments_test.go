package sandboxtest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/needs"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// asNobody makes a command that runs a server as an ordinary user.
func asNobody(t *testing.T) (cmd *exec.Cmd, env string) {
	t.Helper()
	needs.Programs(t, "setpriv")
	if os.Geteuid() != 0 {
		needs.Missing(t, "root, to become somebody else")
	}
	// A directory and a copy of this program that anybody may use.
	dir, err := os.MkdirTemp("", "nobody-") //nolint:usetesting // what t.TempDir makes, its owner alone can enter
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o777))
	program, err := os.Open(os.Args[0])
	require.NoError(t, err)
	defer program.Close()
	copied, err := os.OpenFile(filepath.Join(dir, "program"), os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(copied, program)
	require.NoError(t, err)
	require.NoError(t, copied.Close())
	cmd = exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", copied.Name(), "-test.run=^TestVictim$")
	cmd.Dir = dir
	return cmd, "TMPDIR=" + dir
}

// TestWhatWorksWhere is the table of docs/testing.md: what sandboxes can do on
// machines that give the emulator more or less.
func TestWhatWorksWhere(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "curl")
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "here") }))
	t.Cleanup(here.Close)
	page := fmt.Sprint("http://host.internal:", port(t, here.URL), "/")
	fetch := "curl -sS -m 3 --noproxy '*' " + page
	for name, x := range map[string]struct {
		start func(t *testing.T) *victim
		mode  sandboxtest.Mode
		// What holds there.
		users, deny, policies bool
	}{
		"root": {func(t *testing.T) *victim {
			if os.Geteuid() != 0 {
				needs.Missing(t, "root")
			}
			return startVictim(t, sandboxtest.Auto, "")
		}, sandboxtest.Namespace, true, true, true},
		"ordinary user": {func(t *testing.T) *victim {
			cmd, env := asNobody(t)
			return runVictim(t, sandboxtest.Auto, "", cmd, env)
		}, sandboxtest.Namespace, false, true, false},
		"user namespace": {func(t *testing.T) *victim {
			return runVictim(t, sandboxtest.Auto, "", inUserNamespace(t, "-r", ""))
		}, sandboxtest.Namespace, false, true, false},
		"folder mode": {func(t *testing.T) *victim { return startVictim(t, sandboxtest.Folder, "") }, sandboxtest.Folder, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := x.start(t)
			if v.mode == sandboxtest.Folder && x.mode == sandboxtest.Namespace {
				needs.Missing(t, "namespaces: %s", &v.said)
			}
			require.Equal(t, x.mode, v.mode)
			create := func(body obj) string {
				t.Helper()
				body["projectId"] = "prj"
				var at wire.SandboxAnswer
				require.NoError(t, v.try("POST", "/v2/sandboxes", body, &at))
				return at.Session.ID
			}
			works := func(sess, script string) bool {
				_, err := v.sh(sess, script+" && echo && echo done")
				return err == nil
			}
			sess := create(obj{"name": "one"})
			assert.True(t, works(sess, "echo kept > file; mkdir -p deep/er; "+fetch+" | grep -q here"), "files, commands, the host")
			if x.mode == sandboxtest.Namespace { // elsewhere that would be the host's
				assert.Equal(t, x.users, works(sess, "sudo useradd -m bob && sudo -u bob -- sh -c 'touch ~/x' && sudo touch /usr/local/probe"), "users and root")
				assert.NoFileExists(t, "/usr/local/probe")
			}
			denied := create(obj{"networkPolicy": obj{"mode": "deny-all"}})
			assert.Equal(t, x.deny, !works(denied, fetch), "deny-all")
			require.NoError(t, v.try("POST", session(sess)+"/network-policy", obj{"allow": []string{"example.com"}}, new(wire.SessionAnswer)))
			assert.Equal(t, x.policies, !works(sess, fetch), "policies while it runs")
			var stopped wire.StopAnswer
			require.NoError(t, v.try("POST", session(sess)+"/stop", obj{}, &stopped))
			require.NotNil(t, stopped.Snapshot)
			var back wire.SandboxAnswer
			require.NoError(t, v.try("GET", "/v2/sandboxes/one?projectId=prj&resume=true", nil, &back))
			assert.True(t, works(back.Session.ID, "grep -q kept file && test -d deep/er"), "files come back")
		})
	}
}
