// Testing shows how to test code that uses sandboxes: a program that grades
// answers to an exercise, with a test that runs it on the emulator.
//
//	go run ./examples/testing 'print(sum(map(int, input().split())))'
//	go test ./examples/testing
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/go-vercel/sandbox"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: testing PROGRAM (in Python, to add up the numbers of its input)")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1])
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, answer string) error {
	client, err := sandbox.NewClient(nil)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	verdict, err := Grade(ctx, client, answer)
	if err != nil {
		return err
	}
	fmt.Println(verdict)
	return nil
}
