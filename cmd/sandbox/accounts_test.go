package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// accountRows are the commands with arguments by which they make a request, or
// "" for those that make none.
var accountRows = map[string]string{
	"list": "-a", "create": "--name new --silent", "sh": "", "fork": "nosuch", "copy": "web:file -", "exec": "web -- true", "connect": "",
	"stop": "nosuch", "remove": "nosuch", "run": "--rm -- true", "snapshot": "nosuch --stop", "snapshots list": "-q", "snapshots get": "snap_nosuch",
	"snapshots delete": "snap_nosuch", "snapshots tree": "nosuch", "sessions list": "nosuch", "drives list": "-q", "drives get-or-create": "disk",
	"drives delete": "nosuch", "login": "", "logout": "", "ps": "web", "logs": "nosuch", "wait": "nosuch cmd_x", "kill": "nosuch cmd_x",
	"read": "web file", "write": "web file", "port-forward": "nosuch 8080",
	"url": "nosuch 8080", "rsh": "web cat file", "inspect": "web", "start": "web", "extend": "web 1m",
	"whoami": "", "doctor": "-q", "emulator": "",
	"local status": "", "local stop": "", "local restart": "", "local logs": "", "mcp": "", "completion": "", "version": "",
	"config list": "web", "config vcpus": "web 2", "config timeout": "web 5m", "config persistent": "web true", "config region": "web sfo1",
	"config failover-regions": "web none", "config network-id": "web none", "config snapshot-expiration": "web 7d", "config keep-last-snapshots": "web 2",
	"config keep-last-snapshots-for": "web 7d", "config delete-evicted-snapshots": "web true", "config current-snapshot": "web snap_nosuch",
	"config mounts": "web", "config network-policy": "web --allowed-domain b.example", "config ports": "web", "config tags": "web",
	"config policy show": "web",
}

// leaves are the commands, as completion lists them.
func (d *desk) leaves(path ...string) (all []string) {
	for line := range strings.Lines(d.ok(slices.Concat([]string{"__completeNoDesc"}, path, []string{""})...)) {
		name := strings.TrimSpace(line)
		if strings.HasPrefix(name, ":") {
			break
		}
		if slices.Contains([]string{"config", "policy", "snapshots", "sessions", "drives", "local"}, name) {
			all = append(all, d.leaves(append(slices.Clip(path), name)...)...)
		} else {
			all = append(all, strings.Join(append(slices.Clip(path), name), " "))
		}
	}
	return all
}

// TestAccounts runs every command with an account or a project that its
// line names, next to the account that the environment has, which nobody asks for
// anything.
func TestAccounts(t *testing.T) {
	t.Parallel()
	const project = "prj_named"
	d := newDesk(t, nil)
	named := sandboxtest.New(t, nil)
	credentials := named.Credentials()
	d.write("folder/f", "x")
	leaves := slices.DeleteFunc(d.leaves(), func(name string) bool { return name == "help" })
	require.Subset(t, leaves, []string{"rsh", "config policy show", "drives list"})
	for _, name := range leaves {
		assert.Contains(t, accountRows, name, "a command without a row")
	}
	assert.Len(t, accountRows, len(leaves))

	environment := []string{"--project=" + project}
	for _, way := range []struct {
		name    string
		options []string
		server  *sandboxtest.Server // of whom requests come to, nil for that of --local
	}{
		{"local", []string{"--local", "--project=" + project}, nil},
		{"options", []string{"--api-url=" + named.URL, "--token", credentials.Token, "--scope=" + credentials.TeamID, "--project=" + project}, named},
		{"project", environment, d.server},
	} {
		t.Run(way.name, func(t *testing.T) {
			look := func() []sandboxtest.Request {
				if way.server == nil {
					return nil
				}
				return way.server.Requests()
			}
			other := len(d.server.Requests())
			run := func(line ...string) outcome {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				return finish(t, d.command(ctx, line...))
			}
			got := run(slices.Concat(way.options, strings.Fields("create --name web --silent"))...)
			require.Zero(t, got.code, got.stderr)
			for _, name := range leaves {
				row := accountRows[name]
				if row == "" {
					continue
				}
				before := len(look())
				// Before the command's name, and behind it.
				for _, line := range [][]string{
					slices.Concat(way.options, strings.Fields(name), strings.Fields(row)), slices.Concat(strings.Fields(name), way.options, strings.Fields(row)),
				} {
					got := run(line...)
					assert.NotEqual(t, 2, got.code, "%v: %s", line, got.stderr)
				}
				if way.server == nil {
					continue
				}
				made := look()[before:]
				assert.NotEmpty(t, made, "%s makes no request", name)
				for _, r := range made {
					var body struct {
						ProjectID string `json:"projectId"`
					}
					_ = json.Unmarshal(r.Body, &body) // of other bodies nothing is known
					for _, id := range []string{r.Query.Get("projectId"), r.Query.Get("project"), body.ProjectID} {
						assert.Contains(t, []string{"", project}, id, "%s: %s %s", name, r.Method, r.Path)
					}
				}
			}
			if way.server != d.server {
				assert.Len(t, d.server.Requests(), other, "requests to the account that no line names")
			}
		})
	}
	d.ok("local", "stop")
}
