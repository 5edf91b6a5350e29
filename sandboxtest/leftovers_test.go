package sandboxtest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// recorder is a test that only records its failures.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// TestCheckClosed: CheckClosed names running sandboxes, and no stopped or deleted ones.
func TestCheckClosed(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	made := map[string]*sandbox.Sandbox{}
	for _, name := range []string{"b", "a", "stopped", "deleted"} {
		sb, err := srv.Client().Create(t.Context(), &sandbox.CreateOptions{Name: name})
		require.NoError(t, err)
		made[name] = sb
	}
	_, err := made["stopped"].Stop(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, made["deleted"].Delete(t.Context(), nil))
	noted := &recorder{TB: t}
	srv.CheckClosed(noted)
	assert.Equal(t, []string{`the sandbox "a" still runs`, `the sandbox "b" still runs`}, noted.failures)
	require.NoError(t, made["a"].Close())
	require.NoError(t, made["b"].Delete(t.Context(), nil))
	srv.CheckClosed(t)
}
