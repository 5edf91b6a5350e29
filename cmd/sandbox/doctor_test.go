package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestDoctorUnusedTokens: doctor names the token that is used, and says why the others
// are not.
func TestDoctorUnusedTokens(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	c := d.server.Credentials()
	token := oidctest.Token(c.TeamID, c.ProjectID, time.Hour)
	d.write("oidc", token)
	d.write(".env", "SANDBOX_TOKEN=of-the-file\nVERCEL_OIDC_TOKEN_FILE=oidc\n")
	d.env = append(d.env, "VERCEL_AUTH_TOKEN=", "VERCEL_TOKEN=alone", "VERCEL_TEAM_ID=", "VERCEL_PROJECT_ID=", "SANDBOX_SCOPE="+c.TeamID, "SANDBOX_PROJECT="+c.ProjectID,
		"VERCEL_OIDC_TOKEN="+token)
	var findings []struct{ Check, Status, Detail string }
	got := d.run("", "--json", "doctor")
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &findings), "%s%s", got.stdout, got.stderr)
	details := map[string]string{}
	for _, f := range findings {
		details[f.Check] = f.Detail
	}
	assert.Contains(t, details["token"], "from VERCEL_OIDC_TOKEN, valid until")
	assert.Equal(t, "VERCEL_TOKEN needs VERCEL_TEAM_ID and VERCEL_PROJECT_ID, or a linked folder; "+
		"SANDBOX_TOKEN (of a .env file) comes after VERCEL_OIDC_TOKEN; "+
		"VERCEL_OIDC_TOKEN_FILE (of a .env file) is not read: a folder's files can't name a file outside of it", details["other tokens"])
}

// TestDoctorCounts: doctor looks at one page of sandboxes, and says so if there are more.
func TestDoctorCounts(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	for i := range 51 {
		if i == 50 {
			assert.Contains(t, d.ok("doctor"), "prj_emulator, 50 running")
		}
		_, err := d.server.Client().Create(t.Context(), nil)
		require.NoError(t, err)
	}
	assert.Contains(t, d.ok("doctor"), "prj_emulator, at least 50 running")
}
