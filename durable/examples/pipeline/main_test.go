package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox/durable/durabletest"
)

func TestPipeline(t *testing.T) {
	for name, c := range map[string]struct {
		steps    []Step
		artifact string
		err      string
	}{
		"success": {steps, "500500\n", ""},
		"failure": {[]Step{{"one", "true"}, {"two", "exit 3"}, {"three", "echo never"}}, "", "step two: durable: the command ended with exit code 3"},
	} {
		t.Run(name, func(t *testing.T) {
			env := durabletest.New(t, nil)
			env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "pipeline-1"})
			env.RegisterWorkflow(Pipeline)
			env.ExecuteWorkflow(Pipeline, c.steps)
			if c.err != "" {
				require.ErrorContains(t, env.GetWorkflowError(), c.err)
			} else {
				var artifact string
				require.NoError(t, env.GetWorkflowResult(&artifact))
				assert.Equal(t, c.artifact, artifact)
			}
			for range env.Server.Client().List(t.Context(), nil) {
				assert.Fail(t, "the sandbox is left")
			}
		})
	}
}

// TestWithoutServer: without a Temporal server, the error says how to get one.
func TestWithoutServer(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "127.0.0.1:1") // never reached: the context has ended
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorContains(t, run(ctx), "temporal server start-dev")
}
