//go:build unix

package auth_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestLinksOfOthers: another user has created a symbolic link to a project in a shared folder such as
// /tmp.
func TestLinksOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		needs.Missing(t, "root, to give files to another user")
	}
	const nobody = 65534
	none := func(string) string { return "" }
	shared := t.TempDir()
	require.NoError(t, os.Chmod(shared, 0o777|os.ModeSticky))
	work := filepath.Join(shared, "me", "build")
	require.NoError(t, os.MkdirAll(work, 0o755))
	link := filepath.Join(shared, ".vercel")
	require.NoError(t, os.Mkdir(link, 0o755))
	file := filepath.Join(link, "project.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"projectId":"prj_x","orgId":"team_x"}`), 0o644))
	h := oidc.NewHost(nil, none, work)

	scope, err := h.Link()
	require.NoError(t, err, "this user owns the project")
	assert.Equal(t, "prj_x", scope.ProjectID)

	require.NoError(t, os.Chown(file, nobody, nobody))
	_, err = h.Link()
	assert.ErrorIs(t, err, oidc.ErrNotLinked, "another user owns the file")
	assert.ErrorContains(t, err, file)

	require.NoError(t, os.Chown(file, 0, 0))
	require.NoError(t, os.Chown(link, nobody, nobody))
	_, err = h.Link()
	assert.ErrorIs(t, err, oidc.ErrNotLinked, "another user owns the folder and can replace the file")

	// Another user's symbolic links to this user's folder and file are refused.
	require.NoError(t, os.Chown(link, 0, 0))
	mine := filepath.Join(t.TempDir(), ".vercel")
	require.NoError(t, os.Rename(link, mine))
	require.NoError(t, os.Symlink(mine, link))
	_, err = h.Link()
	require.NoError(t, err, "this user owns the link")
	require.NoError(t, os.Lchown(link, nobody, nobody))
	_, err = h.Link()
	assert.ErrorIs(t, err, oidc.ErrNotLinked, "another user owns the link to the folder")
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Mkdir(link, 0o755))
	require.NoError(t, os.Symlink(filepath.Join(mine, "project.json"), file))
	require.NoError(t, os.Lchown(file, nobody, nobody))
	_, err = h.Link()
	assert.ErrorIs(t, err, oidc.ErrNotLinked, "another user owns the link to the file")
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Rename(filepath.Join(mine, "project.json"), file))

	// Another user's folder is trusted if it is the working directory.
	require.NoError(t, os.Chown(file, nobody, nobody))
	require.NoError(t, os.Chown(work, nobody, nobody))
	_, err = h.Link()
	assert.NoError(t, err)
}

// TestPipeInsteadOfFile: a named pipe without a writer does not block.
func TestPipeInsteadOfFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".vercel"), 0o755))
	file := filepath.Join(dir, ".vercel", "project.json")
	require.NoError(t, syscall.Mkfifo(file, 0o644))
	_, err := oidc.NewHost(nil, func(string) string { return "" }, dir).Link()
	assert.ErrorContains(t, err, file+" is not a regular file")
}
