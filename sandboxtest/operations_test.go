package sandboxtest

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestConfirmedChangesAreSaved: an operation that changes something saves it before its
// response, unless it works inside a running session, which a crash ends.
func TestConfirmedChangesAreSaved(t *testing.T) {
	t.Parallel()
	inside := regexp.MustCompile(`^/sessions/\*/(cmd|fs|interactive)(/|$)`)
	for _, e := range endpoints {
		changes := e.method != http.MethodGet || e.op == GetSandbox // which may resume it
		assert.Equal(t, changes && !inside.MatchString(e.path), e.effect == saved, e.op)
	}
}
