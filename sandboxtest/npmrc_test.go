package sandboxtest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestNPMCredentials: what a sandbox with npm credentials sends is completed
// outside of it, for downloads from below the registry and for nothing else.
func TestNPMCredentials(t *testing.T) {
	needs.Programs(t, "curl")
	t.Setenv("TEAM_TOKEN", "from-a-variable")
	server := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(server.Close)
	c := guarded(t, sandboxtest.Options{
		Names: map[string]string{"npm.example.com": server.URL, "pkg.example.com": server.URL, "www.example.com": server.URL},
		NPMRC: "; the team's\n@acme:registry=https://npm.example.com/acme/\n//npm.example.com/acme/:_authToken=" + brokered +
			"\n//pkg.example.com/:_authToken = ${TEAM_TOKEN}\n//pkg.example.com/old/:username=u\n//pkg.example.com/old/:_password=cA==\n",
	})
	made := c.create(obj{"credentials": obj{"npm": true}})
	sess := made.Session.ID
	curl := func(sess string, args ...string) string {
		t.Helper()
		res := c.run(sess, obj{"command": "curl", "args": append([]string{"-sS"}, args...)})
		return res.stdout + strings.TrimSpace(res.stderr)
	}
	for _, x := range []struct {
		args []string
		auth string
	}{
		{[]string{"https://npm.example.com/acme/@acme%2fx"}, "Bearer " + brokered},
		{[]string{"https://npm.example.com/acme/x.tgz", "-I"}, ""}, // HEAD has no body to look into
		{[]string{"https://npm.example.com/acme/x", "-H", "Authorization: mine"}, "Bearer " + brokered},
		{[]string{"https://npm.example.com/other/x"}, ""},
		{[]string{"https://npm.example.com/acme/../other", "--path-as-is"}, ""},
		{[]string{"https://npm.example.com/acme/x", "-X", "PUT", "-d", "{}"}, ""}, // publishing
		{[]string{"https://npm.example.com/acme/x", "-X", "DELETE"}, ""},
		{[]string{"https://pkg.example.com/x"}, "Bearer from-a-variable"},
		{[]string{"https://pkg.example.com/old/x"}, "Basic dTpw"},
		{[]string{"https://www.example.com/acme/x"}, ""},
	} {
		out := curl(sess, x.args...)
		if x.auth != "" {
			assert.Contains(t, out, `auth="`+x.auth+`"`, "%v", x.args)
		} else {
			assert.NotContains(t, out, "Bearer", "%v", x.args)
		}
	}
	// Programs of the sandbox find the registries, and no token anywhere.
	find := c.run(sess, obj{"command": "sh", "args": []string{"-c", "cat ~/.npmrc; env"}}).stdout
	assert.Contains(t, find, "@acme:registry=https://npm.example.com/acme/\n")
	assert.NotContains(t, find, brokered)
	assert.NotContains(t, find, "_auth")

	// A policy is not opened by credentials, and not shown with them.
	assert.Nil(t, made.Sandbox.NetworkPolicy)
	c.call("POST", session(sess)+"/network-policy", obj{"allow": []string{"www.example.com"}}, 200, nil)
	assert.NotContains(t, curl(sess, "https://npm.example.com/acme/x"), "auth=")
	c.call("POST", session(sess)+"/network-policy", obj{"allow": []string{"npm.example.com"}}, 200, nil)
	assert.Contains(t, curl(sess, "https://npm.example.com/acme/x"), brokered)

	// They outlast a stop, and no fork inherits them.
	c.stop(sess)
	c.call("POST", "/v2/sandboxes/"+made.Sandbox.Name+"/fork?projectId=prj", obj{"name": "heir", "networkPolicy": obj{"mode": "allow-all"}}, 200, nil)
	assert.NotContains(t, curl(c.get("heir", "", 200).Session.ID, "https://npm.example.com/acme/x"), brokered)
	sess = c.get(made.Sandbox.Name, "&resume=true", 200).Session.ID
	assert.Contains(t, curl(sess, "https://npm.example.com/acme/x"), brokered)
	plain := c.create(obj{}).Session.ID
	assert.NotContains(t, curl(plain, "https://npm.example.com/acme/x"), brokered)
	c.refused("POST", "/v3/sandboxes", obj{"projectId": "prj", "credentials": obj{"github": true}}, 400, "bad_request")
	c.refused("POST", "/v2/sandboxes/heir/fork?projectId=prj", obj{"credentials": obj{"npm": true}}, 400, "bad_request")
	c.refused("PATCH", "/v2/sandboxes/heir?projectId=prj", obj{"credentials": obj{"npm": true}}, 400, "bad_request")
}

// TestNPMCredentialsWithoutFirewall: what can't be given is not promised.
func TestNPMCredentialsWithoutFirewall(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	text := c.refused("POST", "/v3/sandboxes", obj{"projectId": "prj", "credentials": obj{"npm": true}}, 400, "bad_request")
	assert.Contains(t, text, "root on Linux")
}

// TestBadNPMRC: the reason has no secret in it.
func TestBadNPMRC(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"hush": "line 1 is not KEY=VALUE",
		"\n//r.example/:_authToken=${NO_SUCH_VARIABLE_hush}":         "line 2 needs the environment variable NO_SUCH_VARIABLE_hush",
		"//r.example/:username=u\n//r.example/:_password=not base64": "the _password for r.example is not base64",
		"//u:hush@r.example/:_authToken=hush":                        "not of the form //HOST/PATH/",
	} {
		_, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Folder, NPMRC: text})
		require.Error(t, err, "%q", text)
		assert.Contains(t, err.Error(), want)
		assert.NotContains(t, strings.ReplaceAll(err.Error(), "VARIABLE_hush", ""), "hush")
	}
}
