// Systems type-checks the module in the current folder, with its tests, for other systems. Each
// argument is a system, as GOOS or GOOS/GOARCH. Systems does not compile anything.
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
			// Read all packages from source. The loader skips the function bodies of
			// imported ones.
			Mode:  packages.LoadAllSyntax,
			Env:   append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"), // an empty value stands for this machine's
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
