package durable_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
)

func Build(ctx workflow.Context, script string) (string, error) {
	sb, err := durable.Open(ctx, &durable.Options{})
	if err != nil {
		return "", err
	}
	defer sb.Close(ctx) // also after a cancellation
	res, err := sb.Run(ctx, "bash", []string{"-ec", script}, nil)
	if err != nil {
		return "", err
	}
	return res.Tail, res.Err()
}

// TestS3Store: the example's store passes the tests of a store.
func TestS3Store(t *testing.T) {
	t.Parallel()
	durabletest.TestStore(t, &s3Store{&memory{all: map[string][]byte{}}, "sandbox/"})
}

// TestFirstWorkflow runs the workflow of the package's documentation.
func TestFirstWorkflow(t *testing.T) {
	t.Parallel()
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "build"})
	env.ExecuteWorkflow(Build, "echo built")
	require.NoError(t, env.GetWorkflowError())
	var out string
	require.NoError(t, env.GetWorkflowResult(&out))
	assert.Equal(t, "built\n", out)
}
