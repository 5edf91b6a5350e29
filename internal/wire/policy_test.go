package wire

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUsualPolicies: policies for which the strict decoder is skipped have the same result.
func TestUsualPolicies(t *testing.T) {
	for _, text := range []string{`{"mode":"allow-all"}`, `{"mode":"deny-all"}`} {
		usual := NetworkPolicy{Mode: "before", AllowedCIDRs: []string{"before"}, Incomplete: true}
		var strict NetworkPolicy
		require.NoError(t, json.Unmarshal([]byte(text), &usual))
		require.NoError(t, json.Unmarshal([]byte(" "+text[:len(text)-1]+" }"), &strict))
		assert.Equal(t, strict, usual)
		assert.NotEmpty(t, usual.Mode)
	}
}
