package session_test

import (
	"context"
	"fmt"
	"log"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
)

// hello starts a session, prints the output of a command, and destroys the session.
func hello(ctx context.Context, c client.Client, sandboxes *sandbox.Client) error {
	output := durable.Dir("output")
	w := worker.New(c, "sandbox", worker.Options{})
	session.Register(w, &durable.Worker{Client: sandboxes, Output: output})
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()

	sessions := session.New(c, &session.Options{Sandbox: sandboxes, Output: output})
	id, err := sessions.Start(ctx, nil)
	if err != nil {
		return err
	}
	commandID, err := sessions.Command(ctx, id, session.Command{Command: "echo Hello", Key: "hello"})
	if err != nil {
		return err
	}
	for event, err := range sessions.Events(ctx, id, session.Cursor{}) {
		if err != nil {
			return err
		}
		switch {
		case event.ID != commandID: // another command, or a state of the session
		case event.Type == session.TypeCommandOutput:
			fmt.Print(event.Data)
		case event.Type == session.TypeCommandEnd:
			// The events end with the session, and the loop with them.
			if err := sessions.Destroy(ctx, id, &session.DestroyOptions{DeleteSandbox: true}); err != nil {
				return err
			}
		}
	}
	return nil
}

// A worker and a client of sessions in one program.
func Example() {
	c, err := client.Dial(envconfig.MustLoadDefaultClientOptions()) // reads TEMPORAL_ADDRESS
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sandboxes, err := sandbox.NewClient(nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := hello(context.Background(), c, sandboxes); err != nil {
		log.Fatal(err)
	}
}
