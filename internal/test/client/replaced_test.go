package client_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestReplacedIsSpared: another client has deleted a handle's sandbox and created a new one
// with the same name. Delete and Update of the handle fail, and don't affect the new one.
func TestReplacedIsSpared(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(context.Context, *sandbox.Sandbox) error{
		"Delete": func(ctx context.Context, sb *sandbox.Sandbox) error { return sb.Delete(ctx, nil) },
		"Update": func(ctx context.Context, sb *sandbox.Sandbox) error {
			return sb.Update(ctx, &sandbox.UpdateOptions{Tags: map[string]string{"by": "the old handle"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			srv, old := start(t, nil)
			client := testkit.Client(t, srv, sandbox.ClientOptions{})
			require.NoError(t, client.Delete(ctx, old.Name(), nil))
			theirs, err := client.Create(ctx, &sandbox.CreateOptions{Name: old.Name(), Tags: map[string]string{"by": "somebody else"}})
			require.NoError(t, err)

			require.ErrorIs(t, act(ctx, old), sandbox.ErrDeleted)
			require.NoError(t, theirs.Refresh(ctx))
			assert.Equal(t, "somebody else", theirs.Info().Tags["by"])
		})
	}
}
