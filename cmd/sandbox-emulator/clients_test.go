package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// runIn runs a command with the emulator in a directory, and returns its output. The
// command must succeed.
func runIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := program(t, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, "HOME="+t.TempDir(), "NO_COLOR=1", "SANDBOX_SKIP_VERSION_CHECK=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s%s", &out, &errs)
	return out.String()
}

// write writes a program to its own directory.
func write(t *testing.T, name, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	return dir
}

// TestNodeReachesTheEmulator sends requests with all of Node's built-in clients.
func TestNodeReachesTheEmulator(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "node")
	dir := write(t, "main.mjs", `
import https, { request } from "node:https";
import tls, { connect } from "node:tls";
const token = process.env.VERCEL_OIDC_TOKEN;
const claims = JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
const headers = { authorization: "Bearer " + token, "content-type": "application/json" };
const made = await fetch("https://vercel.com/api/v2/sandboxes?teamId=" + claims.owner_id, {
  method: "POST", headers, body: JSON.stringify({ projectId: claims.project_id, ports: [3000] }),
});
const { routes } = await made.json();
console.log("create", made.status);
const get = (send, url) => new Promise((done, fail) => send(url, { headers }, (res) => {
  let text = "";
  res.on("data", (chunk) => (text += chunk)).on("end", () => done([res.statusCode, JSON.parse(text).sandboxes?.length]));
}).on("error", fail).end());
console.log("https", ...(await get(request, "https://vercel.com/api/v2/sandboxes")));
console.log("keep-alive", ...(await get((url, o, f) => https.request(url, { ...o, agent: new https.Agent({ keepAlive: false }) }, f), "https://api.vercel.com/v2/sandboxes")));
console.log("route", (await fetch("https://" + routes[0].subdomain + ".vercel.run/")).status);
console.log("no route", (await fetch("https://sb-none.vercel.run/")).status);
const old = await (await fetch("https://vercel.com/api/v1/sandboxes", { headers })).json();
console.log("v1", old.error.message.includes("version 1"));
const raw = connect(443, "vercel.com", { servername: "vercel.com" }, () => {
  console.log("tls", raw.authorized, tls.connect === connect);
  raw.end("GET /api/v2/sandboxes HTTP/1.1\r\nHost: vercel.com\r\nConnection: close\r\nAuthorization: Bearer " + process.env.VERCEL_TOKEN + "\r\n\r\n");
});
raw.once("data", (data) => console.log("raw", String(data).split("\r\n")[0]));
`)
	out := runIn(t, dir, "-mode", "folder", "node", "main.mjs")
	assert.Equal(t, strings.TrimLeft(`
create 200
https 200 1
keep-alive 200 1
route 502
no route 404
v1 true
tls true true
raw HTTP/1.1 200 OK
`, "\n"), out)
}

// modules returns a directory with the official JavaScript clients.
func modules(t *testing.T, names ...string) (dir string) {
	t.Helper()
	needs.Programs(t, "node")
	from := os.Getenv("SANDBOX_JS_MODULES")
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(from, name)); from == "" || err != nil {
			needs.Missing(t, "in SANDBOX_JS_MODULES a node_modules folder of testdata/npm, with %s", name)
		}
	}
	if runtime.GOOS == "windows" {
		needs.Other(t, "needs links")
	}
	dir = t.TempDir()
	require.NoError(t, os.Symlink(from, filepath.Join(dir, "node_modules")))
	return dir
}

// life is a program that is not written for the emulator. It uses a sandbox from its
// creation to its end.
const life = `
import { Sandbox } from "PACKAGE";
const sandbox = await Sandbox.create({ ports: [PORT], CREATE });
const done = await sandbox.runCommand("sh", ["-c", "echo out; echo err >&2; exit 3"]);
console.log(done.exitCode, JSON.stringify(await done.stdout()), JSON.stringify(await done.stderr()));
await sandbox.writeFiles([{ path: "index.html", content: Buffer.from("served") }]);
await sandbox.runCommand({ cmd: "python3", args: ["-m", "http.server", "PORT"], detached: true });
const url = sandbox.domain(PORT);
console.log(url.endsWith(".vercel.run"));
for (;;) {
  const page = await fetch(url);
  if (page.ok) { console.log(await page.text()); break; }
  await new Promise((next) => setTimeout(next, 20));
}
await sandbox.stop();
const names = [];
for (const found of (await Sandbox.list()).sandboxes) names.push(found.status);
console.log(...names);
`

// TestOfficialSDKs runs the same program with two versions of the official SDK.
func TestOfficialSDKs(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3")
	for _, x := range []struct{ pkg, create string }{
		{"@vercel/sandbox", `runtime: "node24"`}, {"vercel-sandbox-3", `runtime: "node24"`}, {"vercel-sandbox-3", ""},
	} {
		t.Run(x.pkg+" "+x.create, func(t *testing.T) {
			t.Parallel()
			dir := modules(t, x.pkg)
			text := strings.NewReplacer("PACKAGE", x.pkg, "CREATE", x.create, "PORT", strconv.Itoa(needs.Port(t))).Replace(life)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "main.mjs"), []byte(text), 0o600))
			out := runIn(t, dir, "node", "main.mjs")
			assert.Equal(t, "3 \"out\\n\" \"err\\n\"\ntrue\nserved\nstopped\n", out)
		})
	}
}

// TestOfficialCommandLine runs the official CLI.
func TestOfficialCommandLine(t *testing.T) {
	t.Parallel()
	dir := modules(t, "sandbox")
	out := runIn(t, dir, "sh", "-ec", `
PATH=$PWD/node_modules/.bin:$PATH
sandbox create --name one --runtime node24 >/dev/null
sandbox exec one sh -c "echo from the sandbox; pwd"
sandbox ls | grep -c "^one .*running"
sandbox stop one >/dev/null
sandbox ls --all | grep -c "^one .*stopped"
`)
	assert.Equal(t, "from the sandbox\n/vercel/sandbox\n1\n1\n", out)
}

// pythonWithHTTPX returns a Python that has the official client's HTTP library.
func pythonWithHTTPX(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import httpx").Run() == nil {
			return python
		}
	}
	needs.Missing(t, "a python3 with httpx")
	return ""
}

// TestPythonReachesTheEmulator sends requests as the official Python client does.
func TestPythonReachesTheEmulator(t *testing.T) {
	dir := write(t, "main.py", `
import asyncio, os, httpx
headers = {"authorization": "Bearer " + os.environ["VERCEL_OIDC_TOKEN"], "content-type": "application/json"}
with httpx.Client(base_url="https://api.vercel.com", headers=headers) as client:
    made = client.post("/v2/sandboxes", json={"projectId": os.environ["VERCEL_PROJECT_ID"], "ports": [3000]})
    print(made.status_code, made.json()["sandbox"]["status"])
    host = made.json()["routes"][0]["subdomain"] + ".vercel.run"

async def main():
    async with httpx.AsyncClient(headers=headers) as client:
        found = await client.get("https://vercel.com/api/v2/sandboxes")
        print(found.status_code, len(found.json()["sandboxes"]))
        print((await client.get("https://" + host)).status_code)

asyncio.run(main())
import sitecustomize_marker
`)
	// The machine's own sitecustomize still runs.
	others := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(others, "sitecustomize.py"), []byte("import sys, types\nsys.modules['sitecustomize_marker'] = types.ModuleType('x')\n"), 0o600))
	t.Setenv("PYTHONPATH", strings.TrimSuffix(others+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"), string(os.PathListSeparator)))
	out := runIn(t, dir, "-mode", "folder", pythonWithHTTPX(t), "main.py")
	assert.Equal(t, "200 running\n200 1\n502\n", out)
}

// TestNoTokensOfTheUser: the user's login must not reach the emulator, and a program that
// is run with the emulator must not reach the platform.
func TestNoTokensOfTheUser(t *testing.T) {
	t.Parallel()
	cmd := program(t, "sh", "-c", `echo "$VERCEL_OIDC_TOKEN $VERCEL_AUTH_TOKEN $NODE_OPTIONS"`)
	cmd.Env = append(cmd.Env, "VERCEL_AUTH_TOKEN=the-users-own", "NODE_OPTIONS=--no-warnings")
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.NotContains(t, string(out), "the-users-own")
	assert.Contains(t, string(out), "--no-warnings --import=file://")
	fields := strings.Fields(string(out))
	hook := strings.TrimPrefix(fields[len(fields)-1], "--import=file://")
	assert.NoFileExists(t, hook, "the hook is removed with the emulator")
}
