// Shell opens a terminal in a sandbox, as ssh does on a server: editors work,
// Ctrl-C goes to the sandbox, the window may change its size. The sandbox of the
// name is made when there is none, and kept.
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
		code = 255 // as ssh has it
	}
	os.Exit(code)
}

func run(ctx context.Context, name string, sudo bool, command []string) (int, error) {
	sb, err := sandbox.GetOrCreate(ctx, name, nil)
	if err != nil {
		return 0, err
	}
	opts := &sandbox.ShellOptions{
		Sudo:      sudo,
		KeepAlive: &sandbox.KeepAliveOptions{}, // not while somebody is typing
	}
	if len(command) > 0 {
		opts.Command, opts.Args = command[0], command[1:]
	}
	return terminal.Run(ctx, sb, opts, nil)
}
