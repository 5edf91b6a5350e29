package client_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestShellingOutProblems covers the problems of Go programs that use sandboxes through a
// Node script or the command line. docs/shelling-out.md helps their authors to switch.
func TestShellingOutProblems(t *testing.T) {
	t.Parallel()
	needs.Long(t, "other tests cover each part")
	srv := newServer(t)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	// The name contains 404, the status code for a missing sandbox.
	const name = "box-a404bc"
	sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: name, Tags: map[string]string{"lease": "one"}})
	require.NoError(t, err)

	t.Run("characters split between pieces of the output stay whole", func(t *testing.T) {
		var out strings.Builder
		_, err := sb.RunCommand(t.Context(), "sh", []string{"-c", `yes € | head -c 1000000 | tr -d '\n'`}, &sandbox.CommandOptions{Stdout: &out})
		require.NoError(t, err)
		assert.Equal(t, 750_000, out.Len())
		assert.Zero(t, strings.Count(out.String(), "\uFFFD"))
		assert.Equal(t, 250_000, strings.Count(out.String(), "€"))
	})
	t.Run("output has no limit", func(t *testing.T) {
		var out strings.Builder
		_, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "head -c 9000000 /dev/zero | tr '\\0' x"}, &sandbox.CommandOptions{Stdout: &out})
		require.NoError(t, err)
		assert.Equal(t, 9_000_000, out.Len())
	})
	t.Run("a failure does not match ErrNotFound because the name contains 404", func(t *testing.T) {
		defer srv.Inject(sandboxtest.Fault{Operation: sandboxtest.DeleteSandbox, Status: http.StatusInternalServerError})()
		err := c.Delete(t.Context(), name, nil)
		require.ErrorContains(t, err, "404")
		assert.NotErrorIs(t, err, sandbox.ErrNotFound)
		assert.ErrorIs(t, err, sandbox.ErrUnavailable)
	})
	t.Run("an error is one short line", func(t *testing.T) {
		_, vcpus := c.Create(t.Context(), &sandbox.CreateOptions{VCPUs: 3})
		_, timeout := c.Create(t.Context(), &sandbox.CreateOptions{Timeout: 48 * time.Hour})
		_, missing := c.Get(t.Context(), "no-such-sandbox", nil)
		_, program := sb.RunCommand(t.Context(), "no-such-program", nil, nil)
		for want, err := range map[string]error{"VCPUs": vcpus, "Timeout": timeout, "no-such-sandbox": missing, "no-such-program": program} {
			require.ErrorContains(t, err, want)
			assert.NotContains(t, err.Error(), "\n")
			assert.Less(t, len(err.Error()), 250, "%v", err)
		}
	})
	t.Run("a changed tag is found by List", func(t *testing.T) {
		require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{Tags: map[string]string{"lease": "two"}}))
		for lease, want := range map[string]int{"one": 0, "two": 1} {
			all, err := sandbox.Collect(c.List(t.Context(), &sandbox.ListOptions{Tags: map[string]string{"lease": lease}}))
			require.NoError(t, err)
			assert.Len(t, all, want, lease)
		}
	})
	t.Run("listing takes one request and starts no sandbox", func(t *testing.T) {
		_, err := sb.Stop(t.Context(), nil)
		require.NoError(t, err)
		for i := range 4 {
			_, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: fmt.Sprint("more-", i), Tags: map[string]string{"lease": "two"}})
			require.NoError(t, err)
		}
		before := len(srv.Requests())
		all, err := sandbox.Collect(c.List(t.Context(), &sandbox.ListOptions{Tags: map[string]string{"lease": "two"}}))
		require.NoError(t, err)
		assert.Len(t, all, 5)
		assert.Len(t, srv.Requests(), before+1)
		looked, err := c.Get(t.Context(), name, &sandbox.GetOptions{NoResume: true})
		require.NoError(t, err)
		assert.Equal(t, sandbox.StatusStopped, looked.Status())
	})
	require.NoError(t, c.Delete(t.Context(), name, nil))
	err = c.Delete(t.Context(), name, nil)
	assert.ErrorIs(t, err, sandbox.ErrNotFound)
}
