// Devserver runs a development server in a sandbox. It uploads and starts the
// server, waits until the log says that it is ready and its public address
// responds, and keeps the sandbox running until Ctrl-C.
//
//	go run ./cmd/sandbox-emulator go run ./examples/devserver # needs node
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"time"

	"github.com/go-vercel/sandbox"
)

const port = 3000

//go:embed server.js
var program string

func main() {
	once := flag.Bool("once", false, "end after the first response")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *once)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, once bool) (err error) {
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ports: []int{port}, Timeout: 2 * time.Minute, Ephemeral: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()

	if err := sb.WriteFiles(ctx, []sandbox.File{{Path: "server.js", Content: []byte(program)}}, nil); err != nil {
		return err
	}
	server, err := sb.StartCommand(ctx, "node", []string{"server.js"}, nil)
	if err != nil {
		return err
	}

	starting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	line, err := server.WaitForLog(starting, regexp.MustCompile(`^ready on port \d+`))
	if err != nil {
		return err
	}
	fmt.Println("The server says:", line)
	address, err := sb.WaitForPort(starting, port, nil)
	if err != nil {
		return err
	}
	fmt.Println("It listens at", address)
	if err := show(ctx, address+"/first"); err != nil || once {
		return err
	}

	fmt.Println("Press Ctrl-C to stop it.")
	return sb.KeepAlive(ctx, nil)
}

// show prints the server's response.
func show(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	// Don't follow redirects: the sandbox could send this client to an address of
	// this machine's network.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}
