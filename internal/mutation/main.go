// Command mutation breaks the code on purpose, one place at a time, and reports
// which of the breaks no test notices. It is not part of the ordinary tests: a
// run takes from minutes to hours.
//
//	go run ./internal/mutation bugs            # bugs.txt, each against the test that it names
//	go run ./internal/mutation guards          # guards.txt: conditions and statements of the heart
//	go run ./internal/mutation -sample 10 -near guards
//	go run ./internal/mutation list            # chooses guards.txt again, by its seed
//
// Run it in the root of the module. The working tree is not changed: what is
// broken is given to the compiler with -overlay.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	sample := flag.Int("sample", 0, "`number` of rows to run, chosen at random; zero means all")
	only := flag.String("only", "", "run only rows that contain this `text`")
	near := flag.Bool("near", false, "leave out the tests under faults, which take minutes each")
	limit := flag.Duration("limit", 2*time.Minute, "`time` that one run may take")
	flag.Parse()
	if err := run(flag.Arg(0), *sample, *only, *near, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

func run(what string, sample int, only string, near bool, limit time.Duration) error {
	work, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	home := filepath.Join("internal", "mutation")
	switch what {
	case "bugs":
		bugs, err := readBugs(filepath.Join(home, "bugs.txt"))
		if err != nil {
			return err
		}
		return report(chosen(bugs, sample, only), func(b bug) (string, error) { return b.try(work, limit) })
	case "guards":
		rows, err := readGuards(filepath.Join(home, "guards.txt"))
		if err != nil {
			return err
		}
		return tryGuards(work, chosen(rows, sample, only), near, limit)
	case "list":
		return writeGuards(filepath.Join(home, "guards.txt"))
	}
	return fmt.Errorf("%q is not bugs, guards or list", what)
}

// chosen returns the rows that contain a text, or some of them.
func chosen[T fmt.Stringer](rows []T, sample int, only string) []T {
	var out []T
	for _, r := range rows {
		if strings.Contains(r.String(), only) {
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
	noticed  = "noticed"
	survived = "SURVIVED"
	hung     = "HUNG" // which counts as neither: a busy machine looks the same
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
		if outcome == noticed {
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
