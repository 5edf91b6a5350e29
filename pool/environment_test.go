package pool_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/internal/test/testkit/hostile"
	"github.com/go-vercel/sandbox/pool"
)

// TestEnvironmentOfOwnPrograms: the sandbox's environment does not affect how the pool marks
// it. By default all hostile variables are set at once.
func TestEnvironmentOfOwnPrograms(t *testing.T) {
	t.Parallel()
	rows := hostile.Rows(testkit.Seed(t), needs.Slow())
	if !needs.Slow() {
		rows = rows[len(rows)-1:]
		rows[0].Bash = true
	}
	for _, row := range rows {
		srv := emulator(t)
		p := openPool(t, srv.Client(), pool.Options{
			Name: "hostile", Version: "1", Size: 1, Max: 1, Stopped: true, Create: sandbox.CreateOptions{Env: row.Env},
			Warm: func(ctx context.Context, sb *sandbox.Sandbox) error {
				if err := sb.FS().MkdirAll(ctx, hostile.Shells, 0o755); err != nil || !row.Bash {
					return err
				}
				return sb.FS().Symlink(ctx, "/bin/bash", hostile.Shells+"/sh")
			},
			Reset: func(context.Context, *sandbox.Sandbox) error { return nil },
		})
		waitReady(t, p, 1)
		box, err := p.Take(t.Context(), "")
		require.NoError(t, err, row)
		require.NoError(t, box.Return(t.Context()), row)
		waitReady(t, p, 1)
		second, err := p.Take(t.Context(), "")
		require.NoError(t, err, row)
		assert.Equal(t, box.Name(), second.Name(), row)
		require.NoError(t, second.Delete(t.Context()), row)
	}
}
