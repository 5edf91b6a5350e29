package agent

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

type globInput struct {
	Pattern string   `json:"pattern" is:"* stands for part of a name, ** for any directories, {a,b} for either; a pattern without / matches names at any depth"`
	Path    location `json:"path,omitzero" is:"the directory to search; the working directory by default"`
}

// setDefaults also moves the part of a pattern that leads out of the directory into the path,
// where policies see it.
func (in *globInput) setDefaults() {
	in.Path.setDefault(".")
	elems := strings.Split(in.Pattern, "/")
	n := 0
	for n < len(elems)-1 && !strings.ContainsAny(elems[n], `*?[{\\`) {
		n++
	}
	dir := path.Join(elems[:n]...)
	switch {
	case strings.HasPrefix(in.Pattern, "/"):
		in.Path.given = "/" + dir
	case slices.Contains(elems[:n], ".."):
		in.Path.given = path.Join(in.Path.given, dir)
	default:
		return
	}
	in.Pattern = "./" + strings.Join(elems[n:], "/")
}

func globFiles(ctx context.Context, c *call, in *globInput) (Result, error) {
	root, err := c.resolvePath(ctx, in.Path)
	if err != nil {
		return Result{}, err
	}
	found, more, err := c.walk(ctx, root, in.Pattern)
	if err != nil {
		return Result{}, err
	}
	if len(found) > 0 && found[0].name == "." {
		return Result{}, modelErrorf("%s is a file: give its directory as path.", oneLine(in.Path.given))
	}
	rows := make([]string, 0, len(found))
	for _, f := range found {
		rows = append(rows, oneLine(f.name))
	}
	text, shown := c.fitRows(rows)
	head := fmt.Sprintf("%d files.", len(found))
	if in.Path.given != "." {
		head = fmt.Sprintf("%d files below %s.", len(found), oneLine(in.Path.given))
	}
	if shown < len(rows) {
		head += fmt.Sprintf(" The first %d are shown: give a narrower pattern.", shown)
	}
	if len(found) == 0 {
		more += globHint(in.Pattern)
	}
	return Result{Text: head + more + text}, nil
}

// globHint explains how glob reads a pattern that matched nothing, if other programs read it
// differently.
func globHint(pattern string) string {
	switch {
	case extGlob.MatchString(pattern):
		return " Patterns such as @(a|b) and !(a) are not understood: use {a,b}."
	case strings.HasPrefix(pattern, "!"):
		return " A leading ! does not exclude files here: it is part of the name."
	case strings.HasPrefix(pattern, "~"), strings.HasPrefix(pattern, "$"):
		return " ~ and $ are part of the name here: give an absolute path."
	case strings.Contains(pattern, `\`):
		return " A backslash makes the next character an ordinary one here: separate names by /."
	case strings.ContainsAny(pattern, ", "):
		return " Commas and spaces are part of the name here: for several patterns use {a,b}."
	}
	return ""
}

var extGlob = regexp.MustCompile(`[?*+@!]\([^()]*\)`)

// expandPattern expands the braces of a pattern into several patterns. It refuses patterns that
// lead out of the directory.
func expandPattern(pattern string) ([]string, error) {
	const limit = 100
	if braceSequence.MatchString(pattern) {
		return nil, modelErrorf("The pattern has a sequence such as {1..3}, which is not understood: list what you mean, as {1,2,3}.")
	}
	list, err := expandBraces(pattern, limit)
	if err != nil {
		return nil, err
	}
	for i, p := range list {
		switch {
		case strings.HasPrefix(p, "/"), slices.Contains(strings.Split(p, "/"), ".."):
			return nil, modelErrorf("The pattern leads out of the directory: give the directory as path, and a pattern for what is below it.")
		case strings.HasPrefix(p, "./"):
			list[i] = p[1:] // the remaining slash anchors it at the directory
		}
	}
	return list, nil
}

var braceSequence = regexp.MustCompile(`\{[^{},/]*\.\.[^{},/]*\}`)

// expandBraces expands braces like bash. More patterns than limit are an error.
func expandBraces(pattern string, limit int) ([]string, error) {
	for at := 0; at < len(pattern); at++ {
		switch pattern[at] {
		case '\\':
			at++
			continue
		case '{':
		default:
			continue
		}
		parts, end := alternatives(pattern[at:])
		if len(parts) < 2 {
			continue // a literal brace
		}
		rests, err := expandBraces(pattern[at+end:], limit)
		if err != nil {
			return nil, err
		}
		var list []string
		for _, part := range parts {
			middles, err := expandBraces(part, limit)
			if err != nil {
				return nil, err
			}
			if len(list)+len(middles)*len(rests) > limit {
				return nil, modelErrorf("The braces of the pattern stand for more than %d patterns: search for less at once.", limit)
			}
			for _, middle := range middles {
				for _, rest := range rests {
					list = append(list, pattern[:at]+middle+rest)
				}
			}
		}
		return list, nil
	}
	return []string{pattern}, nil
}

// alternatives splits a text that begins with a brace at the commas, up to the matching
// brace. end is the offset after that brace.
func alternatives(s string) (parts []string, end int) {
	depth, begin := 0, 1
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '{':
			depth++
		case ',':
			if depth == 1 {
				parts = append(parts, s[begin:i])
				begin = i + 1
			}
		case '}':
			if depth--; depth == 0 {
				return append(parts, s[begin:i]), i + 1
			}
		}
	}
	return nil, 0
}
