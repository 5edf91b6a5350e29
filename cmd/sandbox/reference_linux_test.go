package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestQuickReference runs the 41 lines of the quick reference in the platform's
// documentation, from login to logout.
func TestQuickReference(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "node")
	d, v := loginWorkspace(t)
	grant(d, v)
	// The login is for vercel.com. With this option, the user agrees to send it to the
	// emulator.
	d.options = []string{"--api-url=" + d.server.URL}
	// Sandboxes have no project to build: a program that prints its
	// arguments stands for npm.
	d.server.HandleCommand("npm", func(_ context.Context, inv *sandboxtest.Invocation) int {
		fmt.Fprintln(inv.Stdout, "npm", strings.Join(inv.Args, " "))
		return map[string]int{"test": 4, "build": 5}[inv.Args[0]]
	})
	lines := 0
	run := func(code int, stdout, line string) string {
		t.Helper()
		lines++
		got := d.run("", strings.Fields(line)...)
		require.Equal(t, code, got.code, "sandbox %s\n%s", line, got.stderr)
		require.Regexp(t, stdout, got.stdout, "sandbox %s", line)
		return strings.TrimSpace(got.stdout)
	}
	terminal := func(line string) *screen {
		t.Helper()
		lines++
		return d.inTerminal(strings.Fields(line)...)
	}
	shell := func(line string) {
		t.Helper()
		s := terminal(line)
		s.press("echo in the sand''box; exit 6\r")
		s.until("in the sandbox")
		s.until("connection to")
		assert.Equal(t, 6, s.ended())
	}

	run(0, `^$`, "login")
	shell("create --connect")
	run(0, `^my-app$`, "create --name my-app")
	other := run(0, `^sandbox-\w+$`, "create --non-persistent")
	run(0, `^sandbox-\w+$`, "create --snapshot-expiration 7d")
	run(0, `^sandbox-\w+$`, "create --keep-last-snapshots 1")
	staging := run(0, `^sandbox-\w+$`, "create --tag env=staging")
	run(0, `^sandbox-\w+$`, "fork my-app")
	run(0, `^my-fork$`, "fork my-app --name my-fork --vcpus 4 --env FOO=1")
	run(0, `(?m)^my-fork +running .* 4 `, "ls")
	d.ok("create", "--name", "ci-1", "--tag", "env=staging")
	run(0, `^NAME .*\nci-1 +running[^\n]+\n$`, "ls --name-prefix ci- --sort-by name")
	first := d.run("", "ls", "--tag", "env=staging", "--limit", "1")
	cursor := regexp.MustCompile(`--cursor (\S+)`).FindStringSubmatch(first.stderr)
	require.NotNil(t, cursor, first.stderr)
	require.Contains(t, first.stdout, "ci-1")
	run(0, `^NAME .*\n`+staging+` [^\n]+\n$`, "ls --tag env=staging --limit 100 --cursor "+cursor[1])

	lines++
	assert.Equal(t, "hello\n", d.ok("run", "--", "node", "-e", "console.log('hello')"))
	run(4, `^npm test\n$`, "run --name my-app -- npm test")
	run(5, `^npm build\n$`, "run --stop -- npm build")
	have := d.ok("ls", "-a", "-q")
	run(5, `^npm build\n$`, "run --rm -- npm build")
	assert.Equal(t, have, d.ok("ls", "-a", "-q"))
	run(0, `^npm install\n$`, "exec my-app -- npm install")
	run(5, `^npm build\n$`, "exec my-app --stop -- npm build")
	assert.Contains(t, d.ok("ls", "--status", "stopped", "-q"), "my-app\n")
	shell("connect my-app")
	d.write("local-file.txt", "local\n")
	run(0, `^$`, "cp local-file.txt my-app:/vercel/sandbox/")
	assert.Equal(t, "local\n", d.ok("cp", "my-app:/vercel/sandbox/local-file.txt", "-"))
	run(0, `^$`, "stop my-app")
	run(0, `^ID +STATUS`, "sessions list my-app")

	d.ok("start", "my-app")
	s := terminal("snapshot my-app")
	s.until("[y/N]")
	s.press("y\r")
	s.until("created")
	assert.Equal(t, 0, s.ended())
	id := strings.Fields(d.ok("snapshots", "list", "--name", "my-app", "-q"))[0]
	run(0, `(?m)^`+id+` +created`, "snapshots list --name my-app")
	run(0, `(?m)^`+id+` +created`, "snapshots get "+id)
	run(0, id, "snapshots tree my-app")
	run(0, ``, "snapshots tree my-app --cursor "+id+" --sort-order asc")

	run(0, `(?m)^FIELD +VALUE`, "config list my-app")
	run(0, `^$`, "config vcpus my-app 4")
	run(0, `^$`, "config timeout my-app 30m")
	run(0, `^$`, "config persistent my-app true")
	run(0, `^$`, "config snapshot-expiration my-app none")
	run(0, `^$`, "config keep-last-snapshots my-app 3")
	run(0, `^$`, "config keep-last-snapshots-for my-app 7d")
	run(0, `^$`, "config delete-evicted-snapshots my-app false")
	run(0, `^$`, "config current-snapshot my-app "+id)
	run(0, `^$`, "config network-policy my-app --network-policy deny-all")
	run(0, `^$`, "config tags my-app --tag env=prod")
	var inspected struct{ Sandbox map[string]any }
	require.NoError(t, json.Unmarshal([]byte(d.ok("inspect", "my-app", "--json")), &inspected))
	for field, want := range map[string]any{
		"vcpus": 4.0, "timeout": 1800000.0, "persistent": true, "currentSnapshotId": id, "tags": map[string]any{"env": "prod"},
		"keepLastSnapshots": map[string]any{"count": 3.0, "expiration": 604800000.0, "deleteEvicted": false},
	} {
		assert.Equal(t, want, inspected.Sandbox[field], field)
	}
	assert.Equal(t, "deny-all\n", d.ok("config", "policy", "show", "my-app", "-q"))

	run(0, `^`+other+`\n$`, "remove "+other)
	forked := d.ok("snapshot", "--stop", "my-fork")
	run(0, `^snap_\w+\n$`, "snapshots remove "+strings.TrimSpace(forked))
	run(0, `^Logged out!\n$`, "logout")
	assert.Equal(t, 41, lines)
}
