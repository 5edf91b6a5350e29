package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestUsers(t *testing.T) {
	srv := sandboxtest.New(t, nil)
	sb, err := srv.Client().Create(t.Context(), nil)
	require.NoError(t, err)
	testkit.NeedUsers(t, sb)
	c := srv.Credentials()
	t.Setenv("VERCEL_SANDBOX_BASE_URL", srv.URL)
	t.Setenv("VERCEL_TOKEN", c.Token)
	t.Setenv("VERCEL_TEAM_ID", c.TeamID)
	t.Setenv("VERCEL_PROJECT_ID", c.ProjectID)
	require.NoError(t, run(t.Context()))
}
