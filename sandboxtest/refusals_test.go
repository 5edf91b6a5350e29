package sandboxtest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestRefusalTexts: errors with known texts, from recorded or quoted exchanges and from
// the published schema, are returned exactly.
func TestRefusalTexts(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	box := c.create(obj{"name": "box", "persistent": false})
	live := session(box.Session.ID)
	over := c.create(obj{"name": "over", "persistent": false})
	c.stop(over.Session.ID)
	gone := session(over.Session.ID)
	c.call("POST", live+"/fs/mkdir", obj{"path": "dir"}, 200, nil)
	const stopped = "Sandbox has stopped execution and is no longer available"
	with := func(params obj) obj {
		params["projectId"] = "prj"
		return params
	}
	for _, row := range []struct {
		method, path string
		body         obj
		status       int
		code, text   string
	}{
		{"GET", "/v2/sandboxes/none?projectId=prj", nil, 404, "not_found", "Named sandbox 'none' not found for this project."},
		{"DELETE", "/v2/sandboxes/none?projectId=prj", nil, 404, "not_found", "Named sandbox 'none' not found for this project."},
		{"GET", "/v2/sandboxes/sessions/sbx_none", nil, 404, "not_found", "Vercel Sandbox not found"},
		{"POST", "/v2/sandboxes/sessions/sbx_none/stop", nil, 404, "not_found", "Vercel Sandbox not found"},
		{"GET", "/v2/nothing", nil, 404, "not_found", "Not Found"},
		{"GET", "/v3/sandboxes?project=prj", nil, 404, "not_found", "Not Found"},
		{"GET", "/v4/sandboxes?project=prj", nil, 404, "not_found", "Not Found"},
		{"POST", strings.Replace(live, "v2", "v3", 1) + "/cmd", obj{"command": "true"}, 404, "not_found", "Not Found"},
		{"POST", strings.Replace(live, "v2", "v4", 1) + "/fs/read", obj{"path": "x"}, 404, "not_found", "Not Found"},
		{"GET", "/v2/sandboxes/over?projectId=prj&resume=true", nil, 400, "snapshot_not_found", "Cannot resume sandbox: no snapshot available."},
		{"GET", "/v2/sandboxes?project=prj&namePrefix=b", nil, 400, "bad_request", "Invalid request: `namePrefix` is only valid when `sortBy` is `name`"},
		{"GET", "/v2/sandboxes?projectId=prj", nil, 400, "bad_request", "Invalid request: missing required property `project`."},
		{"GET", "/v2/sandboxes/sessions?projectId=prj", nil, 400, "bad_request", "Invalid request: missing required property `project`."},
		{"GET", "/v2/sandboxes/snapshots?projectId=prj", nil, 400, "bad_request", "Invalid request: missing required property `project`."},
		{"GET", "/v2/sandboxes/one?project=prj", nil, 400, "bad_request", "Invalid request: missing required property `projectId`."},
		{"GET", "/v2/sandboxes?project=a/b", nil, 400, "bad_request", "Invalid request: `projectId` should be the ID of a project."},
		{"POST", "/v2/sandboxes", obj{"projectId": "prj", "runtime": "node18"}, 400, "bad_request", "Invalid request: `runtime` should be equal to one of the allowed values \"node22, node24, node26, python3.13\"."},
		{"GET", "/v2/sandboxes?project=prj&sortOrder=up", nil, 400, "bad_request", "Invalid request: `sortOrder` should be equal to one of the allowed values \"asc, desc\"."},
		{"GET", "/v2/sandboxes?project=prj&limit=51", nil, 400, "bad_request", "Invalid request: `limit` should be <= 50."},
		{"POST", "/v3/sandboxes", obj{}, 400, "bad_request", "Invalid request: missing required property `projectId`."},
		{"POST", "/v3/sandboxes", with(obj{"x": 1}), 400, "bad_request", "Invalid request: should NOT have additional property `x`."},
		{"POST", "/v3/sandboxes", with(obj{"name": "box"}), 400, "bad_request", "A sandbox with the name 'box' already exists for this project."},
		{"POST", "/v3/sandboxes", with(obj{"env": obj{"A": strings.Repeat("x", 4341)}}), 400, "bad_request", "env payload too large (4349 bytes; max 4096)"},
		{"POST", "/v3/sandboxes", with(obj{"ports": []int{80}}), 400, "bad_request", "Invalid request: `ports` should be >= 1024."},
		{"POST", "/v3/sandboxes", with(obj{"ports": make([]int, 16)}), 400, "bad_request", "Invalid request: `ports` should NOT have more than 15 items."},
		{"POST", "/v3/sandboxes", with(obj{"ports": "80"}), 400, "bad_request", "Invalid request: `ports` should be array."},
		{"POST", "/v3/sandboxes", with(obj{"timeout": "1m"}), 400, "bad_request", "Invalid request: `timeout` should be number."},
		{"POST", "/v3/sandboxes", with(obj{"resources": obj{}}), 400, "bad_request", "Invalid request: `resources` missing required property `vcpus`."},
		{"POST", "/v3/sandboxes", with(obj{"image": "Bad Image"}), 400, "bad_request", "Invalid image reference: Bad Image"},
		{"POST", "/v3/sandboxes", with(obj{"image": "vercel/sandbox/none"}), 404, "not_found", "Image not found."},
		{"POST", live + "/network-policy", obj{"subnets": obj{"deny": []string{"::/0"}}}, 400, "bad_request", `Invalid CIDR "::/0"`},
		{"POST", live + "/cmd", obj{"command": "none-such"}, 400, "executable_not_found", "[invalid_argument] executable file not found in $PATH: none-such"},
		{"POST", live + "/cmd", obj{"command": "true", "timeout": 18_000_001}, 400, "bad_request", "Invalid request: `timeout` should be <= 18000000."},
		{"POST", live + "/fs/read", obj{"path": "none"}, 404, "not_found", "File not found."},
		{"POST", live + "/fs/mkdir", obj{"path": "dir"}, 400, "file_error", "error creating directory: " + box.Session.Cwd + "/dir: File exists"},
		{"POST", live + "/fs/mkdir", obj{"path": "no/such"}, 400, "file_error", "error creating directory: No such file or directory"},
		{"POST", live + "/snapshot", obj{"expiration": 5}, 400, "bad_request", "`expiration` must be 0 (no expiration) or >= 86400000 ms (1 day)."},
		{"POST", live + "/extend-timeout", obj{"duration": 999}, 400, "bad_request", "Invalid request: `duration` should be >= 1000."},
		{"POST", gone + "/cmd", obj{"command": "true"}, 410, "sandbox_stopped", stopped},
		{"GET", gone + "/cmd", nil, 410, "sandbox_stopped", stopped},
		{"GET", gone + "/cmd/cmd_1", nil, 410, "sandbox_stopped", stopped},
		{"POST", gone + "/fs/read", obj{"path": "x"}, 410, "sandbox_stopped", stopped},
		{"POST", gone + "/fs/mkdir", obj{"path": "x"}, 410, "sandbox_stopped", stopped},
		{"POST", gone + "/snapshot", obj{}, 410, "sandbox_stopped", stopped},
		{"POST", gone + "/extend-timeout", obj{"duration": 1000}, 410, "sandbox_stopped", stopped},
	} {
		t.Run(row.method+" "+row.path+" "+row.text, func(t *testing.T) {
			c := &raw{t, c.srv, c.client}
			var body any
			if row.body != nil {
				body = row.body
			}
			assert.Equal(t, row.text, c.refused(row.method, row.path, body, row.status, row.code))
		})
	}
}
