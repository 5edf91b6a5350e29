package durable_test

import (
	"log"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
)

func Build(ctx workflow.Context, script string) (string, error) {
	sb, err := durable.Open(ctx, &durable.Options{})
	if err != nil {
		return "", err
	}
	defer sb.Close(ctx) // also after a cancellation
	res, err := sb.Run(ctx, "bash", []string{"-ec", script}, nil)
	if err != nil {
		return "", err
	}
	return res.Tail, res.Err()
}

// A worker for workflows that use a sandbox.
func Example() {
	c, err := client.Dial(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sandboxes, err := sandbox.NewClient(nil)
	if err != nil {
		log.Fatal(err)
	}
	w := worker.New(c, "sandbox", worker.Options{})
	w.RegisterWorkflow(Build)
	(&durable.Worker{Client: sandboxes, Output: durable.Dir("output")}).Register(w)
	if err := w.Run(worker.InterruptCh()); err != nil {
		log.Fatal(err)
	}
}
