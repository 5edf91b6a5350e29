package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// leaves returns all commands without subcommands, as completion lists them.
func (d *workspace) leaves(path ...string) (all []string) {
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

// TestAccounts runs every command with options that name an account or a project. The
// environment names another account, which must get no request.
func TestAccounts(t *testing.T) {
	t.Parallel()
	const project = "prj_named"
	d := newWorkspace(t, nil)
	named := sandboxtest.New(t, nil)
	credentials := named.Credentials()
	d.write("folder/f", "x")
	var lines [][]string
	for _, leaf := range d.leaves() {
		page := d.ok(append(strings.Fields(leaf), "--help")...)
		example := regexp.MustCompile(`(?m)^Example:\n\n    \$ sandbox (.*)$`).FindStringSubmatch(page)
		require.NotNil(t, example, leaf)
		if !strings.Contains(page, "It needs no account.") {
			line := example[1]
			if leaf != "create" { // the other commands find no sandbox, because some of them would never end
				line = strings.ReplaceAll(line, "my-app", "nosuch")
			}
			lines = append(lines, strings.Fields(line))
		}
	}
	require.Greater(t, len(lines), 40)

	environment := []string{"--project=" + project}
	for _, way := range []struct {
		name    string
		options []string
		server  *sandboxtest.Server // the server that gets the requests, or nil for that of --local
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
				return d.run("", line...)
			}
			for _, line := range lines {
				name := strings.Join(line, " ")
				before := len(look())
				words := 1
				if slices.Contains([]string{"config", "snapshots", "sessions", "drives"}, line[0]) {
					words = 2
				}
				// The options come before the command's name, or after it.
				terminal := false
				ways := [][]string{slices.Concat(way.options, line), slices.Concat(line[:words], way.options, line[words:])}
				if !needs.Slow() && way.server != named {
					ways = ways[1:] // TestGlobalOptions reads all options in both places
				}
				for _, line := range ways {
					got := run(line...)
					terminal = strings.Contains(got.stderr, "needs a terminal")
					assert.True(t, got.code != 2 || terminal, "%v: %s", line, got.stderr)
				}
				if way.server == nil || terminal || name == "whoami" || strings.HasPrefix(name, "mcp") {
					continue
				}
				made := look()[before:]
				assert.NotEmpty(t, made, "%s makes no request", name)
				for _, r := range made {
					var body struct {
						ProjectID string `json:"projectId"`
					}
					_ = json.Unmarshal(r.Body, &body) // other bodies need no check
					for _, id := range []string{r.Query.Get("projectId"), r.Query.Get("project"), body.ProjectID} {
						assert.Contains(t, []string{"", project}, id, "%s: %s %s", name, r.Method, r.Path)
					}
				}
			}
			if way.server != d.server {
				assert.Len(t, d.server.Requests(), other, "requests to the account of the environment")
			}
		})
	}
	d.ok("local", "stop")
}
