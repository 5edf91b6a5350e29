package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/wire"
)

// TestTooManyObjects: a page of empty objects, which compresses to nothing and
// takes a KiB of memory for each, is refused before it is decoded.
func TestTooManyObjects(t *testing.T) {
	t.Parallel()
	for n, refused := range map[int]bool{100: false, maxObjects - 10: false, 2_000_000: true} {
		page := `{"sandboxes":[{}` + strings.Repeat(",{}", n-1) + `],"pagination":{"next":null}}`
		c := testClient(roundTripper(func(*http.Request) (*http.Response, error) { return respond(200, page), nil }))
		var got wire.SandboxesPage
		err := c.Do(t.Context(), &Request{Op: ListSandboxes}, &got)
		if !refused {
			require.NoError(t, err)
			assert.Len(t, got.Sandboxes, n)
			continue
		}
		require.ErrorContains(t, err, "more than 100,000 objects")
		assert.Nil(t, got.Sandboxes)
	}
}
