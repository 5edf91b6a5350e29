// Command mutation breaks the code on purpose, one place at a time, and reports
// which of the breaks no test notices. It is not part of the ordinary tests: a
// run takes from minutes to hours.
//
//	go -C tools/mutation run . bugs            # bugs.txt, each against the test that it names
//	go -C tools/mutation run . guards          # guards.txt: conditions and statements of the heart
//	go -C tools/mutation run . security        # security.txt: conditions that keep attacks out
//	go -C tools/mutation run . edges           # edges.txt: the packages around the heart
//	go -C tools/mutation run . -sample 10 -near guards
//	go -C tools/mutation run . list guards     # chooses rows in place of those whose code is gone
//	go -C tools/mutation run . sites security  # all that there is to choose from
//
// The working tree is not changed: what is broken is given to the compiler with
// -overlay.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	sample := flag.Int("sample", 0, "`number` of rows to run, chosen at random; zero means all")
	only := flag.String("only", "", "run only rows that match this `pattern`")
	names := flag.String("run", "", "run only tests whose names match this `pattern`, for rows that were tried before")
	near := flag.Bool("near", false, "leave out the tests under faults, which take minutes each")
	limit := flag.Duration("limit", 2*time.Minute, "`time` that one run may take")
	flag.Parse()
	if err := run(flag.Args(), *sample, *only, options{*names, *near, *limit}); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

// options say which tests are run.
type options struct {
	names string // a pattern
	near  bool
	limit time.Duration
}

func run(args []string, sample int, only string, o options) error {
	work, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("finding the root of the project: %w", err)
	}
	if err := os.Chdir(strings.TrimSpace(string(root))); err != nil {
		return err
	}
	home := filepath.Join("tools", "mutation")
	if len(args) == 0 {
		args = []string{""}
	}
	l := lists[args[len(args)-1]]
	if l == nil {
		l = &list{}
	}
	file := filepath.Join(home, l.name+".txt")
	switch what := args[0]; {
	case what == "bugs":
		bugs, err := readBugs(filepath.Join(home, "bugs.txt"))
		if err != nil {
			return err
		}
		return report(chosen(bugs, sample, only), func(b bug) (string, error) { return b.try(work, o.limit) })
	case l.name == "":
	case what == l.name:
		rows, err := l.load(file)
		if err != nil {
			return err
		}
		return l.try(work, chosen(rows, sample, only), o)
	case what == "list":
		return l.write(file)
	case what == "sites":
		return l.print(only)
	}
	return fmt.Errorf("%q is not bugs, guards, security, edges, or list or sites of the last three", strings.Join(args, " "))
}

// chosen returns the rows that contain a text, or some of them.
func chosen[T fmt.Stringer](rows []T, sample int, only string) []T {
	var out []T
	pattern := regexp.MustCompile(only)
	for _, r := range rows {
		if pattern.MatchString(r.String()) {
			out = append(out, r)
		}
	}
	if sample > 0 && sample < len(out) {
		rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		out = out[:sample]
	}
	return out
}

// The outcomes of a break.
const (
	noticed   = "noticed"
	survived  = "SURVIVED"
	unreached = "UNREACHED" // by any test
	hangs     = "noticed (hangs)"
	hung      = "HUNG" // with the break and without it, on a busy machine
)

// report tries each row, prints its outcome and then the score.
func report[T fmt.Stringer](rows []T, try func(T) (string, error)) error {
	n := 0
	for _, r := range rows {
		began := time.Now()
		outcome, err := try(r)
		if err != nil { // the row says nothing, which the score must not hide
			outcome = err.Error()
		}
		if outcome == noticed || outcome == hangs {
			n++
		}
		fmt.Printf("%s\t%4.0fs\t%v\n", outcome, time.Since(began).Seconds(), r)
	}
	fmt.Printf("%d of %d noticed\n", n, len(rows))
	if n < len(rows) {
		return fmt.Errorf("%d survived, or could not be tried", len(rows)-n)
	}
	return nil
}
