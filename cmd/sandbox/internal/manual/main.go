// Manual writes the manual pages of sandbox. It is a program of its own, so that
// what it is made of is not part of sandbox.
//
//	go run ./internal/manual DIR
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: manual DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return doc.GenManTreeFromOpts(cli.Manual(), doc.GenManTreeOptions{
		Header: &doc.GenManHeader{Section: "1", Source: "sandbox " + cli.Version(), Manual: "Vercel Sandbox"}, Path: dir, CommandSeparator: "-",
	})
}
