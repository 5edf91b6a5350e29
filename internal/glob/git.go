package glob

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Git reports whether a path leads into what Git runs programs from, on any file
// system: some ignore case, points and spaces at the end, or characters that
// can't be seen, have short names, or take what follows a colon for a part of the
// file.
func Git(name string) bool {
	for elem := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '/' || r == '\\' }) {
		if elem = plain(elem); elem == ".git" || elem == "git~1" {
			return true
		}
	}
	return false
}

// visible drops the characters that HFS+ ignores.
func visible(r rune) rune {
	switch {
	case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		return -1
	}
	return r
}

// WorkTree reports whether a local directory is in a working tree: whether it, or
// a directory above it, holds ".git" or the repository of another version control
// system.
func WorkTree(dir string) (bool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	// The directories above are those of where links lead to.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for {
		for _, name := range append(slices.Collect(maps.Keys(repositories)), ".git", "_FOSSIL_", "_MTN") {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				return true, nil
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return false, nil
		}
		dir = up
	}
}
