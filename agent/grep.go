package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/own"
)

// Limits of grep.
const (
	maxSearched = 4 << 20 // size of a file that is searched
	maxArgs     = 64 << 10
	maxMatches  = 1000
	maxMatch    = 400     // bytes of a line that a result shows
	maxLooked   = 8 << 10 // bytes that are kept of a line of grep's output; its file name may have 4 KiB
	maxPattern  = 1000    // length of a pattern
	maxProgram  = 5000    // instructions of the compiled pattern
)

type grepInput struct {
	Pattern string   `json:"pattern" is:"the regular expression, as in RE2"`
	Path    location `json:"path,omitzero" is:"the directory, or a file; the working directory by default"`
	Glob    string   `json:"glob,omitempty" is:"a pattern, as for glob, that limits the search to some files"`
	Fold    bool     `json:"ignore_case,omitempty" is:"whether to ignore case"`
	Limit   int      `json:"limit,omitempty" is:"how many matches to return; 100 by default, 1000 at most"`
}

// compilePattern compiles a pattern and refuses large ones. The time to search a line is
// proportional to the length of the line and of the compiled pattern.
func compilePattern(pattern string) (*regexp.Regexp, error) {
	large := modelErrorf("The pattern is too large: search for less at once.")
	if len(pattern) > maxPattern {
		return nil, large
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if prog, err := syntax.Compile(tree.Simplify()); err != nil || len(prog.Inst) > maxProgram {
		return nil, large
	}
	return regexp.Compile(pattern)
}

// match is a line that matches.
type match struct {
	file string
	line int
	text []byte
	cut  bool // text is not the whole line
}

func (in *grepInput) setDefaults() { in.Path.setDefault(".") }

func grepFiles(ctx context.Context, c *call, in *grepInput) (Result, error) {
	pattern := in.Pattern
	if in.Fold {
		pattern = "(?i)" + pattern
	}
	re, err := compilePattern(pattern)
	if _, large := errors.AsType[*modelError](err); large {
		return Result{}, err
	}
	if err != nil || strings.ContainsAny(in.Pattern, "\n\x00") {
		return Result{}, modelErrorf("The pattern is not an RE2 regular expression for a single line.")
	}
	limit := cmp.Or(min(max(in.Limit, 0), maxMatches), 100)
	s := &search{c: c, re: re, pattern: pattern, limit: limit}
	if s.root, err = c.resolvePath(ctx, in.Path); err != nil {
		return Result{}, err
	}
	files, more, err := c.walk(ctx, s.root, in.Glob)
	if err != nil {
		return Result{}, err
	}
	if len(files) > 0 && files[0].name == "." {
		files[0].name = path.Base(s.root)
		s.root = path.Dir(s.root)
	}
	ctx, cancel := context.WithTimeout(ctx, c.limits().Timeout)
	defer cancel()
	if err := s.searchFiles(ctx, files); err != nil {
		return Result{}, err
	}
	var rows []string
	for _, m := range s.matches {
		text, used := visibleHead(m.text, maxMatch)
		if used < len(m.text) {
			text += "…"
		}
		rows = append(rows, fmt.Sprintf("%s:%d: %s", oneLine(m.file), m.line, text))
	}
	if s.unreadable > 0 {
		more += fmt.Sprintf(" %d files could not be read.", s.unreadable)
	}
	if s.tooLarge > 0 {
		more += fmt.Sprintf(" %d files of more than %d MiB were not searched: use bash for them.", s.tooLarge, maxSearched>>20)
	}
	text, shown := c.fitRows(rows)
	head := fmt.Sprintf("%d matches.", len(rows))
	switch {
	case len(files) == 0 && in.Glob != "":
		more += " No file matches glob." + globHint(in.Glob)
	case len(rows) == 0:
		more += " Binary files, symbolic links and .git are not searched."
	}
	if s.isFull() || shown < len(rows) {
		head = fmt.Sprintf("The first %d matches are shown, there may be more: give a narrower pattern or path.", shown)
	}
	return Result{Text: head + more + text}, nil
}

// search finds a pattern in files.
type search struct {
	c          *call
	root       string
	re         *regexp.Regexp
	pattern    string
	limit      int
	matches    []match
	noGrep     bool // the sandbox has no usable grep
	tooLarge   int  // number of files too large to be searched
	unreadable int
}

func (s *search) isFull() bool { return len(s.matches) >= s.limit }

// searchFiles searches files in groups that fit into a command line.
func (s *search) searchFiles(ctx context.Context, files []foundFile) error {
	for len(files) > 0 && !s.isFull() {
		size, n := 0, 0
		var names []string
		for _, f := range files {
			if size += len(f.name) + 1; size > maxArgs && n > 0 {
				break
			}
			n++
			switch {
			case f.link:
			case f.size > maxSearched:
				s.tooLarge++
			default:
				names = append(names, f.name)
			}
		}
		files = files[n:]
		if len(names) == 0 {
			continue
		}
		if err := s.searchGroup(ctx, names); err != nil {
			return err
		}
	}
	return nil
}

// searchGroup searches files with grep, or reads them if grep is not usable.
func (s *search) searchGroup(ctx context.Context, names []string) error {
	if !s.noGrep {
		before := len(s.matches)
		ok, err := s.runGrep(ctx, names)
		if ok || err != nil {
			return err
		}
		s.noGrep, s.matches = true, s.matches[:before]
	}
	for _, name := range names {
		if s.isFull() {
			return nil
		}
		if err := s.searchFile(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// runGrep searches with the sandbox's grep. It reports false if grep does not know the
// options or fails.
func (s *search) runGrep(ctx context.Context, names []string) (ok bool, err error) {
	args := []string{"LC_ALL=C.UTF-8", "grep", "-P", "-n", "-H", "-I", "-Z", "--color=never", "-e", s.pattern, "--"}
	for _, name := range names {
		args = append(args, "./"+name)
	}
	known := map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	out := &grepOutput{full: s.isFull, found: func(m match) {
		if known[m.file] && (m.cut || s.re.Match(m.text)) { // check, because another program may be installed as grep
			s.matches = append(s.matches, m)
		}
	}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stderr := &grepErrors{}
	done, err := own.Run(ctx, s.c.sb, &sandbox.CommandOptions{Cwd: s.root, Stdout: out, Stderr: stderr, KillOnCancel: true}, "env", args...)
	switch {
	case out.err != nil:
		return errors.Is(out.err, errFull), nil
	case errors.Is(err, exec.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	// Exit code 2 means that a file could not be read or is gone, or that grep does not know an
	// option.
	if done.ExitCode == 2 && stderr.denied+stderr.gone > 0 && stderr.other == 0 {
		s.unreadable += stderr.denied
		return true, nil
	}
	return done.ExitCode <= 1, nil
}

// grepErrors counts the lines of grep's standard error by their cause.
type grepErrors struct {
	line                []byte
	denied, gone, other int
}

func (c *grepErrors) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		piece, after, end := bytes.Cut(rest, []byte("\n"))
		c.line = append(c.line, piece...)
		rest = after
		if !end {
			c.line = c.line[max(0, len(c.line)-maxMatch):] // the cause is at the end
			break
		}
		switch {
		case bytes.HasSuffix(c.line, []byte(": Permission denied")):
			c.denied++
		case bytes.HasSuffix(c.line, []byte(": No such file or directory")):
			c.gone++
		default:
			c.other++
		}
		c.line = c.line[:0]
	}
	return len(p), nil
}

var (
	errFull    = errors.New("enough")
	errNotGrep = errors.New("not the output of grep")
)

// grepOutput parses the output of grep -nHZ: name, NUL, line number, colon, line.
type grepOutput struct {
	full  func() bool
	found func(match)
	line  []byte
	err   error
}

func (g *grepOutput) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		piece, after, end := bytes.Cut(rest, []byte("\n"))
		if room := maxLooked - len(g.line); room > 0 {
			g.line = append(g.line, piece[:min(room, len(piece))]...)
		}
		rest = after
		if !end {
			break
		}
		name, text, ok := bytes.Cut(g.line, []byte{0})
		number, text, ok2 := bytes.Cut(text, []byte(":"))
		n, err := strconv.Atoi(string(number))
		if !ok || !ok2 || err != nil {
			g.err = errNotGrep
			return 0, g.err
		}
		g.found(match{strings.TrimPrefix(string(name), "./"), n, bytes.Clone(text), len(g.line) == maxLooked})
		g.line = g.line[:0]
		if g.full() {
			g.err = errFull
			return 0, g.err
		}
	}
	return len(p), nil
}

// searchFile searches a file by reading it.
func (s *search) searchFile(ctx context.Context, name string) error {
	f, err := s.c.sb.FS().Open(ctx, path.Join(s.root, name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, fs.ErrPermission) {
		s.unreadable++
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSearched))
	if err != nil {
		return err
	}
	const sniffed = 32 << 10
	if bytes.IndexByte(data[:min(len(data), sniffed)], 0) >= 0 {
		return nil
	}
	for number, r := 1, bufio.NewReader(bytes.NewReader(data)); ; number++ {
		text, err := r.ReadBytes('\n')
		if len(text) == 0 {
			return nil
		}
		text = bytes.TrimSuffix(text, []byte("\n"))
		matches := s.re.MatchReader(&cancelableReader{Reader: bytes.NewReader(text), ctx: ctx})
		if s.isFull() || ctx.Err() != nil {
			return ctx.Err()
		}
		if matches {
			s.matches = append(s.matches, match{file: name, line: number, text: text})
		}
		if err != nil {
			return nil //nolint:nilerr // the end of the file
		}
	}
}

// cancelableReader ends when its context ends, so that a search in a long line can be canceled.
type cancelableReader struct {
	*bytes.Reader
	ctx  context.Context
	seen int
}

func (r *cancelableReader) ReadRune() (rune, int, error) {
	if r.seen++; r.seen%maxLooked == 0 && r.ctx.Err() != nil {
		return 0, 0, io.EOF
	}
	return r.Reader.ReadRune()
}
