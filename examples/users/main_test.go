package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestUsers(t *testing.T) {
	srv := sandboxtest.New(t, nil)
	c := srv.Credentials()
	t.Setenv("VERCEL_SANDBOX_BASE_URL", srv.URL)
	t.Setenv("VERCEL_TOKEN", c.Token)
	t.Setenv("VERCEL_TEAM_ID", c.TeamID)
	t.Setenv("VERCEL_PROJECT_ID", c.ProjectID)
	err := run(t.Context())
	if !srv.Enforces().Users {
		require.ErrorContains(t, err, "one user only")
		return
	}
	require.NoError(t, err)
}
