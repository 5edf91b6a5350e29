package mirror

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/patternmatcher"

	"github.com/go-vercel/sandbox/internal/glob"
)

// entry is a directory, file or symbolic link of a tree.
type entry struct {
	// Size and ModTime tell whether a file has changed.
	Size    int64
	ModTime time.Time
	Mode    fs.FileMode
	// Link is where a symbolic link leads.
	Link string
}

func (e entry) same(f entry) bool {
	switch {
	case e.Mode.Type() != f.Mode.Type():
		return false
	case e.Mode.IsDir():
		return true
	case e.Mode&fs.ModeSymlink != 0:
		return e.Link == f.Link
	}
	return e.Size == f.Size && e.Mode.Perm() == f.Mode.Perm() && sameTime(e.ModTime, f.ModTime)
}

// listing has the entries of a directory, by their paths with slashes.
type listing map[string]entry

// plan are what makes a tree like another, in the order in which they are
// made. Each list is sorted.
type plan struct {
	// Replace has files in whose place a directory comes, and Clear directories
	// in whose place a file comes.
	Replace, Clear []string
	// Delete has the files, and Remove the directories, that are not in the
	// other tree. Those below a directory of Clear are among them.
	Delete, Remove []string
	// Make has the directories to make and Write the files to copy.
	Make, Write []string
}

// diff says what makes the tree to like from.
func diff(from, to listing) plan {
	var c plan
	for p, e := range from {
		old, ok := to[p]
		switch {
		case ok && e.same(old):
			continue
		case ok && old.Mode.IsDir():
			c.Clear = append(c.Clear, p)
		case ok && e.Mode.IsDir():
			c.Replace = append(c.Replace, p)
		}
		if e.Mode.IsDir() {
			c.Make = append(c.Make, p)
		} else {
			c.Write = append(c.Write, p)
		}
	}
	for p, e := range to {
		if _, ok := from[p]; ok {
			continue
		}
		if e.Mode.IsDir() {
			c.Remove = append(c.Remove, p)
		} else {
			c.Delete = append(c.Delete, p)
		}
	}
	for _, l := range []*[]string{&c.Replace, &c.Clear, &c.Delete, &c.Remove, &c.Make, &c.Write} {
		slices.Sort(*l)
	}
	return c
}

// ignoreList tells which paths are left out.
type ignoreList struct {
	patterns []string
	matcher  *patternmatcher.PatternMatcher
}

// ignoreFiles are read in each directory of a local tree.
var ignoreFiles = []string{".gitignore", ".sandboxignore"}

// excludeFile is one that Git reads for the whole tree.
const excludeFile = ".git/info/exclude"

// newIgnoreList leaves out what the patterns match, which count more than those of
// ignore files.
func newIgnoreList(more []string) (*ignoreList, error) {
	for _, p := range more {
		if _, err := patternmatcher.New([]string{anywhere("", p)}); err != nil {
			return nil, fmt.Errorf("%q: %w", p, err)
		}
	}
	i := &ignoreList{}
	return i, i.add("", strings.Join(more, "\n"))
}

// read reads the ignore files of a directory of root.
func (i *ignoreList) read(root fs.FS, dir string) error {
	names := ignoreFiles
	if dir == "." {
		names = append([]string{excludeFile}, names...)
	}
	for _, name := range names {
		info, err := fs.Lstat(root, path.Join(dir, name))
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		data, err := fs.ReadFile(root, path.Join(dir, name))
		if err != nil {
			return err
		}
		if err := i.add(dir, string(data)); err != nil {
			return err
		}
	}
	return nil
}

func (i *ignoreList) add(dir, text string) error {
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
			i.patterns = append(i.patterns, anywhere(dir, l))
		}
	}
	m, err := patternmatcher.New(i.patterns)
	if err == nil {
		i.matcher = m
	}
	return err
}

// anywhere makes of a pattern of a directory's .gitignore one for the whole tree:
// one without a slash is for every directory below.
func anywhere(dir, pattern string) string {
	not := strings.HasPrefix(pattern, "!")
	p := strings.TrimSuffix(strings.TrimPrefix(pattern, "!"), "/")
	if !strings.Contains(p, "/") {
		p = "**/" + p
	}
	p = strings.TrimPrefix(p, "/")
	if dir != "" && dir != "." {
		p = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir) + "/" + p
	}
	if not {
		return "!" + p
	}
	return p
}

// Match reports whether a path is left out.
func (i *ignoreList) match(name string) bool {
	if glob.Git(name) {
		return true
	}
	if i == nil || i.matcher == nil {
		return false
	}
	matched, err := i.matcher.MatchesOrParentMatches(name)
	return err == nil && matched
}

// listLocal reads a tree of this machine, and the ignore files in it. What more
// leaves out is left out in any case. enter, if not nil, is called for each
// directory before it is read.
func listLocal(root fs.FS, more *ignoreList, enter func(dir string) error) (listing, *ignoreList, error) {
	tree, ignore := listing{}, &ignoreList{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && name != "." && (ignore.match(name) || more.match(name)) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err == nil && d.IsDir() {
			if enter != nil {
				err = enter(name)
			}
			if err == nil {
				err = ignore.read(root, name)
			}
		}
		if err == nil && name != "." {
			err = tree.add(root, name, d)
		}
		if name != "." && isGone(err) {
			return fmt.Errorf("%s: %w", name, errChanged)
		}
		return err
	})
	return tree, ignore, err
}

// add adds an entry of root, unless it is of a kind that is not copied.
func (l listing) add(root fs.FS, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	e := entry{Size: info.Size(), ModTime: info.ModTime(), Mode: info.Mode()}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if e.Link, err = fs.ReadLink(root, name); err != nil {
			return err
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil
	}
	l[name] = e
	return nil
}

// listScript lists a directory of a sandbox, its argument, in the form that
// parseList reads. Without that directory it exits with exitMissing.
const listScript = `[ -d "$1" ] || exit 44; cd -- "$1" && find . -mindepth 1 \( -type f -o -type l -o -type d \) -printf '%P\0%y\0%s\0%T@\0%m\0%l\0'`

// exitMissing is the exit code of listScript when there is no such directory.
const exitMissing = 44

// parseList reads what listScript writes.
func parseList(text string, ignore ...*ignoreList) (listing, error) {
	tree := listing{}
	fields := strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
	if text == "" {
		return tree, nil
	}
	if len(fields)%6 != 0 {
		return nil, fmt.Errorf("the listing of the sandbox has %d fields, not a multiple of 6", len(fields))
	}
	for f := range slices.Chunk(fields, 6) {
		size, err1 := strconv.ParseInt(f[2], 10, 64)
		at, err2 := parseTime(f[3])
		mode, err3 := strconv.ParseUint(f[4], 8, 32)
		if err1 != nil || err2 != nil || err3 != nil || !filepath.IsLocal(filepath.FromSlash(f[0])) || path.Clean(f[0]) != f[0] {
			return nil, fmt.Errorf("the sandbox's listing has an impossible entry: %q", f)
		}
		if (*ignoreList)(nil).match(f[0]) || slices.ContainsFunc(ignore, func(i *ignoreList) bool { return i.match(f[0]) }) {
			continue
		}
		e := entry{Size: size, ModTime: at, Mode: fs.FileMode(mode) & fs.ModePerm}
		switch f[1] {
		case "l":
			e.Mode, e.Link = fs.ModeSymlink, f[5]
		case "d":
			e.Mode |= fs.ModeDir
		}
		tree[f[0]] = e
	}
	return tree, nil
}

// parseTime reads seconds with a fraction, as find writes them.
func parseTime(text string) (time.Time, error) {
	seconds, fraction, _ := strings.Cut(text, ".")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	nsec, err := strconv.ParseUint((fraction + "000000000")[:9], 10, 32)
	return time.Unix(at, int64(nsec)), err
}
