package units_test

import (
	"os"
	"path"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/filefilter"
	"github.com/go-vercel/sandbox/internal/test/testkit/repository"
)

// TestGuardAgainstRepositories writes each kind of repository, with and without the Guard,
// and runs git status. Without the Guard, Git runs a program of the repository.
func TestGuardAgainstRepositories(t *testing.T) {
	for _, r := range repository.Kinds(t) {
		t.Run(r.Name, func(t *testing.T) {
			plain := r.Folder(t)
			repository.WriteTree(t, plain, r.Files)
			require.True(t, r.Status(t, plain), "without the Guard, git status must run the repository's program")

			guarded := r.Folder(t)
			root, err := os.OpenRoot(guarded)
			require.NoError(t, err)
			defer root.Close()
			var leftOut []string
			guard := filefilter.NewGuard(root, func(name string) { leftOut = append(leftOut, name) })
			kept := map[string]string{}
			for name, text := range r.Files {
				if guard.Keeps(name, false) {
					kept[name] = text
				}
			}
			repository.WriteTree(t, guarded, kept)
			assert.False(t, r.Status(t, guarded))
			assert.NotEmpty(t, leftOut)
		})
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	repository.WriteTree(t, dir, map[string]string{"repo/HEAD": "", "repo/hooks/x": "", "dir/HEAD/x": ""})
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	for _, c := range []struct {
		name    string
		dir     bool
		leftOut string // the path that the Guard reports; empty if it keeps the file
	}{
		{"a/HEAD", false, "a/HEAD"},
		{"head", false, "head"},
		{"a/HEAD.", false, "a/HEAD."},
		{"a/H\u200cEAD", false, "a/H\u200cEAD"},
		{"HEAD::$DATA", false, "HEAD::$DATA"},
		{"HEAD", true, ""},
		{"components/head/index.tsx", false, ""},
		{"HEADER", false, ""},
		{"head.js", false, ""},
		{"repo/config", false, "repo/config"},
		{"repo/hooks/post-checkout", false, "repo/hooks/post-checkout"},
		{"dir/x", false, ""},
		{"a/.git/hooks/x", false, "a/.git"},
		{".GIT", true, ".GIT"},
		{".gitignore", false, ""},
		{".github/workflows/x.yml", false, ""},
		{".vscode/tasks.json", false, ".vscode"},
		{"a/.IDEA/workspace.xml", false, "a/.IDEA"},
		{".exrc", false, ".exrc"},
		{"a/.dir-locals.el", false, "a/.dir-locals.el"},
		{"a/.husky/_/pre-commit", false, "a/.husky"},
		{".opencode/plugin/x.ts", false, ".opencode"},
		{"a/OpenCode.json", false, "a/OpenCode.json"},
		{".kiro/hooks/x", false, ".kiro"},
		{".irbrc", false, ".irbrc"},
		{".claude/settings.json", false, ".claude"},
		{".vim/coc-settings.json", false, ".vim"},
		{"Mise.toml", false, "Mise.toml"},
		{"mise.toml.md", false, ""},
		{"lib/.hg/hgrc", false, "lib/.hg"},
		{".HG/hgrc", false, ".HG"},
		{".hg\u200c/hgrc", false, ".hg\u200c"},
		{".sl/config", false, ".sl"},
		{".jj/repo/config.toml", false, ".jj"},
		{".bzr/branch/branch.conf", false, ".bzr"},
		{"a/.fslckout", false, "a/.fslckout"},
		{"_FOSSIL_", false, "_FOSSIL_"},
		{"_darcs/prefs/defaults", false, "_darcs"},
		{".pijul/config", false, ".pijul"},
		{"_MTN/monotonerc", false, "_MTN"},
		{".p4config", false, ".p4config"},
		{".vs/p/v17/.suo", false, ".vs"},
		{"crush.json", false, "crush.json"},
		{".pdbrc", false, ".pdbrc"},
		{".svn/wc.db", false, ""},
		{".hgignore", false, ""},
		{".hgtags", false, ""},
		{".envrc", false, ""},
		{".env", false, ""},
	} {
		said := ""
		guard := filefilter.NewGuard(root, func(name string) { said = name })
		assert.Equal(t, c.leftOut == "", guard.Keeps(c.name, c.dir), "%q", c.name)
		assert.Equal(t, c.leftOut, said, "%q", c.name)
		assert.Equal(t, c.leftOut == "", filefilter.NewGuard(nil, nil).Keeps(c.name, c.dir) && path.Dir(c.name) != "repo" && path.Dir(c.name) != "repo/hooks", "%q without a folder", c.name)
	}
	once := 0
	guard := filefilter.NewGuard(root, func(string) { once++ })
	for _, name := range []string{".vscode/a", ".vscode/b", ".vscode"} {
		assert.False(t, guard.Keeps(name, name == ".vscode"))
	}
	assert.Equal(t, 1, once)
}
