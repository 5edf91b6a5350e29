package glob

import (
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Guard keeps files that act by themselves out of a folder that somebody works
// in: what a version control system runs when it is asked for the status, and what
// editors obey when they open the folder. Every way from a sandbox to the folder
// asks it.
//
// Git takes any directory that holds HEAD for a repository, and runs programs that
// its configuration names. A HEAD therefore never arrives, and nothing is written
// below a directory that has one here.
type Guard struct {
	// LeftOut, if not nil, is called once for each path that is left out. One for
	// a directory stands for all below it.
	LeftOut func(name string)

	root  *os.Root // nil if there is no such folder yet
	heads map[string]bool
	said  map[string]bool
}

// NewGuard guards a folder, which is nil if it does not exist yet.
func NewGuard(root *os.Root, leftOut func(name string)) *Guard {
	return &Guard{LeftOut: leftOut, root: root, heads: map[string]bool{}, said: map[string]bool{}}
}

// Keeps reports whether a file, or a directory, may arrive by a name, which is
// relative to the folder, with slashes and clean.
func (g *Guard) Keeps(name string, dir bool) bool {
	what := g.acts(name, dir)
	if what != "" && g.LeftOut != nil && !g.said[what] {
		g.said[what] = true
		g.LeftOut(what)
	}
	return what == ""
}

// acts returns the part of a name that must not arrive, or nothing.
func (g *Guard) acts(name string, dir bool) string {
	elems := strings.Split(name, "/")
	for i, elem := range elems {
		last := i == len(elems)-1
		if Git(elem) || repositories[plain(elem)] || obeyed[plain(elem)] || last && !dir && plain(elem) == "head" {
			return path.Join(elems[:i+1]...)
		}
	}
	for in := path.Dir(name); ; in = path.Dir(in) {
		if g.holdsHead(in) {
			return name
		}
		if in == "." || in == "/" {
			return ""
		}
	}
}

// holdsHead reports whether a directory of the folder is a repository as it is.
func (g *Guard) holdsHead(dir string) bool {
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

// repositories are the names by which version control systems other than Git find
// a repository. Each of them runs programs that the repository itself names, as soon
// as somebody, or a shell's prompt, asks for the status:
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
// Subversion is not among them: it takes hooks and tunnels from the user's own
// configuration only.
var repositories = map[string]bool{
	".hg": true, ".sl": true, ".jj": true, ".bzr": true, ".fslckout": true, "_fossil_": true, ".fos": true, "_darcs": true,
	".pijul": true, "_mtn": true, ".p4config": true,
}

// obeyed are the names of files that editors, agents, shells and Git's hooks run or
// obey in a folder that the user has trusted before. Files about which their tool
// asks again after a change, such as .envrc and .devcontainer, are not among them.
var obeyed = map[string]bool{
	".vscode": true, ".idea": true, ".zed": true, ".fleet": true, ".helix": true, ".vim": true, ".nova": true,
	".exrc": true, ".vimrc": true, ".nvimrc": true, ".lvimrc": true, ".nvim.lua": true, ".dir-locals.el": true, ".dir-locals-2.el": true,
	".claude": true, ".cursor": true, ".windsurf": true, ".gemini": true, ".codex": true, ".kiro": true,
	".opencode": true, "opencode.json": true, "opencode.jsonc": true,
	".vs": true, ".factory": true, "crush.json": true, ".crush.json": true,
	".irbrc": true, ".pryrc": true, ".pdbrc": true, ".husky": true, ".mise": true, ".mise.toml": true, "mise.toml": true,
}

// plain returns the name that some file system takes an element of a path for, in
// lower case.
func plain(elem string) string {
	elem, _, _ = strings.Cut(elem, ":")
	return strings.ToLower(strings.TrimRight(strings.Map(visible, elem), ". "))
}
