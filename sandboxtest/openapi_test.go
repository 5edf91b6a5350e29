package sandboxtest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// described is the description as a program of another language reads it.
func described(t *testing.T) map[string]any {
	t.Helper()
	data, err := json.Marshal(sandboxtest.OpenAPI())
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(data, &doc))
	return doc
}

func at(v any, path ...string) any {
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// misfits says where a value is not as a schema describes it.
func misfits(doc map[string]any, schema, v any, where string, closed bool) (out []string) {
	s, _ := schema.(map[string]any)
	if ref, ok := s["$ref"].(string); ok {
		return misfits(doc, at(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...), v, where, closed)
	}
	if v == nil && slices.ContainsFunc(asList(s["anyOf"]), func(one any) bool { return at(one, "type") == "null" }) {
		return nil
	}
	if either := asList(s["anyOf"]); either != nil {
		return misfits(doc, either[0], v, where, closed)
	}
	kind := map[string]bool{}
	switch v := v.(type) {
	case map[string]any:
		kind["object"] = true
		for _, name := range asList(s["required"]) {
			if _, there := v[name.(string)]; !there {
				out = append(out, where+": has no "+name.(string))
			}
		}
		properties, _ := s["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			switch {
			case properties[name] != nil:
				out = append(out, misfits(doc, properties[name], v[name], where+"."+name, closed)...)
			case s["additionalProperties"] != nil && s["additionalProperties"] != false:
				out = append(out, misfits(doc, s["additionalProperties"], v[name], where+"."+name, closed)...)
			case closed && properties != nil:
				out = append(out, where+": "+name+" is not described")
			}
		}
	case []any:
		kind["array"] = true
		for i, x := range v {
			out = append(out, misfits(doc, s["items"], x, fmt.Sprintf("%s[%d]", where, i), closed)...)
		}
	case string:
		kind["string"] = true
	case bool:
		kind["boolean"] = true
	case float64:
		kind["number"] = true
		kind["integer"] = v == float64(int64(v))
	}
	if want, ok := s["type"].(string); ok && !kind[want] {
		out = append(out, fmt.Sprintf("%s: is %v, not %s", where, v, want))
	}
	return out
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}

// TestOpenAPIHasTheRoutes: each operation is described with its path, and each
// path that is described is served.
func TestOpenAPIHasTheRoutes(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, ControlToken: controlToken})
	doc := described(t)
	seen := map[string]bool{}
	for path, item := range at(doc, "paths").(map[string]any) {
		for method, op := range item.(map[string]any) {
			id, _ := at(op, "operationId").(string)
			seen[id] = true
			full := path
			for _, name := range []string{"name", "sessionId", "commandId", "snapshotId", "drive", "id"} {
				full = strings.ReplaceAll(full, "{"+name+"}", "x")
			}
			assert.NotContains(t, full, "{", path)
			req := c.request(strings.ToUpper(method), full, nil)
			if strings.HasPrefix(path, "/control/") {
				var err error
				req.URL, err = req.URL.Parse(full)
				require.NoError(t, err)
				req.Header.Set("Authorization", "Bearer "+controlToken)
			}
			before := len(srv.Requests())
			resp := c.send(req)
			assert.NotEqual(t, 405, resp.StatusCode, "%s %s", method, path)
			if id != "" {
				all := srv.Requests()
				require.Len(t, all, before+1)
				assert.Equal(t, id, string(all[before].Operation), "%s %s", method, path)
			}
			assert.Nil(t, at(op, "responses", "0"), "%s %s has no row in exchanges", method, path)
		}
	}
	delete(seen, "")
	assert.ElementsMatch(t, sandboxtest.Operations(), slices.Collect(maps.Keys(seen)))
}

// TestOpenAPIFitsRecordedShapes: what was recorded of the service, and what the
// emulator says, is as described.
func TestOpenAPIFitsRecordedShapes(t *testing.T) {
	t.Parallel()
	doc := described(t)
	for name, schema := range map[string]string{"sandbox": "SandboxResponse", "command": "CommandResponse", "snapshot": "SnapshotResponse"} {
		data, err := os.ReadFile(filepath.Join("..", "testdata", "rest", name+"-full.json"))
		require.NoError(t, err)
		var v any
		require.NoError(t, json.Unmarshal(data, &v))
		assert.Empty(t, misfits(doc, at(doc, "components", "schemas", schema), v, name, false))
		if m := v.(map[string]any); name == "sandbox" { // and it would be noticed
			m["sandbox"].(map[string]any)["name"] = 1.0
			delete(m, "session")
			assert.Len(t, misfits(doc, at(doc, "components", "schemas", schema), v, name, false), 2)
		}
	}
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	fits := func(method, path string, body any, status int, template string) map[string]any {
		t.Helper()
		var v map[string]any
		c.call(method, path, body, status, &v)
		op := at(doc, "paths", template, strings.ToLower(method))
		require.NotNil(t, op, template)
		schema := at(op, "responses", fmt.Sprint(status), "content", "application/json", "schema")
		require.NotNil(t, schema, "%s %s has no response %d", method, template, status)
		assert.Empty(t, misfits(doc, schema, v, method+" "+template, true))
		if body != nil {
			data, err := json.Marshal(body)
			require.NoError(t, err)
			var sent any
			require.NoError(t, json.Unmarshal(data, &sent))
			assert.Empty(t, misfits(doc, at(op, "requestBody", "content", "application/json", "schema"), sent, method+" "+template+" request", true))
		}
		return v
	}
	made := fits("POST", "/v3/sandboxes", obj{"projectId": "prj", "name": "one", "tags": obj{"a": "b"}, "ports": []int{3000}}, 200, "/v3/sandboxes")
	id := at(made, "session", "id").(string)
	fits("GET", "/v2/sandboxes/one?projectId=prj", nil, 200, "/v2/sandboxes/{name}")
	fits("GET", "/v2/sandboxes?project=prj", nil, 200, "/v2/sandboxes")
	fits("PATCH", "/v2/sandboxes/one?projectId=prj", obj{"timeout": 600_000}, 200, "/v2/sandboxes/{name}")
	fits("GET", session(id), nil, 200, "/v2/sandboxes/sessions/{sessionId}")
	fits("POST", session(id)+"/extend-timeout", obj{"duration": 60_000}, 200, "/v2/sandboxes/sessions/{sessionId}/extend-timeout")
	cmd := fits("POST", session(id)+"/cmd", obj{"command": "true"}, 200, "/v2/sandboxes/sessions/{sessionId}/cmd")
	fits("GET", session(id)+"/cmd/"+at(cmd, "command", "id").(string)+"?wait=true", nil, 200, "/v2/sandboxes/sessions/{sessionId}/cmd/{commandId}")
	fits("GET", session(id)+"/cmd", nil, 200, "/v2/sandboxes/sessions/{sessionId}/cmd")
	fits("POST", session(id)+"/fs/mkdir", obj{"path": "d"}, 200, "/v2/sandboxes/sessions/{sessionId}/fs/mkdir")
	fits("POST", session(id)+"/snapshot", obj{}, 201, "/v2/sandboxes/sessions/{sessionId}/snapshot")
	fits("GET", "/v2/sandboxes/snapshots?project=prj", nil, 200, "/v2/sandboxes/snapshots")
	fits("GET", "/v2/sandboxes/sessions?project=prj&name=one", nil, 200, "/v2/sandboxes/sessions")
	fits("POST", "/v2/sandboxes/one/fork?projectId=prj", obj{"name": "two"}, 200, "/v2/sandboxes/{name}/fork")
	fits("POST", "/v2/sandboxes/drives/disk", obj{"projectId": "prj"}, 201, "/v2/sandboxes/drives/{drive}")
	fits("POST", "/v1/drives/disk/fork?projectId=prj", obj{"name": "copy"}, 201, "/v1/drives/{drive}/fork")
	fits("GET", "/v2/sandboxes/drives?projectId=prj", nil, 200, "/v2/sandboxes/drives")
	fits("DELETE", "/v2/sandboxes/one?projectId=prj", nil, 200, "/v2/sandboxes/{name}")
}
