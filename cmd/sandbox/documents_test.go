package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocuments: with --json, standard output is one JSON document.
func TestDocuments(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.write("policy.json", `{"allow":["c.example"]}`)
	d.write("box/file", "x\n")
	id := ""
	for _, line := range []string{
		"create --name c -p 3000 -t k=v --keep-last-snapshots 3 --snapshot-expiration 3d --upload box",
		"ls", "inspect c", "config list c", "config vcpus c 4",
		"config network-policy c --network-policy-file policy.json", "ls", "config policy show c",
		"config network-policy c --network-policy deny-all", "config policy show c",
		"extend c 1m", "sessions ls c -a",
		"url c 3000", "exec -d c -- true", "wait c ID",
		"ps -a c",
		"exec -d c -- sleep 1000", "kill c ID", "cp box/file c:other", "write c other",
		"snapshot --stop c", "snapshots ls", "snapshots get ID",
		"snapshots tree c", "start c", "fork c --name d", "stop c d",
		"drives get-or-create disk", "drives ls", "drives rm disk", "rm d",
		"snapshots rm ID", "ls -a",
		"whoami", "doctor", "version",
		"telemetry status", "telemetry disable", "telemetry enable", "logout",
		"--local rm -f none", "local status",
	} {
		words := strings.Fields(strings.ReplaceAll(line, "ID", id))
		got := d.run("", append([]string{"--json"}, words...)...)
		require.True(t, got.code == 0 || line == "doctor", "%s\n%s", line, got.stderr)
		var doc any
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &doc), "%s: %s", line, got.stdout)
		if members, ok := doc.(map[string]any); ok && (words[0] == "exec" || strings.HasPrefix(words[0], "snapshot")) && members["id"] != nil {
			id = members["id"].(string)
		}
	}
	d.ok("local", "stop")
}
