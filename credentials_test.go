package sandbox_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestCredentialsAreCreateOnly: who can't say whether a sandbox has them does
// not promise them, and asks for nothing.
func TestCredentialsAreCreateOnly(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c, opts := srv.Client(), &sandbox.CreateOptions{Credentials: &sandbox.Credentials{NPM: true}}
	_, err := c.Fork(t.Context(), "source", opts)
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
	_, err = c.GetOrCreate(t.Context(), "box", opts)
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
	_, err = c.Create(t.Context(), &sandbox.CreateOptions{Credentials: &sandbox.Credentials{Other: map[string]any{"x": func() {}}}})
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.Empty(t, srv.Requests())
	assert.NotContains(t, fmt.Sprintf("%v %+v", *opts.Credentials, sandbox.Credentials{Other: map[string]any{"x": "hush"}}), "hush")
}
