// Shell opens a terminal in a sandbox, like ssh on a server: editors work,
// Ctrl-C is sent to the sandbox, the window can be resized. The named sandbox
// is created if it does not exist, and kept.
//
//	go run ./examples/shell -name work
//	go run ./examples/shell -sudo -- top
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/terminal"
)

func main() {
	name := flag.String("name", "shell", "name of the sandbox")
	sudo := flag.Bool("sudo", false, "be root")
	flag.Parse()
	code, err := run(context.Background(), *name, *sudo, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 255 // like ssh
	}
	os.Exit(code)
}

func run(ctx context.Context, name string, sudo bool, command []string) (int, error) {
	sb, err := sandbox.GetOrCreate(ctx, name, nil)
	if err != nil {
		return 0, err
	}
	opts := &terminal.ShellOptions{Sudo: sudo}
	if len(command) > 0 {
		opts.Command, opts.Args = command[0], command[1:]
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _ = sb.KeepAlive(ctx, nil) }() // no timeout while the terminal is open
	return terminal.Run(ctx, sb, opts, nil)
}
