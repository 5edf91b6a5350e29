package sandbox

import (
	"path"
	"strings"
)

// filter selects files by the patterns of UploadOptions.
type filter struct {
	include, exclude []pattern
}

// pattern is a pattern split at its slashes. One without a slash is floating:
// it is compared with every name of a path.
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

// included and excluded consider name alone: the walk has considered its parent
// directories.
func (f *filter) included(name string) bool {
	return len(f.include) == 0 || matchAny(f.include, name)
}

func (f *filter) excluded(name string) bool { return matchAny(f.exclude, name) }

// keeps decides about a path whose parent directories were not considered.
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
		ok, _ := path.Match(p.elems[0], path.Base(name)) // the pattern was checked before
		return ok || p.elems[0] == "**"
	}
	return matchElems(p.elems, strings.Split(name, "/"))
}

// matchElems compares from the left. After a mismatch it retries with one more
// element for the last "**" only: that is sufficient, and keeps a hostile
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

// defaultCwd is the working directory if the API does not report one.
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

// filePath is absolutePath for the path of a file. It refuses paths that are
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

// isWithin reports whether the absolute clean path p is dir or in it.
func isWithin(p, dir string) bool {
	return dir == "/" || p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// entryName returns the name in an archive that is unpacked at /.
func entryName(abs string) string { return strings.TrimPrefix(abs, "/") }
