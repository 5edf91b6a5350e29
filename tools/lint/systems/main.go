// Systems type-checks the module in the current folder, with its tests, for
// operating systems other than this one, each as its GOOS or GOOS/GOARCH, and
// compiles nothing.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	failed := false
	for _, system := range os.Args[1:] {
		goos, goarch, _ := strings.Cut(system, "/")
		found, err := packages.Load(&packages.Config{
			// All from source: what is imported without the bodies of its functions.
			Mode:  packages.LoadAllSyntax,
			Env:   append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"), // an empty one is this machine's
			Tests: true,
		}, "./...")
		if err != nil || len(found) == 0 {
			fmt.Fprintln(os.Stderr, system, len(found), "packages:", err)
			failed = true
		}
		failed = packages.PrintErrors(found) > 0 || failed
	}
	if failed {
		os.Exit(1)
	}
}
