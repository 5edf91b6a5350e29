// Testlog reads what `go test -json` prints and prints what a reader needs: each
// package's result, the whole output of tests that failed, the slowest tests,
// and what was skipped, with the reasons. Its exit code is 1 when a test failed
// or none ran.
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

func main() {
	outputs := map[string][]string{} // by package and test
	counts := map[string]int{}
	reasons := map[string]int{}
	took := map[string]float64{}
	reason := regexp.MustCompile(`^ +\S+\.go:\d+: (.*)\n$`)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Println(in.Text()) // what the go command itself says
			continue
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			outputs[key] = append(outputs[key], e.Output)
			if e.Action == "build-output" {
				fmt.Print(e.Output)
			}
		case "build-fail":
			counts["fail"]++
		case "pass", "fail", "skip":
			if e.Test == "" {
				if e.Action != "skip" { // without test files
					fmt.Printf("%-4s %-70s %6.1fs\n", e.Action, e.Package, e.Elapsed)
				}
				if e.Action == "fail" {
					counts["fail"]++
					fmt.Print(strings.Join(outputs[key], ""))
				}
				break
			}
			counts[e.Action]++
			took[key] = e.Elapsed
			switch e.Action {
			case "fail":
				fmt.Printf("--- FAIL: %s\n%s", key, strings.Join(outputs[key], ""))
			case "skip":
				text := "without a reason"
				for _, line := range outputs[key] {
					if m := reason.FindStringSubmatch(line); m != nil {
						text = m[1]
					}
				}
				reasons[text]++
			}
			delete(outputs, key)
		}
	}
	fmt.Println("slowest:")
	slowest := slices.SortedFunc(maps.Keys(took), func(a, b string) int { return cmp.Compare(took[b], took[a]) })
	for _, key := range slowest[:min(8, len(slowest))] {
		fmt.Printf("%7.1fs %s\n", took[key], key)
	}
	if len(reasons) > 0 {
		fmt.Println("skipped, because:")
	}
	for _, text := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Printf("%6d × %s\n", reasons[text], text)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", counts["pass"], counts["fail"], counts["skip"])
	if counts["fail"] > 0 || counts["pass"] == 0 || in.Err() != nil {
		os.Exit(1)
	}
}
