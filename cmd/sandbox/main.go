// Sandbox is the command line of Vercel Sandbox: it makes sandboxes, runs
// commands in them, and copies files to and from them.
//
//	sandbox run -- node -e "console.log('hello')"
//	sandbox --local run -- python3 -c 'print(1)'
//
// It accepts the command lines of the official CLI (npm "sandbox") with the same standard
// output and exit codes, and has more commands and options. docs/cli.md in the repository
// lists them all. With --local everything runs on an emulator on this machine, without an
// account.
package main

import (
	"os"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
