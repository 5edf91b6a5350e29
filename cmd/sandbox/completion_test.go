package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestCompletion completes lines with options in every place, and values of
// options.
func TestCompletion(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.ok("create", "--name", "box-1")
	d.ok("exec", "box-1", "--", "sh", "-c", `mkdir f && touch f/plain "f/$(printf '\033]0;x')" f/a:b`)
	d.ok("drives", "get-or-create", "disk")
	d.ok("create", "--name", "off", "-p", "3000")
	d.ok("stop", "off")
	snapshot := strings.TrimSpace(d.ok("snapshots", "ls", "--name", "off", "-q"))
	ended := strings.TrimSpace(d.ok("exec", "-d", "box-1", "--", "true"))
	d.ok("wait", "box-1", ended)
	runs := strings.TrimSpace(d.ok("exec", "-d", "box-1", "--", "sleep", "1000"))
	for line, want := range map[string]string{
		"":                                  "list",
		"config region box-1 ":              "kix1",
		"config failover-regions box-1 ":    "kix1",
		"config vcpus box-1 ":               "8",
		"config timeout box-1 ":             "30m",
		"config snapshot-expiration box-1 ": "none",
		"config current-snapshot off ":      snapshot,
		"snapshots get ":                    snapshot,
		"ls --scope=e":                      "emulator",
		"kill box-1 ":                       runs,
		"logs box-1 ":                       ended,
		"url off ":                          "3000",
		"start ":                            "off",
		"stop ":                             "box-1",
		"create --mount ":                   "disk:/",
		"help config ":                      "vcpus",
		"exec ":                             "box-1",
		"create --name x --re":              "--region",
		"create --name x -e A=1 -":          "--env",
		"--json inspect ":                   "box-1",
		"ls -a --stat":                      "--status",
		"exec --sudo ":                      "box-1",
		"exec box-1 --su":                   "--sudo",
		"rm -y ":                            "box-1",
		"--scope team_emulator exec ":       "box-1",
		"--project prj_emulator -q stop ":   "box-1",
		"ls --sort-by ":                     "statusUpdatedAt",
		"ls --status ":                      "stopped",
		"ls --json --status ":               "stopped",
		"create --region ":                  "iad1",
		"create --runtime n":                "node24",
		"create --network-policy ":          "deny-all",
		"config network-policy box-1 --mo":  "--mode",
		"create --delete-evicted-snapshots": "--delete-evicted-snapshots",
		"--color ":                          "never",
		"run --name ":                       "box-1",
		"config persistent ":                "box-1",
		"config persistent box-1 ":          "true",
		"drives delete ":                    "disk",
		"logs --stream ":                    "stderr",
		"completion ":                       "fish",
		"cp -r b":                           "box-1:",
		"cp box-1:f/":                       "box-1:f/a:b",
		"kill -s ":                          "KILL",
		"cat ":                              "box-1",
		"read box-1 f/":                     "f/a:b",
		"write box-1 f/p":                   "f/plain",
		"create --credentials ":             "npm",
		"create ":                           "fx",
		"exec box-1 -- ":                    "sh",
		"exec box-1 ":                       "sh",
		"exec -i box-1 -- /u":               "/usr/",
		"exec box-1 ls -l f/":               "f/plain",
		"exec -w f box-1 cat ":              "plain",
	} {
		words := strings.Split(line, " ")
		var got []string
		for range 5 { // on a busy machine the API may take longer than a shell waits
			if got = strings.Split(d.ok(append([]string{"__completeNoDesc"}, words...)...), "\n"); slices.Contains(got, want) {
				break
			}
		}
		assert.Contains(t, got, want, "%q", line)
	}
	for _, line := range []string{"exec box-1 -- --su", "exec box-1 ls --su", "run -- --na", "create --timeout ", "create --name ", "ls --limit "} {
		got := d.ok(append([]string{"__completeNoDesc"}, strings.Split(line, " ")...)...)
		assert.Regexp(t, `^:4\n`, got, "%q offers neither options nor files", line)
	}
	// Nor what does not fit the place, or is there already.
	for line, not := range map[string]string{
		"kill box-1 ": ended, "start ": "box-1", "stop ": "off", "rm off ": "off", "snapshots rm " + snapshot + " ": snapshot,
		"config vcpus box-1 2 ": "8", "config timeout box-1 ": "none", "config list box-1 ": "box-1",
	} {
		got := d.ok(append([]string{"__completeNoDesc"}, strings.Split(line, " ")...)...)
		assert.NotContains(t, strings.Split(got, "\n"), not, "%q", line)
	}
	// A name that acts on terminals, and ends a fish, is not offered.
	got := d.ok("__completeNoDesc", "cp", "box-1:f/")
	assert.Contains(t, got, "box-1:f/plain\n")
	assert.NotContains(t, got, "]0;x")
}

// TestBashAlone completes in a bash that has nothing but the script.
func TestBashAlone(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "bash")
	d := newDesk(t, nil)
	d.ok("create", "--name", "box-1", "--tag", "k=v")
	d.ok("exec", "box-1", "--", "mkdir", "-p", "/tmp/some")
	d.write("complete.bash", d.ok("completion", "bash"))
	require.NoError(t, os.Symlink(os.Args[0], filepath.Join(d.dir, "sandbox")))
	for line, want := range map[string]string{
		"sandbox exec b":                       "box-1",
		"sandbox cp box-1:/tmp/so":             "/tmp/some/",
		"sandbox ls --tag k=v --sort-by statu": "statusUpdatedAt",
		"sandbox ls --tag=k=v --sort":          "--sort",
	} {
		cmd := exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile", "-c", `
source ./complete.bash
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
set -f
text=${1//:/ : }; text=${text//=/ = }
COMP_WORDS=($text); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
__start_sandbox
printf '%s\n' "${COMPREPLY[@]}"`, "bash", line)
		cmd.Dir, cmd.Env = d.dir, slices.Concat(d.env, []string{"PATH=" + d.dir + ":" + os.Getenv("PATH")})
		got := finish(t, cmd)
		assert.Contains(t, got.stdout, want, "%s: %s", line, got.stderr)
		assert.NotContains(t, got.stderr, "not found", line)
	}
}
