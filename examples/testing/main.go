// Testing shows how to test code that uses sandboxes: the program grades
// answers to an exercise, and its test runs it on the emulator.
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
		log.Fatal("usage: testing PYTHON-PROGRAM, which adds up the numbers of its input")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := sandbox.NewClient(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseIdleConnections()
	verdict, err := Grade(ctx, client, os.Args[1])
	if err != nil {
		stop()
		log.Fatal(err)
	}
	fmt.Println(verdict)
}
