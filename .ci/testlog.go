// Testlog reads the output of go test -json. It prints a line for each package, the reasons for
// skipped tests, and at the end the output of each failed test with the command that repeats it.
// It exits with 1 if a test has failed, if no test has run, or if a package has skipped all of
// its tests.
//
//	go test -json ./... | testlog [FILE]
//
// It also appends the failures to FILE. AGAIN is the beginning of the command that repeats
// a test, by default go test -count=1. If SANDBOX_SLOW=1 is set, it treats a test as failed
// that was skipped for want of this variable.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

type test struct{ pkg, name string }

var (
	reason  = regexp.MustCompile(`^ +\S+\.go:\d+: (.*)\n$`)
	seed    = regexp.MustCompile(`\bSANDBOX_\w*SEED=\d+\b`)
	numbers = regexp.MustCompile(`\d{4}-\d\d-\d\dT\S+|\d{5,}`)
	frame   = regexp.MustCompile(`^(=== (RUN|PAUSE|CONT|NAME) |\s*--- (PASS|SKIP): )`)
)

func main() {
	outputs := map[test][]string{}
	passed, skipped := map[string]int{}, map[string]int{}
	reasons := map[string]int{}
	var failed []test
	slow := os.Getenv("SANDBOX_SLOW") == "1"
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text()) // a message of the go command
			continue
		}
		at := test{e.Package, e.Test}
		switch {
		case e.Action == "output" || e.Action == "build-output":
			if !frame.MatchString(e.Output) {
				outputs[at] = append(outputs[at], e.Output)
			}
			if e.Action == "build-output" {
				fmt.Print(e.Output)
			}
		case e.Action == "fail" && e.Test == "":
			fmt.Printf("FAIL %-70s %6.1fs\n", e.Package, e.Elapsed)
			// A package can fail without a failed test: by a panic, a leaked goroutine or a
			// timeout.
			if !slices.ContainsFunc(failed, func(f test) bool { return f.pkg == e.Package }) {
				failed = append(failed, at)
			}
		case e.Action == "fail":
			failed = append(failed, at)
		case e.Action == "pass" && e.Test == "":
			fmt.Printf("ok   %-70s %6.1fs %5d passed, %d skipped\n", e.Package, e.Elapsed, passed[e.Package], skipped[e.Package])
			if passed[e.Package] == 0 && skipped[e.Package] > 0 {
				outputs[at] = append(outputs[at], "skipped all of its tests\n")
				failed = append(failed, at)
			}
		case e.Action == "pass":
			passed[e.Package]++
			delete(outputs, at)
		case e.Action == "skip" && e.Test != "":
			skipped[e.Package]++
			why := "without a reason"
			for _, line := range outputs[at] {
				if m := reason.FindStringSubmatch(line); m != nil {
					why = numbers.ReplaceAllString(m[1], "…")
				}
			}
			reasons[why]++
			if slow && strings.Contains(why, "SANDBOX_SLOW=1") {
				failed = append(failed, at)
			}
		}
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Printf("%6d skipped: %s\n", reasons[why], why)
	}
	total := 0
	for _, n := range passed {
		total += n
	}
	said := failures(failed, outputs)
	fmt.Printf("%s%d passed, %d failed\n", said, total, len(failed))
	if len(os.Args) > 1 {
		f, err := os.OpenFile(os.Args[1], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(said)
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	if len(failed) > 0 || total == 0 || lines.Err() != nil {
		os.Exit(1)
	}
}

// failures describes the failed tests. It omits tests that failed only because a subtest did.
func failures(failed []test, outputs map[test][]string) string {
	var text strings.Builder
	for _, at := range failed {
		own := outputs[at]
		inner := slices.ContainsFunc(failed, func(f test) bool { return f.pkg == at.pkg && strings.HasPrefix(f.name, at.name+"/") })
		if inner && len(own) <= 1 {
			continue
		}
		if at.name == "" { // the output of a panic belongs to the running test
			for _, name := range slices.SortedFunc(maps.Keys(outputs), func(a, b test) int { return strings.Compare(a.name, b.name) }) {
				if name.pkg == at.pkg && name.name != "" {
					own = append(own, outputs[name]...)
				}
			}
		}
		said := strings.Join(own, "")
		again := cmp.Or(os.Getenv("AGAIN"), "go test -count=1")
		if m := seed.FindString(said); m != "" {
			again = m + " " + again
		}
		if at.name != "" {
			again += " -run '^" + strings.ReplaceAll(regexp.QuoteMeta(at.name), "/", "$/^") + "$'"
		}
		fmt.Fprintf(&text, "\n%s %s\n%sagain: %s %s\n", at.pkg, at.name, said, again, at.pkg)
	}
	return text.String()
}
