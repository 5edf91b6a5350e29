//go:build unix

package auth_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// officialResult is the result of a package on a machine: the team of the token, or "" for an error,
// and the folder of the CLI.
type officialResult struct{ Team, Folder string }

// official runs @vercel/oidc on emulated machines. The API returns a token of team_fresh for each
// login.
const official = `
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
const require = createRequire(process.cwd() + "/");
const oidc = require("vercel-oidc-4");
const config = createRequire(require.resolve("vercel-oidc-4"))("@vercel/cli-config");
const { rows, fresh } = JSON.parse(readFileSync(0, "utf8"));
globalThis.fetch = async () => new Response(JSON.stringify({ token: fresh }));
const found = [];
for (const row of rows) {
  for (const key of Object.keys(process.env)) delete process.env[key];
  Object.assign(process.env, row.env);
  process.chdir(row.dir);
  const folder = config.getGlobalPathConfig();
  try {
    const token = await oidc.getVercelOidcToken();
    const claims = JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
    found.push({ Team: claims.owner_id, Folder: folder });
  } catch (err) {
    found.push({ Team: "", Folder: folder });
  }
}
console.log(JSON.stringify(found));
`

// TestAsOfficial compares this package with @vercel/oidc 4.0.9 and @vercel/cli-config 0.4.0, for the
// same folders, variables and program vercel.
func TestAsOfficial(t *testing.T) {
	token := func(team string, d time.Duration) string { return oidctest.Token(team, "prj_linked", d) }
	fresh := token("team_fresh", time.Hour)
	file := func(text string) map[string]string { return map[string]string{"token": text} }
	login := map[string]string{".local/share/com.vercel.cli/auth.json": `{"token":"cli"}`}
	with := func(all ...map[string]string) map[string]string {
		sum := map[string]string{}
		for _, files := range all {
			maps.Copy(sum, files)
		}
		return sum
	}
	config := func(text string) map[string]string {
		return map[string]string{".local/share/com.vercel.cli/config.json": text}
	}
	vercelProgram := func(script string) map[string]string {
		return map[string]string{"bin/vercel": "#!/bin/sh\necho \"$*\" >\"$0.args\"\n" + script + "\n"}
	}
	cli := vercelProgram(`echo '{"token":"` + token("team_cli", time.Hour) + `"}'`)
	keyring := map[string]string{"VERCEL_TOKEN_STORAGE": "keyring"}
	inFile := map[string]string{"VERCEL_OIDC_TOKEN_FILE": "HOME/token"}
	variable := map[string]string{"VERCEL_OIDC_TOKEN": token("team_variable", time.Hour)}
	expired := map[string]string{"VERCEL_OIDC_TOKEN": token("team_variable", -time.Hour)}
	stored := func(d time.Duration) map[string]string {
		return map[string]string{".local/share/com.vercel.token/prj_linked.json": `{"token":"` + token("team_stored", d) + `"}`}
	}
	const asked = "project token prj_linked --format=json --scope team_linked\n"
	rows := []struct {
		name       string
		env, files map[string]string
		project    string // linked; empty means prj_linked
		want       string // the team, or nothing for an error
		asked      string // the command lines of the program vercel
	}{
		{name: "file", env: inFile, files: file(token("team_file", time.Hour)), want: "team_file"},
		{name: "file before the variable", env: with(inFile, variable), files: file(token("team_file", time.Hour)), want: "team_file"},
		{name: "spaces around it", env: inFile, files: file(" \n" + token("team_file", time.Hour) + "\r\n"), want: "team_file"},
		{name: "no file, and a variable", env: with(inFile, variable), files: login},
		{name: "a directory in place of the file", env: with(inFile, variable), files: map[string]string{"token/x": ""}},
		{name: "empty file, and a variable", env: with(inFile, variable), files: with(login, file(" \n"))},
		{name: "no token in the file", env: with(inFile, variable), files: with(login, file("x"))},
		{name: "expired in the file", env: with(inFile, variable), files: with(login, file(token("team_file", -time.Hour))), want: "team_fresh"},
		{name: "variable", env: variable, files: login, want: "team_variable"},
		{name: "expired variable", env: expired, files: login, want: "team_fresh"},
		{name: "expired variable, no login", env: expired},
		{name: "nothing"},
		{name: "stored", files: with(login, stored(time.Hour)), want: "team_stored"},
		{name: "stored and expired", files: with(login, stored(-time.Hour)), want: "team_fresh"},
		{name: "stored, and a keyring", env: keyring, files: with(cli, stored(time.Hour)), want: "team_stored"},
		{name: "login", files: login, want: "team_fresh"},
		{name: "older folder", files: map[string]string{".now/auth.json": `{"token":"cli"}`}, want: "team_fresh"},
		{name: "a folder without a login comes first", files: with(config("{}"), map[string]string{".now/auth.json": `{"token":"cli"}`})},
		{name: "XDG_DATA_HOME", env: map[string]string{"XDG_DATA_HOME": "HOME/data"}, files: map[string]string{"data/com.vercel.cli/auth.json": `{"token":"cli"}`}, want: "team_fresh"},
		{name: "XDG_DATA_DIRS", env: map[string]string{"XDG_DATA_DIRS": "HOME/x:HOME/y"}, files: map[string]string{"y/com.vercel.cli/auth.json": `{"token":"cli"}`}, want: "team_fresh"},
		{name: "keyring by variable", env: keyring, files: with(login, cli), want: "team_cli", asked: asked},
		{name: "keyring by configuration", files: with(config(`{"credStorage":"keyring"}`), cli), want: "team_cli", asked: asked},
		{name: "the variable wins", env: map[string]string{"VERCEL_TOKEN_STORAGE": "file"}, files: with(login, config(`{"credStorage":"keyring"}`), cli), want: "team_fresh"},
		{name: "auto with a login", env: map[string]string{"VERCEL_TOKEN_STORAGE": "auto"}, files: with(login, cli), want: "team_fresh"},
		{name: "auto without one", env: map[string]string{"VERCEL_TOKEN_STORAGE": "auto"}, files: cli, want: "team_cli", asked: asked},
		{name: "auto, with an empty one", files: with(config(`{"credStorage":"auto"}`), map[string]string{".local/share/com.vercel.cli/auth.json": `{"token":""}`}, cli), want: "team_cli", asked: asked},
		{name: "bound to the device", env: map[string]string{"__VERCEL_FF_DPOP": "1"}, files: with(login, cli), want: "team_cli", asked: asked},
		{name: "another value", env: map[string]string{"VERCEL_TOKEN_STORAGE": "cloud"}, files: with(login, cli)},
		{name: "another value in the configuration", files: with(login, config(`{"credStorage":"cloud"}`), cli)},
		{name: "broken configuration", files: with(login, config("{"), cli)},
		{name: "no program", env: keyring, files: login},
		{name: "a program that fails", env: keyring, files: with(login, vercelProgram("echo no >&2; exit 3")), asked: asked},
		{name: "no JSON", env: keyring, files: with(login, vercelProgram("echo hi")), asked: asked},
		{name: "no token", env: keyring, files: with(login, vercelProgram("echo '{}'")), asked: asked},
		{name: "an option in place of the project", env: keyring, files: with(login, cli), project: "--help"},
	}

	type machine struct {
		Env map[string]string `json:"env"`
		Dir string            `json:"dir"`
	}
	machines := func() (all []machine) {
		for _, row := range rows {
			m := oidctest.NewMachine(t)
			env := map[string]string{"HOME": m.Home, "PATH": filepath.Join(m.Home, "bin") + ":/usr/bin:/bin"}
			for key, value := range row.env {
				env[key] = strings.ReplaceAll(value, "HOME", m.Home)
			}
			for name, text := range row.files {
				m.Write(filepath.Join(m.Home, name), text)
			}
			if _, err := os.Stat(filepath.Join(m.Home, "bin")); err == nil {
				require.NoError(t, os.Chmod(filepath.Join(m.Home, "bin", "vercel"), 0o755))
			}
			project := row.project
			if project == "" {
				project = "prj_linked"
			}
			m.Link("team_linked", project)
			all = append(all, machine{env, m.Dir})
		}
		return all
	}
	check := func(of machine, i int, got officialResult) {
		row := rows[i]
		assert.Equal(t, row.want, got.Team, row.name)
		args, err := os.ReadFile(filepath.Join(of.Env["HOME"], "bin", "vercel.args"))
		assert.True(t, err == nil || errors.Is(err, os.ErrNotExist), "%v", err)
		assert.Equal(t, row.asked, string(args), row.name)
	}
	var folders []string
	for i, m := range machines() {
		v := &oidctest.Vercel{}
		v.Say("POST api.vercel.com/v1/projects/prj_linked/token", map[string]string{"token": fresh})
		lookup := func(key string) (string, bool) { value, ok := m.Env[key]; return value, ok }
		var got officialResult
		if c, err := auth.OIDC(&auth.Options{HTTPClient: v.Client(), LookupEnv: lookup, Dir: m.Dir}).Credentials(t.Context()); err == nil {
			got.Team = c.TeamID
		}
		check(m, i, got)
		file, err := oidc.NewHost(nil, func(key string) string { return m.Env[key] }, m.Dir).LoginFile()
		require.NoError(t, err)
		folder, err := filepath.Rel(m.Env["HOME"], filepath.Dir(file))
		require.NoError(t, err)
		folders = append(folders, folder)
	}

	needs.Programs(t, "node")
	modules := os.Getenv("SANDBOX_JS_MODULES")
	if _, err := os.Stat(filepath.Join(modules, "vercel-oidc-4")); modules == "" || err != nil {
		needs.Missing(t, "in SANDBOX_JS_MODULES a node_modules folder of testdata/npm, with vercel-oidc-4")
	}
	if runtime.GOOS != "linux" {
		needs.Other(t, "the folders are those of Linux")
	}
	all := machines()
	input, err := json.Marshal(map[string]any{"rows": all, "fresh": fresh})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "play.mjs"), []byte(official), 0o600))
	cmd := exec.Command("node", "play.mjs")
	cmd.Dir, cmd.Stdin, cmd.Stderr = dir, strings.NewReader(string(input)), os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var theirs []officialResult
	require.NoError(t, json.Unmarshal(out, &theirs), "%s", out)
	require.Len(t, theirs, len(rows))
	for i, m := range all {
		check(m, i, theirs[i])
		folder, err := filepath.Rel(m.Env["HOME"], theirs[i].Folder)
		require.NoError(t, err)
		assert.Equal(t, folder, folders[i], rows[i].name)
	}
}
