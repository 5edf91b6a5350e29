package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestQuickstart(t *testing.T) {
	srv := sandboxtest.New(t, nil)
	c := srv.Credentials()
	t.Setenv("VERCEL_SANDBOX_BASE_URL", srv.URL)
	t.Setenv("VERCEL_TOKEN", c.Token)
	t.Setenv("VERCEL_AUTH_TOKEN", "") // whatever this machine has
	t.Setenv("VERCEL_TEAM_ID", c.TeamID)
	t.Setenv("VERCEL_PROJECT_ID", c.ProjectID)
	require.NoError(t, run(t.Context()))

	var ops []sandboxtest.Operation
	for _, r := range srv.Requests() {
		// How often the stop has to look depends on how long the server takes.
		looks := r.Operation == sandboxtest.GetSnapshot || r.Operation == sandboxtest.GetSandbox && r.Query.Get("resume") == "false"
		if !looks {
			ops = append(ops, r.Operation)
		}
	}
	assert.Equal(t, []sandboxtest.Operation{
		sandboxtest.GetSandbox, sandboxtest.CreateSandbox, sandboxtest.WriteFiles, sandboxtest.RunCommand,
		sandboxtest.StopSession, sandboxtest.GetSandbox, sandboxtest.RunCommand, sandboxtest.DeleteSandbox,
	}, ops)
}
