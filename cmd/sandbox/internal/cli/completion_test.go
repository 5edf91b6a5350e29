package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCompletionsWithoutTheAPI: no names are offered without an API, or if it can't be
// used.
func TestCompletionsWithoutTheAPI(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_DATA_HOME", "")
	for _, address := range []string{"ftp://127.0.0.1:1", "http://127.0.0.1:1/api"} {
		t.Setenv("VERCEL_SANDBOX_BASE_URL", address)
		assert.Empty(t, newApp(nil).sandboxNames(t.Context(), ""), address)
	}
}
