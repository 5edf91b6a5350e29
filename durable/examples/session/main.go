// Session serves durable sessions from your own program, with any Temporal cluster. Start it on
// as many machines as you like, with the same task queue.
//
//	temporal server start-dev
//	TOKEN=secret sandbox-emulator go run ./examples/session -addr 127.0.0.1:8088
//
// TEMPORAL_ADDRESS and the other variables of Temporal's programs name another server, such
// as that of devserver.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8088", "address to serve at")
	output := flag.String("output", "output", "folder of the commands' output, shared by all processes")
	flag.Parse()
	if err := run(*addr, *output); err != nil {
		log.Fatal(err)
	}
}

func run(addr, output string) error {
	sandboxes, err := sandbox.NewClient(nil)
	if err != nil {
		return err
	}
	o, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return err
	}
	c, err := client.Dial(o)
	if err != nil {
		return fmt.Errorf("%w (start a server with \"temporal server start-dev\", or set TEMPORAL_ADDRESS)", err)
	}
	defer c.Close()
	store := durable.Dir(output)
	w := worker.New(c, "sandbox", worker.Options{})
	session.Register(w, &durable.Worker{Client: sandboxes, Output: store})
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()

	sessions := session.New(c, &session.Options{Sandbox: sandboxes, Output: store, Policy: session.Policy{IdleAfter: 15 * time.Minute}})
	http.Handle("/api/sandbox/", http.StripPrefix("/api/sandbox", sessions.Handler(&session.HandlerOptions{
		Page: true, Authorize: session.Token(os.Getenv("TOKEN")), // without a token, all requests are refused
	})))
	srv := &http.Server{Addr: addr, ReadHeaderTimeout: 10 * time.Second}
	log.Printf("http://%s/api/sandbox/", addr)
	return srv.ListenAndServe()
}
