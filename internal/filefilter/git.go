package filefilter

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Git reports whether a path leads into a .git directory, from which Git runs programs, on any
// file system. Some file systems ignore case, trailing dots and spaces, or invisible
// characters, have short names, or treat the text after a colon as a stream of the file.
func Git(name string) bool {
	for elem := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '/' || r == '\\' }) {
		if elem = normalize(elem); elem == ".git" || elem == "git~1" {
			return true
		}
	}
	return false
}

// dropInvisible drops the characters that HFS+ ignores.
func dropInvisible(r rune) rune {
	switch {
	case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		return -1
	}
	return r
}

// WorkTree reports whether a local directory is in a working tree: whether it or a parent
// contains ".git" or the repository of another version control system.
func WorkTree(dir string) (bool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	// The parents are those of the link's target.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for {
		for _, name := range append(slices.Collect(maps.Keys(repositories)), ".git", "_FOSSIL_", "_MTN") {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				return true, nil
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return false, nil
		}
		dir = parent
	}
}
