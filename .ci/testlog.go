// Testlog runs a go test command with -json and prints what a reader needs: each
// package's result, the slowest tests, what was skipped, with the reasons, and
// last, of each test that failed, its own lines and the command that repeats it,
// with its seed. Its exit code is 1 when a test failed or none ran.
//
//	testlog [-failures FILE] [-outcomes FILE] [-floors FILE:NAME] [-as COMMAND] go test …
//	testlog -unverified FILE
//
// -failures also appends what is said of failed tests to a file. -outcomes appends
// "pass PACKAGE TEST" or "skip PACKAGE TEST REASON" for each test; -unverified
// counts, by their reasons, those that were skipped and passed in none of the runs
// that have appended. -as is
// the command to show instead of the one that is run. -floors fails where a package
// has fewer tests that pass than a line "NAME PACKAGE NUMBER" of the file says.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

var (
	reason  = regexp.MustCompile(`^ +\S+\.go:\d+: (.*)\n$`)
	numbers = regexp.MustCompile(`\d{4}-\d\d-\d\dT\S+|\d{5,}`)
	seed    = regexp.MustCompile(`\bSANDBOX_\w*SEED=\d+\b`)
	order   = regexp.MustCompile(`-test\.shuffle (\d+)`)
	frame   = regexp.MustCompile(`^(=== (RUN|PAUSE|CONT|NAME) |--- (PASS|SKIP): |\s+--- (PASS|SKIP): )`)
)

type log struct {
	out             io.Writer
	again           string              // the command that runs the tests again, up to what names them
	outputs         map[string][]string // by package and test
	passed, skipped int
	failed          []event // in the order of their ends
	reasons         map[string]int
	took            map[string]float64
	outcomes        strings.Builder // a line for each test
	passes          map[string]int  // by package
}

func newLog(out io.Writer, again string) *log {
	return &log{out: out, again: again, outputs: map[string][]string{}, reasons: map[string]int{}, took: map[string]float64{}, passes: map[string]int{}}
}

func key(e event) string { return e.Package + " " + e.Test }

// read takes in what go test -json prints.
func (l *log) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(l.out, lines.Text()) // what the go command itself says
			continue
		}
		l.event(e)
	}
	return lines.Err()
}

func (l *log) event(e event) {
	switch e.Action {
	case "output", "build-output":
		l.outputs[key(e)] = append(l.outputs[key(e)], e.Output)
		if e.Action == "build-output" {
			fmt.Fprint(l.out, e.Output)
		}
		return
	case "build-fail":
		l.failed = append(l.failed, e)
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	if e.Test == "" {
		if e.Action != "skip" { // without test files
			fmt.Fprintf(l.out, "%-4s %-70s %6.1fs %5d\n", e.Action, e.Package, e.Elapsed, l.passes[e.Package])
		}
		// A package fails by itself when it panics, leaks or runs out of time.
		if e.Action == "fail" && !slices.ContainsFunc(l.failed, func(f event) bool { return f.Package == e.Package }) {
			l.failed = append(l.failed, e)
		}
		return
	}
	l.took[key(e)] = e.Elapsed
	switch e.Action {
	case "pass":
		l.passed++
		l.passes[e.Package]++
		fmt.Fprintf(&l.outcomes, "pass %s\n", key(e))
		delete(l.outputs, key(e))
	case "fail":
		l.failed = append(l.failed, e)
	case "skip":
		l.skipped++
		text := "without a reason"
		for _, line := range l.outputs[key(e)] {
			if m := reason.FindStringSubmatch(line); m != nil {
				text = numbers.ReplaceAllString(m[1], "…") // of folders and moments, different each time
			}
		}
		l.reasons[text]++
		fmt.Fprintf(&l.outcomes, "skip %s %s\n", key(e), text)
		delete(l.outputs, key(e))
	}
}

func (l *log) summary() {
	fmt.Fprintln(l.out, "slowest:")
	slowest := slices.SortedFunc(maps.Keys(l.took), func(a, b string) int { return cmp.Compare(l.took[b], l.took[a]) })
	for _, name := range slowest[:min(8, len(slowest))] {
		fmt.Fprintf(l.out, "%7.1fs %s\n", l.took[name], name)
	}
	if len(l.reasons) > 0 {
		fmt.Fprintln(l.out, "skipped, because:")
	}
	for _, text := range slices.Sorted(maps.Keys(l.reasons)) {
		fmt.Fprintf(l.out, "%6d × %s\n", l.reasons[text], text)
	}
	fmt.Fprintf(l.out, "%d passed, %d failed, %d skipped\n", l.passed, len(l.failed), l.skipped)
}

// failures describes each test that failed: not those that failed because a part
// of them did and have nothing to say of their own.
func (l *log) failures() string {
	var text strings.Builder
	for _, e := range l.failed {
		var own []string
		for _, line := range l.outputs[key(e)] {
			if !frame.MatchString(line) {
				own = append(own, line)
			}
		}
		inner := slices.ContainsFunc(l.failed, func(f event) bool { return f.Package == e.Package && strings.HasPrefix(f.Test, e.Test+"/") })
		if inner && len(own) <= 1 { // "--- FAIL"
			continue
		}
		if e.Test == "" && e.Action == "fail" {
			own = append(own, l.unended(e.Package)...)
		}
		said := strings.Join(own, "")
		fmt.Fprintf(&text, "\n%s\n%s", strings.TrimSpace(key(e)), said)
		if e.Action == "build-fail" {
			continue
		}
		again := l.again
		if m := seed.FindString(said); m != "" {
			again = m + " " + again
		}
		if m := order.FindStringSubmatch(strings.Join(l.outputs[e.Package+" "], "")); m != nil {
			again = strings.ReplaceAll(again, "-shuffle=on", "-shuffle="+m[1])
		}
		if e.Test != "" {
			again += " -run '^" + strings.ReplaceAll(regexp.QuoteMeta(e.Test), "/", "$/^") + "$'"
		}
		fmt.Fprintf(&text, "again: %s %s\n", again, e.Package)
	}
	return text.String()
}

// unended is what the tests of a package said that have not ended: a panic, or
// running out of time, is told as if one of them did.
func (l *log) unended(pkg string) (own []string) {
	for _, name := range slices.Sorted(maps.Keys(l.outputs)) {
		test, of := strings.CutPrefix(name, pkg+" ")
		if _, ended := l.took[name]; !of || test == "" || ended {
			continue
		}
		own = append(own, "not ended: "+test+"\n")
		for _, line := range l.outputs[name] {
			if !frame.MatchString(line) {
				own = append(own, line)
			}
		}
	}
	return own
}

// below names the packages of which fewer tests passed than the lines say for a
// name.
func (l *log) below(lines, name string) string {
	var text strings.Builder
	for line := range strings.Lines(lines) {
		var of, pkg string
		var floor int
		if n, _ := fmt.Sscan(line, &of, &pkg, &floor); n == 3 && of == name && l.passes[pkg] < floor {
			fmt.Fprintf(&text, "\n%s\n%d tests passed, and there were %d\n", pkg, l.passes[pkg], floor)
		}
	}
	return text.String()
}

// unverified counts, by their reasons, the tests that the lines say were skipped
// and never passed.
func unverified(lines string) string {
	skipped := map[string]string{}
	passed := map[string]bool{}
	for line := range strings.Lines(lines) {
		outcome, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		pkg, rest, _ := strings.Cut(rest, " ")
		test, text, _ := strings.Cut(rest, " ")
		switch name := pkg + " " + test; outcome {
		case "pass":
			passed[name] = true
		case "skip":
			skipped[name] = text
		}
	}
	counts, one := map[string]int{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(skipped)) {
		if text := skipped[name]; !passed[name] {
			counts[text]++
			one[text] = cmp.Or(one[text], name)
		}
	}
	var text strings.Builder
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&text, "%6d × %s (%s)\n", counts[reason], reason, one[reason])
	}
	return text.String()
}

func main() {
	floors := flag.String("floors", "", "")
	failures := flag.String("failures", "", "")
	outcomes := flag.String("outcomes", "", "")
	never := flag.String("unverified", "", "")
	as := flag.String("as", "", "")
	flag.Parse()
	if *never != "" {
		lines, err := os.ReadFile(*never)
		if err != nil {
			fmt.Fprintln(os.Stderr, "testlog:", err)
			os.Exit(1)
		}
		fmt.Print(unverified(string(lines)))
		return
	}
	args := flag.Args()
	at := slices.Index(args, "test")
	if at < 1 {
		fmt.Fprintln(os.Stderr, "usage: testlog [-failures FILE] [-outcomes FILE] [-as COMMAND] go test …")
		os.Exit(2)
	}
	cmd := exec.Command(args[0], slices.Insert(slices.Clone(args[1:]), at, "-json")...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(1)
	}
	l := newLog(os.Stdout, command(cmp.Or(*as, strings.Join(args, " ")), os.Getenv("SANDBOX_TEST_NEEDS")))
	err = l.read(out)
	_ = cmd.Wait() // it says by events what failed
	l.summary()
	said := l.failures()
	few := ""
	if file, name, ok := strings.Cut(*floors, ":"); ok {
		lines, rerr := os.ReadFile(file)
		err = cmp.Or(err, rerr)
		few = l.below(string(lines), name)
	}
	said += few
	fmt.Print(said)
	if *failures != "" {
		err = cmp.Or(err, appendTo(*failures, said))
	}
	if *outcomes != "" {
		err = cmp.Or(err, appendTo(*outcomes, l.outcomes.String()))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
	}
	if err != nil || len(l.failed) > 0 || l.passed == 0 || few != "" {
		os.Exit(1)
	}
}

// command is the one that repeats a test: without the packages and what chooses
// among the tests, and not from the cache.
func command(line, needs string) string {
	var kept []string
	words := strings.Fields(line)
	for i := 0; i < len(words); i++ {
		switch w := words[i]; {
		case w == "-run" || w == "-skip" || w == "-timeout" || w == "-parallel" || w == "-count":
			i++
		case strings.HasPrefix(w, "./") || strings.HasPrefix(w, "github.com/") || w == "." || strings.HasPrefix(w, "-count="):
		default:
			kept = append(kept, w)
		}
	}
	text := strings.Join(kept, " ") + " -count=1"
	if needs != "" {
		text = "SANDBOX_TEST_NEEDS=" + needs + " " + text
	}
	return text
}

func appendTo(name, text string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, bytes.NewBufferString(text))
	return cmp.Or(err, f.Close())
}
