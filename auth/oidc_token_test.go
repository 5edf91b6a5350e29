package auth_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
)

func TestParseClaims(t *testing.T) {
	for name, test := range map[string]struct {
		claims map[string]any
		expiry time.Time
		err    string
	}{
		"all":             {map[string]any{"owner_id": "o", "project_id": "p", "exp": 1700000000}, time.Unix(1700000000, 0), ""},
		"no expiry":       {map[string]any{"owner_id": "o", "project_id": "p"}, time.Time{}, ""},
		"null expiry":     {map[string]any{"owner_id": "o", "project_id": "p", "exp": nil}, time.Time{}, ""},
		"fractions":       {map[string]any{"owner_id": "o", "project_id": "p", "exp": 1700000000.5}, time.Unix(1700000000, 5e8), ""},
		"unicode":         {map[string]any{"owner_id": "o", "project_id": "p", "sub": "é-???>>>"}, time.Time{}, ""},
		"zero expiry":     {map[string]any{"owner_id": "o", "project_id": "p", "exp": 0}, time.Unix(1, 0), ""},
		"negative expiry": {map[string]any{"owner_id": "o", "project_id": "p", "exp": -1e300}, time.Unix(1, 0), ""},
		"far expiry":      {map[string]any{"owner_id": "o", "project_id": "p", "exp": 1e300}, time.Unix(253402300799, 0), ""},
		"text expiry":     {map[string]any{"owner_id": "o", "project_id": "p", "exp": "1700000000"}, time.Time{}, "expected claims"},
		"no team":         {map[string]any{"project_id": "p"}, time.Time{}, "owner_id is missing"},
		"empty project":   {map[string]any{"owner_id": "o", "project_id": ""}, time.Time{}, "project_id is missing"},
		"a number":        {map[string]any{"owner_id": 1, "project_id": "p"}, time.Time{}, "expected claims"},
	} {
		t.Run(name, func(t *testing.T) {
			token := oidctest.Sign(test.claims)
			claims, err := oidc.ParseClaims(token)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, oidc.Claims{TeamID: "o", ProjectID: "p", Expiry: test.expiry}, claims)
			expiry, ok := oidc.Expiry(token)
			assert.Equal(t, !test.expiry.IsZero(), ok)
			assert.Equal(t, test.expiry, expiry)
		})
	}
	padded := "h." + base64.URLEncoding.EncodeToString([]byte(`{"owner_id":"o","project_id":"pp"}`)) + ".s"
	require.Contains(t, padded, "=")
	claims, err := oidc.ParseClaims(padded)
	require.NoError(t, err)
	assert.Equal(t, "pp", claims.ProjectID)
	_, ok := oidc.Expiry("vcp_opaque")
	assert.False(t, ok)
}

func FuzzParseClaims(f *testing.F) {
	f.Add(oidctest.Sign(map[string]any{"owner_id": "o", "project_id": "p", "exp": 1e9}))
	f.Add("a.b.c")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		claims, err := oidc.ParseClaims(token)
		if err == nil {
			assert.NotEmpty(t, claims.TeamID)
			assert.NotEmpty(t, claims.ProjectID)
			return
		}
		// The texts of the errors are fixed, so they contain no part of a token.
		assert.True(t, strings.HasPrefix(err.Error(), "invalid Vercel OIDC token: "))
	})
}
