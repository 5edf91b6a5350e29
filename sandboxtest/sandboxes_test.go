package sandboxtest_test

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// fields must be in every sandbox and session, because the official client checks them.
var (
	sandboxFields = []string{"name", "persistent", "region", "failoverRegions", "vcpus", "memory", "runtime", "architecture", "timeout",
		"createdAt", "updatedAt", "currentSessionId", "status", "statusUpdatedAt", "cwd"}
	sessionFields = []string{"id", "memory", "vcpus", "region", "runtime", "architecture", "timeout", "status", "requestedAt", "startedAt",
		"createdAt", "cwd", "updatedAt", "interactivePort", "sourceSandboxName", "projectId"}
	// laterFields are not in the response to a create.
	laterFields = []string{"totalEgressBytes", "totalIngressBytes", "totalActiveCpuDurationMs", "totalDurationMs", "expiresAt"}
)

func TestCreateReturnsEveryField(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	var out map[string]map[string]any
	resp := c.send(c.request("POST", "/v2/sandboxes", obj{"projectId": "prj"}))
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var whole map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &whole))
	assert.JSONEq(t, "[]", string(whole["routes"]))
	delete(whole, "routes")
	data, err = json.Marshal(whole)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &out))
	for _, f := range sandboxFields {
		assert.Contains(t, out["sandbox"], f)
	}
	for _, f := range sessionFields {
		assert.Contains(t, out["session"], f)
	}
	assert.NotContains(t, out["sandbox"], "networkPolicy", "none was set")
	assert.NotContains(t, whole, "resumed")

	var got map[string]any
	c.call("GET", "/v2/sandboxes/"+out["sandbox"]["name"].(string)+"?projectId=prj", nil, 200, &got)
	for _, f := range laterFields {
		assert.NotContains(t, out["sandbox"], f)
		assert.Contains(t, got["sandbox"], f)
	}
	assert.Equal(t, false, got["resumed"])
}

func TestCreateWithEverything(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Images: []string{"repo:v1"}})
	made := c.create(obj{
		"name": "one", "ports": []int{3000, 8080}, "timeout": 120_000, "resources": obj{"vcpus": 8}, "runtime": "python3.13",
		"persistent": false, "networkPolicy": obj{"mode": "deny-all"}, "env": obj{"SECRET": "planted"}, "tags": obj{"a": "b"},
		"snapshotExpiration": 0, "keepLastSnapshots": obj{"count": 3}, "__private": obj{"any": "thing"},
	})
	sb := made.Sandbox
	assert.Equal(t, "one", sb.Name)
	assert.Equal(t, []int{8, 16384}, []int{sb.VCPUs, sb.Memory})
	assert.Equal(t, "python3.13", sb.Runtime)
	assert.Equal(t, wire.Duration(2*time.Minute), sb.Timeout)
	assert.Equal(t, wire.Duration(2*time.Minute), made.Session.Timeout)
	assert.Equal(t, "deny-all", sb.NetworkPolicy.Mode)
	assert.Equal(t, "deny-all", made.Session.NetworkPolicy.Mode)
	assert.Equal(t, map[string]string{"a": "b"}, sb.Tags)
	assert.Equal(t, wire.Duration(0), *sb.SnapshotExpiration)
	assert.Equal(t, wire.KeepLastSnapshots{Count: 3, DeleteEvicted: new(true)}, *sb.KeepLastSnapshots)
	require.Len(t, made.Routes, 2)
	assert.Equal(t, 3000, made.Routes[0].Port)
	assert.NotEmpty(t, made.Routes[0].Subdomain)

	image := c.create(obj{"image": "repo:v1"}).Sandbox
	assert.Regexp(t, "^repo@sha256:[0-9a-f]{64}$", image.Image)
	assert.Equal(t, []string{"node22", "/vercel"}, []string{image.Runtime, image.Cwd})
}

func TestCreateRefusals(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.create(obj{"name": "taken"})
	many := make([]int, 16)
	for i := range many {
		many[i] = 3000 + i
	}
	for name, bad := range map[string]obj{
		"taken name":        {"name": "taken"},
		"slash":             {"name": "a/b"},
		"dots":              {"name": ".."},
		"control":           {"name": "a\x01b"},
		"reserved":          {"name": "sessions"},
		"long":              {"name": strings.Repeat("x", 129)},
		"name is a number":  {"name": 5},
		"too many ports":    {"ports": many},
		"port 1023":         {"ports": []int{1023}},
		"port 0":            {"ports": []int{0}},
		"port 70000":        {"ports": []int{70000}},
		"port twice":        {"ports": []int{8080, 8080}},
		"port is text":      {"ports": []string{"8080"}},
		"ports is a number": {"ports": 8080},
		"timeout 999":       {"timeout": 999},
		"timeout 0":         {"timeout": 0},
		"timeout negative":  {"timeout": -1},
		"timeout long":      {"timeout": (25 * time.Hour).Milliseconds()},
		"timeout text":      {"timeout": "5m"},
		"vcpus 3":           {"resources": obj{"vcpus": 3}},
		"vcpus 64":          {"resources": obj{"vcpus": 64}},
		"vcpus missing":     {"resources": obj{}},
		"runtime":           {"runtime": "cobol"},
		"runtime and image": {"runtime": "node24", "image": "x"},
		"tags":              {"tags": obj{"a": "", "b": "", "c": "", "d": "", "e": "", "f": ""}},
		"env name":          {"env": obj{"A=B": "x"}},
		"env size":          {"env": obj{"planted": strings.Repeat("x", 4096)}},
		"region":            {"region": "moon1"},
		"failover region":   {"failoverRegions": []string{"moon1"}},
		"failover to self":  {"failoverRegions": []string{"iad1"}},
		"failover twice":    {"failoverRegions": []string{"sfo1", "sfo1"}},
		"image reference":   {"image": "Not An Image"},
		"reserved drives":   {"name": "drives"},
		"reserved features": {"name": "features"},
		"IPv6":              {"networkPolicy": obj{"subnets": obj{"deny": []string{"::/0"}}}},
		"address":           {"networkPolicy": obj{"subnets": obj{"deny": []string{"10.0.0.1"}}}},
		"forward rules":     {"networkPolicy": obj{"mode": "custom", "forwardRules": []obj{{"domain": "a.com", "forwardURL": "https://x.example"}}}},
		"header names":      {"networkPolicy": obj{"mode": "custom", "injectionRules": []obj{{"domain": "a.com", "headerNames": []string{"a"}}}}},
		"expiration":        {"snapshotExpiration": 1000},
		"keep none":         {"keepLastSnapshots": obj{"count": 0}},
		"keep many":         {"keepLastSnapshots": obj{"count": 11}},
		"policy":            {"networkPolicy": obj{"mode": "maybe"}},
		"source":            {"source": obj{"type": "ftp"}},
		"unknown field":     {"naam": "x"},
	} {
		body := obj{"projectId": "prj"}
		maps.Copy(body, bad)
		t.Run(name, func(t *testing.T) {
			c := &raw{t, c.srv, c.client}
			message := c.refused("POST", "/v2/sandboxes", body, 400, "bad_request")
			assert.NotContains(t, message, "planted")
		})
	}
	c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "ports": []int{23456}}, 400, "reserved_port")
	c.refused("POST", "/v2/sandboxes", obj{"name": "x"}, 400, "bad_request")
	c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "image": "vercel/sandbox/none"}, 404, "not_found")
	c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "ports": many[1:]}, 500, "internal_server_error") // as observed
	for _, body := range []string{"[]", "null", "5", "{", `{"projectId":"prj"} x`, "\xff"} {
		c.refused("POST", "/v2/sandboxes", body, 400, "bad_request")
	}
	assert.Equal(t, []string{"taken"}, c.allNames(map[string][]string{"project": {"prj"}}), "a refused creation leaves nothing")
}

func TestNamesAreTakenOnce(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	var wg sync.WaitGroup
	statuses := make([]int, 10)
	for i := range statuses {
		wg.Go(func() {
			resp, err := c.client.Do(c.request("POST", "/v2/sandboxes", obj{"projectId": "prj", "name": "one"}))
			if assert.NoError(t, err) {
				resp.Body.Close()
				statuses[i] = resp.StatusCode
			}
		})
	}
	wg.Wait()
	made := 0
	for _, s := range statuses {
		if s == 200 {
			made++
		} else {
			assert.Equal(t, 400, s)
		}
	}
	assert.Equal(t, 1, made)
}

func TestResumeHappensOnce(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.stop(c.create(obj{"name": "one"}).Session.ID)
	var wg sync.WaitGroup
	var mu sync.Mutex
	resumed, sessions := 0, make(map[string]bool)
	for range 20 {
		wg.Go(func() {
			response := c.get("one", "&resume=true", 200)
			mu.Lock()
			defer mu.Unlock()
			sessions[response.Session.ID] = true
			if response.Resumed {
				resumed++
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 1, resumed)
	assert.Len(t, sessions, 1)
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	made := c.create(obj{"name": "one", "ports": []int{3000}})
	path := "/v2/sandboxes/one?projectId=prj"
	var out wire.UpdateResponse
	c.call("PATCH", path, obj{
		"resources": obj{"vcpus": 4, "memory": 8192}, "runtime": "node22", "timeout": 60_000,
		"networkPolicy": obj{"allow": []string{"a.com"}}, "tags": obj{"x": "y"}, "ports": []int{3000, 4000},
		"snapshotExpiration": day.Milliseconds(), "keepLastSnapshots": obj{"count": 5},
	}, 200, &out)
	sb := out.Sandbox
	assert.Equal(t, []int{4, 8192}, []int{sb.VCPUs, sb.Memory})
	assert.Equal(t, "node22", sb.Runtime)
	assert.Equal(t, wire.Duration(time.Minute), sb.Timeout)
	assert.Equal(t, []string{"a.com"}, sb.NetworkPolicy.AllowedDomains)
	assert.Equal(t, map[string]string{"x": "y"}, sb.Tags)
	require.Len(t, out.Routes, 2)
	assert.Equal(t, made.Routes[0], out.Routes[0], "a route that stays keeps its address")
	assert.Equal(t, made.Session.Timeout, c.session(made.Session.ID).Timeout, "the running session does not change")

	c.stop(made.Session.ID)
	back := c.get("one", "&resume=true", 200)
	assert.Equal(t, wire.Duration(time.Minute), back.Session.Timeout)
	assert.Equal(t, 4, back.Session.VCPUs)
	out = wire.UpdateResponse{}
	c.call("PATCH", path, obj{"tags": obj{}, "ports": []int{}, "persistent": false}, 200, &out)
	assert.False(t, out.Sandbox.Persistent)
	assert.Empty(t, out.Sandbox.Tags)
	assert.Empty(t, out.Routes)

	c.refused("PATCH", path, obj{"timeout": -1, "tags": obj{"lost": "1"}}, 400, "bad_request")
	assert.Empty(t, c.get("one", "", 200).Sandbox.Tags, "a refused update changes nothing")
	c.refused("PATCH", path, obj{"image": "universal"}, 400, "bad_request")
	sess := back.Session.ID
	c.call("PATCH", path, obj{"env": obj{"NEW": "yes"}}, 200, nil)
	assert.Equal(t, "yes\n", c.sh(sess, "echo $NEW"))
	c.call("PATCH", path, obj{"env": obj{}}, 200, nil)
	assert.Equal(t, "\n", c.sh(sess, "echo $NEW"))
	c.call("PATCH", path, obj{"persistent": true}, 200, nil)
	c.stop(sess)
	c.call("PATCH", path, obj{"timeout": 90_000}, 200, &out)
	assert.Equal(t, "stopped", out.Sandbox.Status)
	c.call("PATCH", path+"&resume=true", obj{"timeout": 90_000}, 200, &out)
	assert.Equal(t, "running", out.Sandbox.Status)
	c.refused("PATCH", path+"&resume=perhaps", obj{}, 400, "bad_request")
	c.refused("PATCH", "/v2/sandboxes/none?projectId=prj", obj{}, 404, "not_found")
}

func TestDelete(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.create(obj{"name": "one"})
	snap := c.saveFile("one", "x")
	sess := c.get("one", "&resume=true", 200).Session.ID
	cmd := c.detach(sess, obj{"command": "sleep", "args": []string{marked(3)}})
	c.call("DELETE", "/v2/sandboxes/one?projectId=prj", nil, 200, nil)
	assert.False(t, alive(t, cmd.Args[0]))
	c.refused("DELETE", "/v2/sandboxes/one?projectId=prj", nil, 404, "not_found")
	c.refused("GET", "/v2/sandboxes/one?projectId=prj", nil, 404, "not_found")
	c.refused("POST", session(sess)+"/cmd", obj{"command": "true"}, 410, "sandbox_stopped")
	assert.Equal(t, "created", c.snapshotStatus(snap))
	c.create(obj{"name": "one"})
}

func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	_, c := start(t, nil)
	sess := c.create(nil).Session.ID
	for body, want := range map[string]string{
		`{"mode":"allow-all"}`:          `{"mode":"allow-all"}`,
		`{"allow":["a.com","*.b.com"]}`: `{"mode":"custom","allowedDomains":["a.com","*.b.com"]}`,
		`{}`:                            `{"mode":"custom"}`,
		`{"subnets":{"allow":["10.0.0.0/8"],"deny":["10.1.0.0/16"]}}`: `{"mode":"custom","allowedCIDRs":["10.0.0.0/8"],"deniedCIDRs":["10.1.0.0/16"]}`,
		`{"allow":{"z.com":[{"transform":[{"headers":{"x-b":"planted","authorization":"planted"}}],"match":{"method":["GET"],"path":{"startsWith":"/v1"}}}],"a.com":[{"forwardURL":"https://p.example/x"}],"*":[]}}`: `{"mode":"custom","allowedDomains":["z.com","a.com","*"],"injectionRules":[{"domain":"z.com","headerNames":["authorization","x-b"],"match":{"method":["GET"],"path":{"startsWith":"/v1"}}}],"forwardRules":[{"domain":"a.com","forwardURL":"https://p.example/x"}]}`,
		`{"mode":"custom","injectionRules":[{"domain":"a.com","headers":{"k":"planted"}}]}`:                                                                                                                          `{"mode":"custom","injectionRules":[{"domain":"a.com","headerNames":["k"]}]}`,
		`{"mode":"deny-all"}`: `{"mode":"deny-all"}`,
	} {
		resp := c.send(c.request("POST", session(sess)+"/network-policy", body))
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode, "%s: %s", body, data)
		assert.NotContains(t, string(data), "planted")
		var out struct {
			Session struct{ NetworkPolicy json.RawMessage }
		}
		require.NoError(t, json.Unmarshal(data, &out))
		assert.JSONEq(t, want, string(out.Session.NetworkPolicy))
	}
	for _, bad := range []string{
		`{"mode":"x"}`, `{"allow":5}`, `{"allow":[5]}`, `{"allow":{"a.com":[{}]}}`, `{"allow":["a.com"],"allowedDomains":["b.com"]}`,
		`{"allow":{"a.com":[{"transform":[],"forwardURL":"https://x"}]}}`, `{"allow":{"a.com":[{"forwardURL":"http://x"}]}}`,
		`{"subnets":{"allow":["x"]}}`, `{"mode":"deny-all","allow":["a.com"]}`, `{"allow":{"a.com":[{"transform":[],"match":{"path":{"regex":"("}}}]}}`,
	} {
		c.refused("POST", session(sess)+"/network-policy", bad, 400, "bad_request")
	}
}

func TestDenyAllCutsTheNetwork(t *testing.T) {
	t.Parallel()
	srv, c := start(t, nil)
	testkit.Policies(t, srv)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	connects := func(sess string) bool {
		res := c.run(sess, obj{"command": "bash", "args": []string{"-c", "exec 3<>/dev/tcp/" + srv.HostAddress() + "/" + port}, "timeout": 60_000})
		return res.code == 0
	}
	allowed := c.create(nil).Session.ID
	denied := c.create(obj{"networkPolicy": obj{"mode": "deny-all"}}).Session.ID
	assert.True(t, connects(allowed))
	assert.False(t, connects(denied))
	// It can be changed while the session runs, which breaks open connections.
	held := c.detach(allowed, obj{"command": "bash", "args": []string{"-c", "exec 3<>/dev/tcp/" + srv.HostAddress() + "/" + port + " && touch held && cat <&3"}})
	c.sh(allowed, "until test -e held; do sleep 0.1; done")
	c.call("POST", session(allowed)+"/network-policy", obj{"mode": "deny-all"}, 200, nil)
	assert.False(t, connects(allowed))
	assert.Equal(t, 1, *c.wait(held).ExitCode, "its connection was reset")
	c.call("POST", session(denied)+"/network-policy", obj{"mode": "allow-all"}, 200, nil)
	assert.True(t, connects(denied))
}

// TestNPMCredentials: only create accepts the team's npm credentials, which have no
// effect here.
func TestNPMCredentials(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	made := c.create(obj{"name": "one", "credentials": obj{"npm": true}})
	assert.Empty(t, c.sh(made.Session.ID, "ls -A ~"))
	c.refused("POST", "/v3/sandboxes", obj{"projectId": "prj", "credentials": obj{"github": true}}, 400, "bad_request")
	c.refused("POST", "/v2/sandboxes/one/fork?projectId=prj", obj{"credentials": obj{"npm": true}}, 400, "bad_request")
	c.refused("PATCH", "/v2/sandboxes/one?projectId=prj", obj{"credentials": obj{"npm": true}}, 400, "bad_request")
}
