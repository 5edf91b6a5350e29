package sandbox

import (
	"path"
	"strings"
)

// filter chooses files by patterns, as UploadOptions describes them.
type filter struct {
	include, exclude []pattern
}

// pattern is a pattern cut at its slashes. One without a slash has floating set
// and is compared with every name of a path.
type pattern struct {
	elems    []string
	floating bool
}

func newFilter(include, exclude []string) (*filter, error) {
	f := &filter{}
	for _, list := range []struct {
		field string
		from  []string
		to    *[]pattern
	}{{"Include", include, &f.include}, {"Exclude", exclude, &f.exclude}} {
		for _, s := range list.from {
			p, err := newPattern(s)
			if err != nil {
				return nil, invalid(list.field, "%q: %v", s, err)
			}
			*list.to = append(*list.to, p)
		}
	}
	return f, nil
}

func newPattern(s string) (pattern, error) {
	trimmed := strings.Trim(s, "/")
	p := pattern{elems: strings.Split(trimmed, "/"), floating: !strings.Contains(strings.TrimSuffix(s, "/"), "/")}
	if trimmed == "" {
		return p, path.ErrBadPattern
	}
	for _, e := range p.elems {
		if _, err := path.Match(e, "x"); err != nil {
			return p, err
		}
	}
	return p, nil
}

// included and excluded look at name itself: the walk has looked at the
// directories that lead to it.
func (f *filter) included(name string) bool {
	return len(f.include) == 0 || matchAny(f.include, name)
}

func (f *filter) excluded(name string) bool { return matchAny(f.exclude, name) }

// keeps decides about a path whose directories were not looked at.
func (f *filter) keeps(name string) bool {
	included := len(f.include) == 0
	for i := 0; i <= len(name); i++ {
		if i == len(name) || name[i] == '/' {
			if f.excluded(name[:i]) {
				return false
			}
			included = included || matchAny(f.include, name[:i])
		}
	}
	return included
}

func matchAny(patterns []pattern, name string) bool {
	for _, p := range patterns {
		if p.match(name) {
			return true
		}
	}
	return false
}

func (p pattern) match(name string) bool {
	if p.floating {
		ok, _ := path.Match(p.elems[0], path.Base(name)) // it was checked before
		return ok || p.elems[0] == "**"
	}
	return matchElems(p.elems, strings.Split(name, "/"))
}

// matchElems compares from the left and, where "**" was met, tries again with one
// element more for the last "**" only: that is enough, and keeps a hostile
// pattern from taking exponential time.
func matchElems(pattern, name []string) bool {
	p, n := 0, 0
	star, starName := -1, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == "**" {
			star, starName = p, n
			p++
			continue
		}
		if p < len(pattern) {
			if ok, _ := path.Match(pattern[p], name[n]); ok {
				p, n = p+1, n+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		starName++
		p, n = star+1, starName
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}

// defaultCwd is where relative paths start when the API does not say.
const defaultCwd = "/vercel/sandbox"

// absolutePath resolves name in cwd and cleans it.
func absolutePath(cwd, name string) (string, error) {
	if cwd == "" {
		cwd = defaultCwd
	}
	if !path.IsAbs(cwd) {
		return "", invalid("Cwd", "the working directory %q is not an absolute path", cwd)
	}
	if strings.IndexByte(cwd, 0) >= 0 || strings.IndexByte(name, 0) >= 0 {
		return "", invalid("Path", "%q in %q contains a NUL byte", name, cwd)
	}
	if path.IsAbs(name) {
		return path.Clean(name), nil
	}
	return path.Join(cwd, name), nil
}

// filePath is absolutePath for what becomes a file. It refuses paths that are
// known to name a directory, because a file in an archive would replace it.
func filePath(cwd, name string) (string, error) {
	if name == "" {
		return "", invalid("Path", "is empty")
	}
	abs, err := absolutePath(cwd, name)
	if err != nil {
		return "", err
	}
	if cwd == "" {
		cwd = defaultCwd
	}
	if isWithin(path.Clean(cwd), abs) {
		return "", invalid("Path", "%q is a directory (%s), which a file would replace", name, abs)
	}
	return abs, nil
}

// isWithin reports whether the absolute clean path p is dir or below it.
func isWithin(p, dir string) bool {
	return dir == "/" || p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// entryName is the name in an archive that is unpacked at /.
func entryName(abs string) string { return strings.TrimPrefix(abs, "/") }
