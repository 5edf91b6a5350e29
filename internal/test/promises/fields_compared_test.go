package promises_test

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// uncompared are fields of requests that no recording of the official client
// has, each with the reason.
var uncompared = map[string]string{
	"update.env": "the official client does not send it", "fork.mounts": "the official client does not send them: a rule compares ours with the arguments",
	"list?status":        "the official client does not send it: its documentation has it",
	"create.credentials": "the recorded client, 3.5, does not have them", "create.architecture": "the recorded client, 3.5, does not send it",
	"command?cmdId": "the official client leaves the IDs of commands to the service",
	"get?__one":     "a parameter of these tests, for those that begin so",
	"update.__two":  "a parameter of these tests, for those that begin so",
	"fork.__one":    "a parameter of these tests, for those that begin so", "create.__one": "a parameter of these tests, for those that begin so",
}

// TestCompared fails for a field that a row of these tests sends and no
// recording of the official client has: then nothing compares the two.
func TestCompared(t *testing.T) {
	t.Parallel()
	recorded := map[string]bool{}
	routes := []struct{ kind, at string }{
		{"create", `^POST /api/v[23]/sandboxes$`}, {"fork", `^POST /api/v2/sandboxes/[^/]+/fork$`}, {"update", `^PATCH /api/v2/sandboxes/[^/]+$`},
		{"command", `^POST /api/v2/sandboxes/sessions/[^/]+/cmd$`}, {"snapshot", `/snapshot$`}, {"drive", `^POST /api/v2/sandboxes/drives/[^/]+$`},
		{"list", `^GET /api/v2/sandboxes$`}, {"drives", `^GET /api/v2/sandboxes/drives$`}, {"sessions", `^GET /api/v2/sandboxes/sessions$`},
		{"snapshots", `^GET /api/v2/sandboxes/snapshots$`}, {"tree", `^GET /api/v2/sandboxes/snapshots/tree$`}, {"get", `^GET /api/v2/sandboxes/[^/]+$`},
		{"delete", `^DELETE /api/v2/sandboxes/[^/]+$`}, {"read", `/fs/read$`},
	}
	for _, pattern := range []string{"expected/*.json", "more/expected/*.json"} {
		files, err := filepath.Glob(filepath.Join("../../../testdata/conformance", pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var recording struct {
				Requests []struct {
					Method, Path string
					Query        [][]string
					Body         json.RawMessage
				}
			}
			require.NoError(t, json.Unmarshal(text, &recording), file)
			for _, r := range recording.Requests {
				i := slices.IndexFunc(routes, func(route struct{ kind, at string }) bool {
					return regexp.MustCompile(route.at).MatchString(r.Method + " " + r.Path)
				})
				if i < 0 {
					continue
				}
				var body struct{ JSON map[string]json.RawMessage }
				_ = json.Unmarshal(r.Body, &body) // archives have another form
				for name, value := range body.JSON {
					recorded[routes[i].kind+"."+name] = true
					var inner map[string]json.RawMessage
					if json.Unmarshal(value, &inner) == nil {
						for field := range inner {
							recorded[routes[i].kind+"."+name+"."+field] = true
						}
					}
				}
				for _, pair := range r.Query {
					recorded[routes[i].kind+"?"+pair[0]] = true
				}
			}
		}
	}

	kinds := map[string]string{
		"List": "list", "ListSessions": "sessions", "ListSnapshots": "snapshots", "SnapshotTree": "tree", "ListDrives": "drives", "Get": "get",
		"GetOrCreateDrive": "drive", "Snapshot": "snapshot", "Delete": "delete", "RunCommand": "command", "ReadFile": "read",
	}
	sent := map[string][]row{"create": firsts, "fork": forks, "update": settings}
	for _, m := range calls {
		if kind := kinds[m.name]; kind != "" {
			sent[kind] = m.rows
		}
	}
	for kind, rows := range sent {
		for _, r := range rows {
			if query, ok := strings.CutPrefix(r.sent, "?"); ok {
				values, err := url.ParseQuery(query)
				require.NoError(t, err)
				for name := range values {
					compared(t, recorded, kind+"?"+name)
				}
				continue
			}
			body, ok := decoded(t, r.sent).(map[string]any)
			require.True(t, ok)
			for name, v := range body {
				compared(t, recorded, kind+"."+name)
				if inner, ok := v.(map[string]any); ok && slices.Contains([]string{"keepLastSnapshots", "resources", "source"}, name) {
					for field := range inner {
						compared(t, recorded, kind+"."+name+"."+field)
					}
				}
			}
		}
	}
}

func compared(t *testing.T, recorded map[string]bool, field string) {
	t.Helper()
	_, excused := uncompared[field]
	assert.NotEqual(t, excused, recorded[field], "%s: recorded %v, listed as one that is not %v", field, recorded[field], excused)
}
