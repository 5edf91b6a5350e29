// Package mirror compares two trees of files and says what makes one like the
// other.
package mirror

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/patternmatcher"
)

// Entry is a file or symbolic link of a tree.
type Entry struct {
	// Size and ModTime, in whole seconds, tell whether a file has changed.
	Size    int64
	ModTime time.Time
	Mode    fs.FileMode
	// Link is where a symbolic link leads.
	Link string
}

func (e Entry) same(f Entry) bool {
	if e.Mode&fs.ModeSymlink != 0 || f.Mode&fs.ModeSymlink != 0 {
		return e.Mode&fs.ModeSymlink == f.Mode&fs.ModeSymlink && e.Link == f.Link
	}
	return e.Size == f.Size && e.Mode.Perm() == f.Mode.Perm() && e.ModTime.Unix() == f.ModTime.Unix()
}

// Tree has the entries of a directory, by their paths with slashes.
type Tree map[string]Entry

// Changes are what makes a tree like another.
type Changes struct {
	// Write has the paths to copy and Delete those to delete, both in order.
	Write, Delete []string
}

// Diff says what makes the tree to like from.
func Diff(from, to Tree) Changes {
	var c Changes
	for p, e := range from {
		if old, ok := to[p]; !ok || !e.same(old) {
			c.Write = append(c.Write, p)
		}
	}
	for p := range to {
		if _, ok := from[p]; !ok {
			c.Delete = append(c.Delete, p)
		}
	}
	slices.Sort(c.Write)
	slices.Sort(c.Delete)
	return c
}

// Ignore tells which paths are left out.
type Ignore struct {
	matcher *patternmatcher.PatternMatcher
}

// ignoreFiles are read, where they are, from the top of a local tree.
var ignoreFiles = []string{".gitignore", ".sandboxignore"}

// ReadIgnore reads the ignore files of a directory. Whatever they say, what Git
// keeps for itself is always left out.
func ReadIgnore(dir string, more []string) (*Ignore, error) {
	var patterns []string
	for _, name := range ignoreFiles {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for l := range strings.Lines(string(data)) {
			if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
				patterns = append(patterns, anywhere(l))
			}
		}
	}
	for _, p := range more {
		patterns = append(patterns, anywhere(p))
	}
	m, err := patternmatcher.New(patterns)
	return &Ignore{m}, err
}

// anywhere makes of a pattern without a slash one for every directory, as in
// .gitignore.
func anywhere(pattern string) string {
	not := strings.HasPrefix(pattern, "!")
	p := strings.TrimSuffix(strings.TrimPrefix(pattern, "!"), "/")
	if !strings.Contains(p, "/") {
		p = "**/" + p
	}
	p = strings.TrimPrefix(p, "/")
	if not {
		return "!" + p
	}
	return p
}

// Match reports whether a path is left out.
func (i *Ignore) Match(name string) bool {
	if git(name) {
		return true
	}
	if i == nil {
		return false
	}
	matched, err := i.matcher.MatchesOrParentMatches(name)
	return err == nil && matched
}

// git reports whether a path leads into what Git runs programs from, on any file
// system: some do not tell upper from lower case, drop points and spaces at the
// end and characters that can't be seen, have short names, or take what is
// behind a colon for a part of the file.
func git(name string) bool {
	for elem := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '/' || r == '\\' }) {
		elem, _, _ = strings.Cut(elem, ":")
		elem = strings.TrimRight(strings.Map(visible, elem), ". ")
		if strings.EqualFold(elem, ".git") || strings.EqualFold(elem, "git~1") {
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

// Local reads a tree of this machine. A directory that does not exist is empty.
func Local(dir string, ignore *Ignore) (Tree, error) {
	tree := Tree{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) && name != dir {
				return nil // it went away meanwhile
			}
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil || rel == "." {
			return err
		}
		rel = filepath.ToSlash(rel)
		if ignore.Match(rel) {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		info, err := d.Info()
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		e := Entry{Size: info.Size(), ModTime: info.ModTime(), Mode: info.Mode()}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if e.Link, err = os.Readlink(name); err != nil {
				return err
			}
		case !info.Mode().IsRegular():
			return nil
		}
		tree[rel] = e
		return nil
	})
	return tree, err
}

// ListScript lists a directory of a sandbox, its argument, in the form that
// ParseList reads. Without that directory it exits with ExitMissing.
const ListScript = `[ -d "$1" ] || exit 44; cd -- "$1" && find . \( -type f -o -type l \) -printf '%P\0%y\0%s\0%T@\0%m\0%l\0'`

// ExitMissing is the exit code of ListScript when there is no such directory.
const ExitMissing = 44

// ParseList reads what ListScript writes.
func ParseList(text string, ignore *Ignore) (Tree, error) {
	tree := Tree{}
	fields := strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
	if text == "" {
		return tree, nil
	}
	if len(fields)%6 != 0 {
		return nil, fmt.Errorf("the listing of the sandbox has %d fields, not a multiple of 6", len(fields))
	}
	for f := range slices.Chunk(fields, 6) {
		size, err1 := strconv.ParseInt(f[2], 10, 64)
		seconds, _, _ := strings.Cut(f[3], ".")
		at, err2 := strconv.ParseInt(seconds, 10, 64)
		mode, err3 := strconv.ParseUint(f[4], 8, 32)
		if err1 != nil || err2 != nil || err3 != nil || !filepath.IsLocal(filepath.FromSlash(f[0])) || path.Clean(f[0]) != f[0] {
			return nil, fmt.Errorf("the listing of the sandbox has an entry that can't be: %q", f)
		}
		if ignore.Match(f[0]) {
			continue
		}
		e := Entry{Size: size, ModTime: time.Unix(at, 0), Mode: fs.FileMode(mode) & fs.ModePerm}
		if f[1] == "l" {
			e.Mode, e.Link = fs.ModeSymlink, f[5]
		}
		tree[f[0]] = e
	}
	return tree, nil
}
