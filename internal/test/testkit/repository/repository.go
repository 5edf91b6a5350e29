// Package repository has folders that Git considers repositories. Tests copy them from a
// sandbox and check that Git runs none of their programs.
package repository

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// Kind is a folder of a sandbox that makes git status run a program of the sandbox.
type Kind struct {
	Name string
	// Files maps the paths of the sandbox's files to their contents. A content that begins
	// with Link is the target of a symbolic link.
	Files map[string]string
	// Here contains the files that the local folder has before the copy.
	Here map[string]string
	// In is the directory in which Status runs git status.
	In string
	// Ran is the path of the file that the sandbox's program creates.
	Ran string
}

// Link is the beginning of the content of a file that is a symbolic link.
const Link = "-> "

// Kinds returns all kinds. Their programs create files in a temporary folder. Kinds skips the
// test if git is missing.
func Kinds(t *testing.T) []Kind {
	t.Helper()
	needs.Programs(t, "git")
	ran := filepath.Join(t.TempDir(), "ran")
	config := "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = \"touch '" + ran + "'; false\"\n"
	const head, bare = "ref: refs/heads/main\n", "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
	files := func(in string, more map[string]string) map[string]string {
		all := map[string]string{in + "config": config, in + "objects/keep": "", in + "refs/keep": "", in + "code.c": "code\n"}
		for name, text := range more {
			all[in+name] = text
		}
		return all
	}
	list := []Kind{
		{Name: "bare", Files: files("lib/", map[string]string{"HEAD": head}), In: "lib"},
		{Name: "detached", Files: files("lib/", map[string]string{"HEAD": strings.Repeat("0", 40) + "\n"}), In: "lib"},
		{Name: "a link to a branch", Files: files("lib/", map[string]string{"HEAD": Link + "refs/heads/main"}), In: "lib"},
		{
			Name: "one that is here", Files: map[string]string{"fixture/config": config}, In: "fixture",
			Here: map[string]string{"fixture/HEAD": head, "fixture/config": bare, "fixture/objects/keep": "", "fixture/refs/keep": ""},
		},
		{Name: "nested", Files: files("lib/.git/", map[string]string{"HEAD": head}), In: "lib"},
		{Name: "elsewhere", Files: files("store/", map[string]string{"../lib/.git": "gitdir: ../store\n", "HEAD": head}), In: "lib"},
	}
	for i := range list {
		list[i].Ran = ran
		for name, text := range list[i].Files { // remove ".." from the paths
			if clean := filepath.ToSlash(filepath.Clean(name)); clean != name {
				delete(list[i].Files, name)
				list[i].Files[clean] = text
			}
		}
	}
	return list
}

// Folder creates the local folder, which is a working tree of Git.
func (r *Kind) Folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("git", "-C", dir, "init", "-q").CombinedOutput()
	require.NoError(t, err, "%s", out)
	WriteTree(t, dir, r.Here)
	return dir
}

// Status runs git status, and reports whether it has run the sandbox's program.
func (r *Kind) Status(t *testing.T, folder string) bool {
	t.Helper()
	in := filepath.Join(folder, r.In)
	require.NoError(t, os.MkdirAll(in, 0o755))
	cmd := exec.Command("git", "status")
	cmd.Dir = in
	_ = cmd.Run() // fails if there is no repository
	err := os.Remove(r.Ran)
	return err == nil
}

// WriteTree writes files and links.
func WriteTree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		if target, link := strings.CutPrefix(text, Link); link {
			require.NoError(t, os.Symlink(target, name))
			continue
		}
		assert.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
}
