package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocuments holds what commands write with --json against its schema: a line,
// in order, for each schema at least.
func TestDocuments(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.write("policy.json", `{"allow":["c.example"]}`)
	d.write("box/file", "x\n")
	seen := map[string]bool{"error": true, "login": true} // of the scripts and of TestLogin
	id := ""
	for _, row := range [][2]string{
		{"sandbox", "create --name c -p 3000 -t k=v --keep-last-snapshots 3 --snapshot-expiration 3d --upload box"},
		{"sandboxes", "ls"}, {"inspection", "inspect c"}, {"sandbox", "config list c"}, {"sandbox", "config vcpus c 4"},
		{"sandbox", "config network-policy c --network-policy-file policy.json"}, {"sandboxes", "ls"}, {"policy", "config policy show c"},
		{"sandbox", "config network-policy c --network-policy deny-all"}, {"policy", "config policy show c"},
		{"session", "extend c 1m"}, {"sessions", "sessions ls c -a"},
		{"url", "url c 3000"}, {"command", "exec -d c -- true"}, {"command", "wait c ID"},
		{"commands", "ps -a c"},
		{"command", "exec -d c -- sleep 1000"}, {"names", "kill c ID"}, {"copies", "cp box/file c:other"}, {"copies", "write c other"},
		{"snapshot", "snapshot --stop c"}, {"snapshots", "snapshots ls"}, {"snapshot", "snapshots get ID"},
		{"tree", "snapshots tree c"}, {"names", "start c"}, {"sandbox", "fork c --name d"}, {"stops", "stop c d"},
		{"drive", "drives get-or-create disk"}, {"drives", "drives ls"}, {"names", "drives rm disk"}, {"names", "rm d"},
		{"names", "snapshots rm ID"}, {"sandboxes", "ls -a"},
		{"whoami", "whoami"}, {"findings", "doctor"}, {"version", "version"},
		{"telemetry", "telemetry status"}, {"telemetry", "telemetry disable"}, {"telemetry", "telemetry enable"}, {"done", "logout"},
		{"names", "--local rm -f none"}, {"local", "local status"},
	} {
		schema := row[0]
		seen[schema] = true
		words := strings.Fields(strings.ReplaceAll(row[1], "ID", id))
		got := d.run("", append([]string{"--json"}, words...)...)
		require.True(t, got.code == 0 || schema == "findings", "%s\n%s", row[1], got.stderr)
		var doc any
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &doc), "%s: %s", row[1], got.stdout)
		assert.NoError(t, schemaOf(t, "schema", schema).Validate(doc), "%s: %s", row[1], got.stdout)
		if schema == "command" || schema == "snapshot" {
			id = doc.(map[string]any)["id"].(string)
		}
	}
	d.ok("local", "stop")
	files, err := filepath.Glob("schema/*.json")
	require.NoError(t, err)
	for _, f := range files {
		assert.True(t, seen[strings.TrimSuffix(filepath.Base(f), ".json")], "no line writes a document of %s", f)
	}
}

func schemaOf(t require.TestingT, dir, name string) *jsonschema.Resolved {
	data, err := os.ReadFile(filepath.Join(dir, name+".json"))
	require.NoError(t, err)
	var schema jsonschema.Schema
	require.NoError(t, json.Unmarshal(data, &schema))
	resolved, err := schema.Resolve(nil)
	require.NoError(t, err)
	return resolved
}
