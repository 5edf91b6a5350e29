package terminal_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/terminal"
)

// A program in a terminal, driven by another program.
func ExampleOpen() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	shell, err := terminal.Open(ctx, sb, &terminal.ShellOptions{Command: "bash", Cols: 120, Rows: 40})
	if err != nil {
		log.Fatal(err)
	}
	defer shell.Close()
	if _, err := shell.Write([]byte("tput cols; exit\n")); err != nil {
		log.Fatal(err)
	}
	if _, err := io.Copy(os.Stdout, shell); err != nil {
		log.Fatal(err)
	}
	code, err := shell.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit code", code)
}
