// Package filefilter selects files with include and exclude patterns. sandbox.UploadOptions documents
// the syntax.
package filefilter

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Filter selects files.
type Filter struct {
	include, exclude []pattern
}

// pattern is a pattern split at its slashes. A pattern without a slash is floating: it is
// compared with every element of a path.
type pattern struct {
	elems    []string
	floating bool
}

// Error reports an invalid pattern.
type Error struct {
	List    string // "Include" or "Exclude"
	Pattern string
	Err     error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %q: %v", e.List, e.Pattern, e.Err) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// New returns a filter for the files that include matches, except those that exclude matches.
// An empty include matches all files. Errors are of type [*Error].
func New(include, exclude []string) (*Filter, error) {
	f := &Filter{}
	for _, list := range []struct {
		name string
		from []string
		to   *[]pattern
	}{{"Include", include, &f.include}, {"Exclude", exclude, &f.exclude}} {
		for _, s := range list.from {
			p, err := newPattern(s)
			if err != nil {
				return nil, &Error{List: list.name, Pattern: s, Err: err}
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

// Included reports whether name itself is included. Its parent directories are
// not considered.
func (f *Filter) Included(name string) bool {
	return len(f.include) == 0 || matchAny(f.include, name)
}

// Excluded reports whether name itself is excluded. Its parent directories are
// not considered.
func (f *Filter) Excluded(name string) bool { return matchAny(f.exclude, name) }

// Keeps reports whether the file with a slash-separated path is selected. It considers all
// parent directories.
func (f *Filter) Keeps(name string) bool {
	included := len(f.include) == 0
	for i := 0; i <= len(name); i++ {
		if i == len(name) || name[i] == '/' {
			if f.Excluded(name[:i]) {
				return false
			}
			included = included || matchAny(f.include, name[:i])
		}
	}
	return included
}

func matchAny(patterns []pattern, name string) bool {
	return slices.ContainsFunc(patterns, func(p pattern) bool { return p.match(name) })
}

func (p pattern) match(name string) bool {
	if p.floating {
		ok, _ := path.Match(p.elems[0], path.Base(name)) // newPattern has checked the pattern
		return ok || p.elems[0] == "**"
	}
	return matchElems(p.elems, strings.Split(name, "/"))
}

// matchElems compares from the left. After a mismatch only the last "**" matches one more
// element. That is sufficient, and avoids exponential time for a hostile pattern.
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
