package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCompletionsWithoutTheAPI: no name is offered when there is no API, or none that
// can be asked.
func TestCompletionsWithoutTheAPI(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_DATA_HOME", "")
	for _, address := range []string{"ftp://127.0.0.1:1", "http://127.0.0.1:1/api"} {
		t.Setenv("VERCEL_SANDBOX_BASE_URL", address)
		assert.Empty(t, newApp(nil).sandboxNames(t.Context(), ""), address)
	}
}
