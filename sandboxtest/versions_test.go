package sandboxtest_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func (c *raw) createVersion(version string, params obj) *wire.SandboxResponse {
	c.t.Helper()
	body := obj{"projectId": "prj"}
	maps.Copy(body, params)
	out := new(wire.SandboxResponse)
	c.call("POST", "/"+version+"/sandboxes", body, 200, out)
	return out
}

// TestVersionsOfCreate: the default machine depends on the version, and the newest
// version keeps fewer snapshots.
func TestVersionsOfCreate(t *testing.T) {
	t.Parallel()
	onShared(t, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		user := func(response *wire.SandboxResponse) string {
			return c.sh(response.Session.ID, `echo "$USER"`)
		}
		old := c.createVersion("v2", nil)
		assert.Equal(t, []string{"node22", "", "/vercel/sandbox"}, []string{old.Sandbox.Runtime, old.Sandbox.Image, old.Session.Cwd})
		assert.Equal(t, "vercel-sandbox\n", user(old))
		for _, version := range []string{"v3", "v4"} {
			sb := c.createVersion(version, nil)
			assert.Regexp(t, "^vercel/sandbox/universal@sha256:[0-9a-f]{64}$", sb.Sandbox.Image)
			assert.Equal(t, []string{"node22", "/vercel", "/vercel"}, []string{sb.Session.Runtime, sb.Sandbox.Cwd, sb.Session.Cwd})
			assert.Equal(t, "ubuntu\n", user(sb))
			res := c.run(sb.Session.ID, obj{"command": "sh", "args": []string{"-c", `echo x > ~/f; ls`}})
			assert.Equal(t, "f\n", res.stdout, "the home is the working directory")
			assert.Equal(t, "/vercel", res.command.Cwd)
			named := c.createVersion(version, obj{"runtime": "python3.13"})
			assert.Equal(t, []string{"python3.13", "", "/vercel/sandbox"}, []string{named.Sandbox.Runtime, named.Sandbox.Image, named.Sandbox.Cwd})
		}
		// A sandbox created from a snapshot has its user, whatever the version.
		image := c.createVersion("v3", nil)
		c.sh(image.Session.ID, "echo kept > file")
		stopped := c.stop(image.Session.ID)
		back := c.get(image.Sandbox.Name, "&resume=true", 200)
		assert.Equal(t, "ubuntu\n", user(back))
		from := c.createVersion("v2", obj{"source": obj{"type": "snapshot", "snapshotId": stopped.Snapshot.ID}})
		assert.Equal(t, image.Sandbox.Image, from.Sandbox.Image)
		assert.Equal(t, "kept\n", c.sh(from.Session.ID, "cat /vercel/file"))
		from = c.createVersion("v3", obj{"source": obj{"type": "snapshot", "snapshotId": c.stop(old.Session.ID).Snapshot.ID}})
		assert.Equal(t, []string{"", "/vercel/sandbox"}, []string{from.Sandbox.Image, from.Sandbox.Cwd})
	})
}

func TestManagedImages(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	pins := map[string]bool{}
	for _, image := range []string{"universal", "universal:latest", "node:22", "node:24", "node:26", "python:3.14", "ubuntu", "arch"} {
		sb := c.createVersion("v3", obj{"image": "vercel/sandbox/" + image}).Sandbox
		repository, _, _ := strings.Cut("vercel/sandbox/"+image, ":")
		assert.True(t, strings.HasPrefix(sb.Image, repository+"@sha256:"), sb.Image)
		pins[sb.Image] = true
		assert.Equal(t, sb.Image, c.createVersion("v2", obj{"image": sb.Image}).Sandbox.Image)
	}
	assert.Len(t, pins, 7, "universal and universal:latest are the same image")
}

// TestRetentionOfTheNewestVersions checks the retention defaults of the newest versions of
// the API.
func TestRetentionOfTheNewestVersions(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	keep := wire.KeepLastSnapshots{Count: 1, DeleteEvicted: new(true)}
	sb := c.createVersion("v4", nil).Sandbox
	assert.Equal(t, wire.Duration(7*day), *sb.SnapshotExpiration)
	assert.Equal(t, keep, *sb.KeepLastSnapshots)
	sb = c.createVersion("v4", obj{"persistent": false}).Sandbox
	assert.NotNil(t, sb.SnapshotExpiration)
	assert.Nil(t, sb.KeepLastSnapshots, "only persistent sandboxes keep just the last snapshot")
	sb = c.createVersion("v4", obj{"keepLastSnapshots": nil, "snapshotExpiration": 0}).Sandbox
	assert.Nil(t, sb.KeepLastSnapshots)
	assert.Equal(t, wire.Duration(0), *sb.SnapshotExpiration)
	for _, version := range []string{"v2", "v3"} {
		sb = c.createVersion(version, nil).Sandbox
		assert.Nil(t, sb.KeepLastSnapshots)
		assert.Nil(t, sb.SnapshotExpiration)
	}
	c.createVersion("v3", obj{"name": "one"})
	var fork wire.SandboxResponse
	for version, want := range map[string]*wire.KeepLastSnapshots{"v2": nil, "v3": &keep} {
		c.call("POST", "/"+version+"/sandboxes/one/fork?projectId=prj", obj{}, 200, &fork)
		assert.Equal(t, want, fork.Sandbox.KeepLastSnapshots, version)
		var snap wire.SnapshotResponse
		c.call("POST", "/"+version+"/sandboxes/sessions/"+c.createVersion("v2", nil).Session.ID+"/snapshot", obj{}, 201, &snap)
		lasts := 30 * day
		if version == "v3" {
			lasts = 7 * day
		}
		assert.Equal(t, snap.Snapshot.CreatedAt.Add(lasts), snap.Snapshot.ExpiresAt.Time, version)
		fork = wire.SandboxResponse{}
	}
	// Other operations exist only in one version.
	c.refused("GET", "/v3/sandboxes/one?projectId=prj", nil, 404, "not_found")
	for _, version := range []string{"v3", "v4"} {
		c.refused("GET", "/"+version+"/sandboxes?project=prj", nil, 404, "not_found")
	}
	c.refused("POST", "/v5/sandboxes", obj{}, 404, "not_found")
	assert.Contains(t, c.refused("POST", "/v1/sandboxes", obj{}, 404, "not_found"), "version 1")
}

// TestOldClientWarning: clients of version 1 show only the status of an error. The server's
// log explains it to their user, once.
func TestOldClientWarning(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	c.create(nil)
	assert.NotContains(t, logged.String(), "version 1 of the API")
	for range 2 {
		req := c.request("POST", "/v1/sandboxes", obj{})
		req.Header.Set("User-Agent", "vercel/sandbox/1.10.2")
		assert.Equal(t, 404, c.send(req).StatusCode)
	}
	assert.Equal(t, 1, strings.Count(logged.String(), "version 1 of the API"))
	assert.Contains(t, logged.String(), "client=vercel/sandbox/1.10.2")
}

func TestRegions(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	made := c.create(obj{"name": "one", "region": "sfo1", "failoverRegions": []string{"iad1", "cdg1"}, "networkId": "net_1"})
	assert.Equal(t, []string{"sfo1", "sfo1", "net_1"}, []string{made.Sandbox.Region, made.Session.Region, made.Sandbox.NetworkID})
	assert.Equal(t, []string{"iad1", "cdg1"}, made.Sandbox.FailoverRegions)
	stopped := c.stop(made.Session.ID)
	assert.Equal(t, "sfo1", stopped.Snapshot.Region)
	assert.Equal(t, []string{"sfo1"}, stopped.Snapshot.Regions, "failover regions get no copy")

	var fork wire.SandboxResponse
	c.call("POST", "/v2/sandboxes/one/fork?projectId=prj", obj{}, 200, &fork)
	assert.Equal(t, []any{"sfo1", []string{"iad1", "cdg1"}, "net_1"},
		[]any{fork.Sandbox.Region, fork.Sandbox.FailoverRegions, fork.Sandbox.NetworkID}, "what is not overridden is inherited")
	c.refused("POST", "/v2/sandboxes/one/fork?projectId=prj", obj{"region": "iad1", "failoverRegions": []string{}}, 422, "snapshot_region_mismatch")
	c.call("POST", "/v2/sandboxes/one/fork?projectId=prj", obj{"region": "sfo1", "failoverRegions": []string{}}, 200, &fork)
	assert.Equal(t, []string{}, fork.Sandbox.FailoverRegions)
	source := obj{"type": "snapshot", "snapshotId": stopped.Snapshot.ID}
	for _, elsewhere := range []string{"fra1", "cdg1"} {
		c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "region": elsewhere, "source": source}, 422, "snapshot_region_mismatch")
	}
	assert.Equal(t, "sfo1", c.create(obj{"source": source}).Session.Region)

	var up wire.UpdateResponse
	path := "/v2/sandboxes/one?projectId=prj"
	c.refused("PATCH", path, obj{"failoverRegions": []string{"sfo1"}}, 400, "bad_request")
	c.call("PATCH", path, obj{"region": "iad1", "failoverRegions": []string{}, "networkId": nil}, 200, &up)
	assert.Equal(t, []any{"iad1", []string{}, ""}, []any{up.Sandbox.Region, up.Sandbox.FailoverRegions, up.Sandbox.NetworkID})
	c.refused("GET", path+"&resume=true", nil, 422, "snapshot_region_mismatch") // its snapshot is still in the old region
	c.call("PATCH", path, obj{"region": "sfo1"}, 200, &up)
	assert.Equal(t, "sfo1", c.get("one", "&resume=true", 200).Session.Region)
}

func TestResponseRules(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	sess := c.create(obj{"name": "one"}).Session.ID
	set := func(rule obj, status int) json.RawMessage {
		var out struct {
			Session struct {
				NetworkPolicy json.RawMessage `json:"networkPolicy"`
			} `json:"session"`
		}
		c.call("POST", session(sess)+"/network-policy", obj{"allow": obj{"a.com": []obj{rule}}}, status, &out)
		return out.Session.NetworkPolicy
	}
	rule := obj{"match": obj{"method": []string{"POST"}}, "response": obj{"statusCode": 403, "headers": obj{"x-why": "no"}, "body": "", "contentType": "text/plain"}}
	want := `{"mode":"custom","allowedDomains":["a.com"],"responseRules":[{"domain":"a.com","match":{"method":["POST"]},
		"response":{"statusCode":403,"headers":{"x-why":"no"},"body":"","contentType":"text/plain"}}]}`
	assert.JSONEq(t, want, string(set(rule, 200)))
	// Later sessions have the policy, too.
	c.stop(sess)
	back := c.get("one", "&resume=true", 200)
	for _, policy := range []*wire.NetworkPolicy{back.Sandbox.NetworkPolicy, back.Session.NetworkPolicy} {
		data, err := json.Marshal(policy)
		require.NoError(t, err)
		assert.JSONEq(t, want, string(data))
	}
	sess = back.Session.ID
	for _, bad := range []obj{
		{"statusCode": 199}, {"statusCode": 600}, {"statusCode": 200, "body": "x"}, {"statusCode": 204, "body": "", "contentType": "a/b"},
		{"statusCode": 200, "headers": obj{"Connection": "close"}}, {"statusCode": 200, "headers": obj{"A": "1", "a": "2"}}, {"status": 200},
	} {
		set(obj{"response": bad}, 400)
	}
	set(obj{"response": obj{"statusCode": 200}, "forwardURL": "https://x.example"}, 400)
	set(obj{}, 400)
}

func TestDeleteOrphanSnapshots(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.create(obj{"name": "one"})
	needed, orphan := c.saveFile("one", "a"), c.saveFile("one", "b")
	c.create(obj{"name": "two", "source": obj{"type": "snapshot", "snapshotId": needed}})
	c.refused("DELETE", "/v2/sandboxes/one?projectId=prj&deleteOrphanSnapshots=yes", nil, 400, "bad_request")
	c.call("DELETE", "/v2/sandboxes/one?projectId=prj&deleteOrphanSnapshots=true", nil, 200, nil)
	assert.Equal(t, []string{"created", "deleted"}, c.statuses([]string{needed, orphan}))
}

// TestRepositoryDirectory: the repository is in the working directory itself or, in newer
// versions, below it.
func TestRepositoryDirectory(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "git")
	repo := filepath.Join(t.TempDir(), "tools.git")
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", repo},
		{"-C", repo, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "first"},
		{"-C", repo, "update-server-info"},
	} {
		out, err := exec.Command("git", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	files := httptest.NewServer(http.StripPrefix("/tools.git", http.FileServer(http.Dir(filepath.Join(repo, ".git")))))
	t.Cleanup(files.Close)
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		url := strings.Replace(files.URL, "127.0.0.1", srv.HostAddress(), 1)
		revisions := []string{"main"}
		if needs.Slow() {
			revisions = append(revisions, "")
		}
		for _, revision := range revisions {
			source := obj{"type": "git", "url": url + "/tools.git"}
			if revision != "" {
				source["revision"] = revision
			}
			if needs.Slow() { // TestGitSource covers this, too
				assert.Equal(t, ".git\n", c.sh(c.createVersion("v2", obj{"source": source}).Session.ID, "ls -A"))
			}
			assert.Equal(t, ".git\n", c.sh(c.createVersion("v3", obj{"source": source}).Session.ID, "ls -A tools"))
		}
	})
}

func TestRateLimits(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, RateLimits: true})
	srv.Freeze() // so that no new window begins
	for i := range 20 {
		resp := c.send(c.request("POST", "/v2/sandboxes", obj{}))
		assert.Equal(t, 400, resp.StatusCode)
		assert.Equal(t, "20", resp.Header.Get("X-Ratelimit-Limit"))
		if i == 0 {
			assert.Equal(t, "19", resp.Header.Get("X-Ratelimit-Remaining"))
			assert.NotEmpty(t, resp.Header.Get("X-Ratelimit-Reset"))
		}
	}
	resp := c.send(c.request("POST", "/v2/sandboxes", obj{}))
	assert.Equal(t, 429, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	assert.Equal(t, "0", resp.Header.Get("X-Ratelimit-Remaining"))
	c.refused("POST", "/v2/sandboxes", obj{}, 429, "rate_limited")
	assert.Equal(t, "1000", c.send(c.request("GET", "/v2/sandboxes", nil)).Header.Get("X-Ratelimit-Limit"), "other requests have their own quota")
	srv.Advance(3 * time.Second)
	assert.Equal(t, 400, c.send(c.request("POST", "/v2/sandboxes", obj{})).StatusCode)

	_, c = start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	for range 25 {
		resp = c.send(c.request("POST", "/v2/sandboxes", obj{}))
	}
	assert.Equal(t, 400, resp.StatusCode)
	assert.Equal(t, "19", resp.Header.Get("X-Ratelimit-Remaining"), "the headers show a quota that never runs low")
}

func TestEnviron(t *testing.T) {
	t.Parallel()
	srv, _ := startShared(t)
	env := strings.Join(srv.Environ(), "\n")
	for _, name := range []string{"VERCEL_SANDBOX_BASE_URL=" + srv.URL, "VERCEL_TOKEN=" + srv.Credentials().Token, "VERCEL_TEAM_ID=", "VERCEL_PROJECT_ID="} {
		assert.Contains(t, env, name)
	}
}

func TestReadsAreChunked(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	sess := c.create(nil).Session.ID
	for name, want := range map[string]string{
		"a.txt":     `attachment; filename="a.txt"`,
		`q"\.txt`:   `attachment; filename="q\"\\.txt"`,
		"snö\n.txt": `attachment; filename="sn??.txt"; filename*=UTF-8''sn%C3%B6%0A.txt`,
	} {
		res := c.run(sess, obj{"command": "sh", "args": []string{"-c", `printf text > "$1"`, "sh", name}})
		require.Zero(t, res.code)
		resp := c.send(c.request("POST", session(sess)+"/fs/read", obj{"path": name}))
		assert.Equal(t, want, resp.Header.Get("Content-Disposition"))
		assert.EqualValues(t, -1, resp.ContentLength)
		assert.Equal(t, []string{"chunked"}, resp.TransferEncoding)
	}
	message := c.refused("POST", session(sess)+"/fs/mkdir", obj{"path": "no/such/parent"}, 400, "file_error")
	assert.Equal(t, "error creating directory: No such file or directory", message)
	req := c.request("POST", session(sess)+"/fs/write", "")
	req.Header.Set("Content-Type", "application/gzip")
	req.Header.Set("X-Cwd", "/no/such/dir")
	assert.Equal(t, 400, c.send(req).StatusCode)
}
