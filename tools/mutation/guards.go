package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const switches = `
import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// A program that a test starts may have none of the test's environment.
var mutation = func() int {
	text, _ := os.ReadFile(%q)
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}()

var mutationSeen sync.Map

func mutationOn(n int) bool {
	if mutation >= 0 {
		return mutation == n
	}
	if _, seen := mutationSeen.Load(n); !seen {
		mutationSeen.Store(n, true)
		if f, err := os.OpenFile(%q, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666); err == nil {
			_, _ = f.WriteString(strconv.Itoa(n) + "\n")
			_ = f.Close()
		}
	}
	return false
}

func mutationNot(n int, v bool) bool { return v != mutationOn(n) }
`

// trial is the tests of a package, compiled with the breaks of the rows that they
// are to notice.
type trial struct {
	dir      string // of the package
	patterns []string
	rows     []site
	binary   string
	err      error           // of the compiler, or of a run without a break
	reached  map[int][]timed // the tests that come to a break, the fastest first
}

type timed struct {
	name string
	time time.Duration
}

// trials are all trials of some rows. A file turns one break on.
type trials struct {
	work  string
	limit time.Duration
	names *regexp.Regexp    // of tests
	of    map[string]*trial // by the folder of the package
}

func (t *trials) number() string { return filepath.Join(t.work, "number") }
func (t *trials) seen() string   { return filepath.Join(t.work, "reached") }

// try builds the tests of the rows once with all breaks, finds out which tests
// come to which break, and runs those for each.
func (l *list) try(work string, rows []site, o options) error {
	t := &trials{work: work, limit: o.limit, names: regexp.MustCompile(o.names), of: map[string]*trial{}}
	for n := range rows {
		rows[n].number = n + 1
	}
	for i := range l.hearts {
		h := &l.hearts[i]
		if o.near {
			h.tests = slices.DeleteFunc(slices.Clone(h.tests), func(test [2]string) bool { return test == reliability })
		}
		mine := slices.DeleteFunc(slices.Clone(rows), func(s site) bool { return s.heart != i })
		if len(mine) == 0 {
			continue
		}
		for _, test := range h.tests {
			dir := filepath.Join(h.module, test[0])
			if t.of[dir] == nil {
				t.of[dir] = &trial{dir: dir, reached: map[int][]timed{}}
			}
			t.of[dir].patterns = append(t.of[dir].patterns, test[1])
			t.of[dir].rows = append(t.of[dir].rows, mine...)
		}
	}
	return report(rows, func(s site) (string, error) {
		if s.bug != nil {
			return s.bug.try(work, o.limit)
		}
		h, outcome := l.hearts[s.heart], unreached
		for _, test := range h.tests {
			one := t.of[filepath.Join(h.module, test[0])]
			if one.binary == "" {
				one.binary = filepath.Join(work, fmt.Sprint(s.number, filepath.Base(test[0]), ".test"))
				if one.err = t.build(one); one.err == nil {
					one.err = t.explore(one)
				}
			}
			if one.err != nil {
				return "", one.err
			}
			switch got, err := t.tryOne(one, s.number); {
			case err != nil || got == noticed || got == hangs || got == hung:
				return got, err
			case got == survived:
				outcome = survived
			}
		}
		return outcome, nil
	})
}

func (t *trials) build(one *trial) error {
	overlay, err := t.instrument(one)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-vet=off", "-c", "-o", one.binary, "-overlay", overlay)
	cmd.Dir = one.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s with the breaks: %s", one.dir, out)
	}
	return nil
}

// explore runs each test by itself without a break.
func (t *trials) explore(one *trial) error {
	pattern := strings.Join(one.patterns, "|")
	cmd := exec.Command(one.binary, "-test.list", pattern)
	cmd.Dir = one.dir
	listed, err := cmd.Output()
	if err != nil {
		return err
	}
	if err := os.WriteFile(t.number(), []byte("-1"), 0o644); err != nil {
		return err
	}
	none := true
	for name := range strings.FieldsSeq(string(listed)) {
		if !strings.HasPrefix(name, "Test") {
			continue
		}
		none = false
		if !t.names.MatchString(name) {
			continue
		}
		if err := t.exploreOne(one, name); err != nil {
			return err
		}
	}
	if none {
		return errors.New("no test of " + one.dir + " matches " + pattern)
	}
	for _, tests := range one.reached {
		slices.SortFunc(tests, func(a, b timed) int { return cmp.Compare(a.time, b.time) })
	}
	return nil
}

// exploreOne notes which breaks a test comes to.
func (t *trials) exploreOne(one *trial, name string) error {
	if err := os.WriteFile(t.seen(), nil, 0o666); err != nil {
		return err
	}
	began := time.Now()
	outcome, err := one.run([]string{name}, t.limit)
	if err != nil {
		return err
	}
	if outcome != survived {
		fmt.Printf("left out\t%s of %s: %s without a break\n", name, one.dir, outcome)
		return nil
	}
	text, err := os.ReadFile(t.seen())
	if err != nil {
		return err
	}
	numbers := strings.Fields(string(text))
	slices.Sort(numbers)
	for _, s := range slices.Compact(numbers) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return err
		}
		one.reached[n] = append(one.reached[n], timed{name, time.Since(began)})
	}
	return nil
}

// tryOne turns a break on and runs the tests that come to it, the fast ones first.
func (t *trials) tryOne(one *trial, n int) (string, error) {
	if err := os.WriteFile(t.number(), []byte(strconv.Itoa(n)), 0o644); err != nil {
		return "", err
	}
	outcome := unreached
	for some := range slices.Chunk(one.reached[n], 10) {
		var names []string
		limit := 20 * time.Second
		for _, test := range some {
			names = append(names, test.name)
			limit += 8 * test.time
		}
		limit = min(limit, t.limit)
		got, err := one.run(names, limit)
		if got == hung && err == nil {
			return t.stuck(one, names, limit)
		}
		if err != nil || got != survived {
			return got, err
		}
		outcome = got
	}
	return outcome, nil
}

// stuck tells a break that makes tests hang from a machine that is busy: without
// the break they end in the same time.
func (t *trials) stuck(one *trial, names []string, limit time.Duration) (string, error) {
	if err := os.WriteFile(t.number(), []byte("0"), 0o644); err != nil {
		return "", err
	}
	got, err := one.run(names, limit)
	if err == nil && got == survived {
		return hangs, nil
	}
	return hung, err
}

func (one *trial) run(names []string, limit time.Duration) (string, error) {
	return runTests(one.binary, one.dir, "^("+strings.Join(names, "|")+")$", limit)
}

// instrument writes the files with the switches of a trial's rows.
func (t *trials) instrument(one *trial) (string, error) {
	files := map[string][]byte{}
	inserted := map[string][]insertion{}
	for _, s := range one.rows {
		for _, in := range s.at {
			if strings.Contains(in.text, "%d") {
				in.text = fmt.Sprintf(in.text, s.number)
			}
			inserted[s.file] = append(inserted[s.file], in)
		}
	}
	for file, list := range inserted {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		files[file] = insert(text, list)
		name, err := packageName(file)
		if err != nil {
			return "", err
		}
		files[filepath.Join(filepath.Dir(file), "zz_mutation.go")] = fmt.Appendf(nil, "package "+name+"\n"+switches, t.number(), t.seen())
	}
	dir := one.binary + ".overlay"
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return writeOverlay(dir, files)
}

// insert puts texts around nodes, of which some contain others.
func insert(text []byte, list []insertion) []byte {
	slices.SortFunc(list, func(a, b insertion) int {
		closes := func(in insertion) int {
			if in.otherEnd < in.offset {
				return 0
			}
			return 1
		}
		// What opens goes from the outside to the inside, what closes the other way.
		return cmp.Or(a.offset-b.offset, closes(a)-closes(b), b.otherEnd-a.otherEnd)
	})
	var out bytes.Buffer
	at := 0
	for _, in := range list {
		out.Write(text[at:in.offset])
		out.WriteString(in.text)
		at = in.offset
	}
	out.Write(text[at:])
	return out.Bytes()
}

func packageName(file string) (string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly)
	if err != nil {
		return "", err
	}
	return parsed.Name.Name, nil
}
