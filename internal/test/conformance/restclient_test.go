package conformance

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
	"github.com/go-vercel/sandbox/sandboxtest"
)

// restOperations lists the operations of the generated client.
var restOperations = []string{
	"createSandboxesSessionsBySessionIdSnapshotV2", "createSandboxesSessionsBySessionIdSnapshotV3", "createSessionDirectory",
	"deleteDrive", "deleteSandbox", "deleteSessionSnapshot", "extendSessionTimeout", "getNamedSandbox", "getOrCreateDrive",
	"getSession", "getSessionCommand", "getSessionSnapshot", "killSessionCommand", "listDrives", "listNamedSandboxes",
	"listSessionCommands", "listSessionSnapshots", "listSessions", "readSessionFile", "stopSession", "updateSessionNetworkPolicy", "writeSessionFiles",
}

// restLacks lists the members that the schema omits, although responses of the service contain
// them, such as the sandbox in the response to a stop without a snapshot.
var restLacks = []string{"architecture", "interactivePort", "networkPolicy.injectionRules", "stopSession.sandbox"}

// TestGeneratedClientOnEmulator runs a client that was generated from the schema of the REST
// API. This client refuses responses that don't match the schema. It must accept each response
// of the emulator, and know all of its members.
func TestGeneratedClientOnEmulator(t *testing.T) {
	needs.Programs(t, "node")
	modules := os.Getenv(jsModulesEnv)
	if _, err := os.Stat(filepath.Join(modules, "@vercel", "sdk")); modules == "" || err != nil {
		needs.Missing(t, "a node_modules folder with @vercel/sdk, in %s", jsModulesEnv)
	}
	script, err := filepath.Abs("../../../testdata/restclient/life.mjs")
	require.NoError(t, err)
	srv := sandboxtest.New(t, nil)
	c := srv.Credentials()
	cmd := exec.CommandContext(t.Context(), "node", script)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "API=" + srv.URL, "MODULES=" + modules,
		"TOKEN=" + c.Token, "TEAM=" + c.TeamID, "PROJECT=" + c.ProjectID,
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	var done, unknown []string
	for line := range strings.Lines(string(out)) {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), "unknown "); ok {
			known := slices.IndexFunc(restLacks, func(name string) bool { return strings.HasSuffix("."+at, "."+name) })
			if assert.GreaterOrEqual(t, known, 0, "%s is not in the published schema", at) {
				unknown = append(unknown, restLacks[known])
			}
		} else {
			done = append(done, strings.TrimSpace(line))
		}
	}
	slices.Sort(done)
	assert.Equal(t, restOperations, slices.Compact(done))
	slices.Sort(unknown)
	assert.Equal(t, restLacks, slices.Compact(unknown), "remove members that the schema contains from restLacks")
}
