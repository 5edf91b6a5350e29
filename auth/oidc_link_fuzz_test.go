package auth_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
)

// FuzzLink: an untrusted file of a linked project either gives IDs that can't change a request's
// route, or an error that is safe to print.
func FuzzLink(f *testing.F) {
	for _, seed := range []string{
		`{"projectId":"prj_1","orgId":"team_1"}`, `{"projectId":"..","orgId":""}`, `{"projectId":"a/b"}`, `{"projectId":"\u001b]0;x\u0007"}`, `{"projectId":"a%2fb"}`,
		`{"projectId":["x"]}`, `{"projectId":null}`, `[]`, `null`, "", "{", `{"projectId":"a","projectId":"b\u202e"}`,
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	file := filepath.Join(dir, ".vercel", "project.json")
	require.NoError(f, os.Mkdir(filepath.Dir(file), 0o700))
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(file, data, 0o600))
		scope, err := (&oidc.Host{Dir: dir}).Link()
		if err != nil {
			assert.False(t, errors.Is(err, oidc.ErrNotLinked))
			assert.Equal(t, redact.Printable(err.Error()), err.Error())
			assert.Empty(t, scope)
			return
		}
		for _, id := range []string{scope.ProjectID, scope.TeamID} {
			assert.NotContains(t, id, "/")
			assert.NotContains(t, []string{".", ".."}, id)
			assert.Equal(t, redact.Printable(id), id)
			assert.LessOrEqual(t, len(id), 200)
		}
	})
}
