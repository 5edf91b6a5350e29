package filefilter

import (
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Guard keeps files out of a local folder that tools execute or obey without being asked:
// programs that a version control system runs for a status, and settings that editors read when
// they open the folder. Every transfer from a sandbox to the folder uses it.
//
// Git treats any directory with a HEAD as a repository and runs programs that its configuration
// names. The Guard therefore refuses every HEAD, and every file below a directory that already
// has one.
type Guard struct {
	// LeftOut, if not nil, is called once for each refused path. A refused directory stands
	// for everything below it.
	LeftOut func(name string)

	root     *os.Root // nil if the folder does not exist yet
	heads    map[string]bool
	reported map[string]bool
}

// NewGuard returns a Guard for a folder. root is nil if the folder does not exist yet.
func NewGuard(root *os.Root, leftOut func(name string)) *Guard {
	return &Guard{LeftOut: leftOut, root: root, heads: map[string]bool{}, reported: map[string]bool{}}
}

// Keeps reports whether a file or directory may be written. name is clean, slash-separated and
// relative to the folder.
func (g *Guard) Keeps(name string, dir bool) bool {
	refused := g.refusedPart(name, dir)
	if refused != "" && g.LeftOut != nil && !g.reported[refused] {
		g.reported[refused] = true
		g.LeftOut(refused)
	}
	return refused == ""
}

// refusedPart returns the path to refuse, which is name or a parent of it. It returns ""
// if name may be written.
func (g *Guard) refusedPart(name string, dir bool) string {
	elems := strings.Split(name, "/")
	for i, elem := range elems {
		last := i == len(elems)-1
		if Git(elem) || repositories[normalize(elem)] || obeyedFiles[normalize(elem)] || last && !dir && normalize(elem) == "head" {
			return path.Join(elems[:i+1]...)
		}
	}
	for parent := path.Dir(name); ; parent = path.Dir(parent) {
		if g.hasHead(parent) {
			return name
		}
		if parent == "." || parent == "/" {
			return ""
		}
	}
}

// hasHead reports whether a directory in the folder already contains a HEAD.
func (g *Guard) hasHead(dir string) bool {
	if g.root == nil {
		return false
	}
	held, known := g.heads[dir]
	if !known {
		info, err := g.root.Lstat(filepath.Join(filepath.FromSlash(dir), "HEAD"))
		held = err == nil && !info.IsDir()
		g.heads[dir] = held
	}
	return held
}

// repositories are the names that version control systems other than Git use for a
// repository. Each of them runs programs that the repository names when a user, or a
// shell's prompt, requests the status:
//
//   - Mercurial and Sapling: hooks, aliases and extensions in .hg/hgrc and .sl/config
//   - Jujutsu: a pager, a diff tool and fsmonitor in .jj/repo/config.toml
//   - Bazaar and Breezy: hooks in .bzr/branch/branch.conf
//   - Fossil: commands in the settings of the checkout's database
//   - Darcs: posthook in _darcs/prefs/defaults
//   - Pijul: hooks in .pijul/config
//   - Monotone: Lua in _MTN/monotonerc
//   - Perforce: an address of the form rsh:COMMAND in .p4config
//
// Subversion is not in the list: it reads hooks and tunnels only from the user's configuration.
var repositories = map[string]bool{
	".hg": true, ".sl": true, ".jj": true, ".bzr": true, ".fslckout": true, "_fossil_": true, ".fos": true, "_darcs": true,
	".pijul": true, "_mtn": true, ".p4config": true,
}

// obeyedFiles are the names of files that editors, agents, shells and Git's hooks execute
// or obey in a folder that the user has trusted before. It does not contain files such as
// .envrc and .devcontainer, because their tools ask the user again after a change.
var obeyedFiles = map[string]bool{
	".vscode": true, ".idea": true, ".zed": true, ".fleet": true, ".helix": true, ".vim": true, ".nova": true,
	".exrc": true, ".vimrc": true, ".nvimrc": true, ".lvimrc": true, ".nvim.lua": true, ".dir-locals.el": true, ".dir-locals-2.el": true,
	".claude": true, ".cursor": true, ".windsurf": true, ".gemini": true, ".codex": true, ".kiro": true,
	".opencode": true, "opencode.json": true, "opencode.jsonc": true,
	".vs": true, ".factory": true, "crush.json": true, ".crush.json": true,
	".irbrc": true, ".pryrc": true, ".pdbrc": true, ".husky": true, ".mise": true, ".mise.toml": true, "mise.toml": true,
}

// normalize returns the lower-case name that a file system may use for a path element.
func normalize(elem string) string {
	elem, _, _ = strings.Cut(elem, ":")
	return strings.ToLower(strings.TrimRight(strings.Map(dropInvisible, elem), ". "))
}
