// Shell opens a terminal in a sandbox, as ssh does on a server: editors and
// Ctrl-C work, and the window can be resized. It creates the named sandbox if it
// does not exist, and stops it at the end. The files stay.
//
//	go run ./cmd/sandbox-emulator go run ./examples/shell
//	go run ./examples/shell -name work -sudo -- top # with an account
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
	defer sb.Close()
	opts := &terminal.ShellOptions{Sudo: sudo}
	if len(command) > 0 {
		opts.Command, opts.Args = command[0], command[1:]
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _ = sb.KeepAlive(ctx, nil) }() // no timeout while the terminal is open
	return terminal.Run(ctx, sb, opts, nil)
}
