package units_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/filefilter"
)

// TestSpellingsOfGit tests all spellings that are the same name as ".git" on some file system.
func TestSpellingsOfGit(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		".git": true, "lib/.git/hooks/post-checkout": true, "a/b/.GIT/config": true, "GIT~1/hooks/x": true, "x/.git./config": true, ".git . ./x": true,
		".g\u200cit/hooks": true, "\ufeff.git/x": true, ".git::$INDEX_ALLOCATION/config": true, `a\.git\hooks`: true, "sub/.git": true,
		".github/workflows/x": false, ".gitignore": false, "git": false, "x.git": false, ".git2/x": false, "git~10": false,
	} {
		assert.Equal(t, want, filefilter.Git(path), "%q", path)
	}
}

func TestWorkTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "tree", "sub", "deep"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tree", ".git"), []byte("gitdir: elsewhere\n"), 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "apart"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(dir, "tree", "sub"), filepath.Join(dir, "link")))
	for _, name := range []string{"hg/.hg", "jj/.jj", "fossil/_FOSSIL_"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	for name, want := range map[string]bool{"hg": true, "jj": true, "fossil": true, "tree": true, "tree/sub/deep": true, "link": true, "link/deep": true, "apart": false} {
		got, err := filefilter.WorkTree(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, want, got, name)
	}
}
