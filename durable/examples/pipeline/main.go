// Pipeline is a one-shot pipeline as a workflow: it makes a sandbox, runs steps,
// returns an artifact, and always cleans up. Each step runs once, whatever
// crashes meanwhile; a step that fails ends the pipeline.
//
//	temporal server start-dev        # or TEMPORAL_ADDRESS, for a cluster
//	sandbox-emulator go run ./examples/pipeline
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
)

// Step is one command of the pipeline.
type Step struct{ Name, Script string }

// Pipeline runs the steps in a sandbox of its own and returns what the last one
// wrote.
func Pipeline(ctx workflow.Context, steps []Step) (artifact string, err error) {
	sb, err := durable.Open(ctx, &durable.Options{})
	if err != nil {
		return "", err
	}
	// Also after a failure and a cancellation.
	defer func() { err = errors.Join(err, sb.Delete(ctx)) }()
	for _, step := range steps {
		res, err := sb.Run(ctx, "bash", []string{"-ec", step.Script}, nil)
		if err == nil {
			err = res.Err()
		}
		if err != nil {
			return "", fmt.Errorf("step %s: %w", step.Name, err)
		}
		artifact = res.Tail
	}
	return artifact, nil
}

var steps = []Step{
	{"generate", "seq 1000 > numbers"},
	{"sum", "awk '{ s += $1 } END { print s }' numbers > sum"},
	{"publish", "cat sum"},
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	sandboxes, err := sandbox.NewClient(nil)
	if err != nil {
		return err
	}
	c, err := client.DialContext(ctx, client.Options{HostPort: os.Getenv("TEMPORAL_ADDRESS")})
	if err != nil {
		return fmt.Errorf("%w (start a server with \"temporal server start-dev\", or set TEMPORAL_ADDRESS)", err)
	}
	defer c.Close()
	w := worker.New(c, "pipelines", worker.Options{})
	(&durable.Worker{Client: sandboxes}).Register(w)
	w.RegisterWorkflow(Pipeline)
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	started, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: "pipelines"}, Pipeline, steps)
	if err != nil {
		return err
	}
	var artifact string
	if err := started.Get(ctx, &artifact); err != nil {
		return err
	}
	fmt.Print("the artifact: ", artifact)
	return nil
}
