// Forks prepares a base sandbox once and forks it: each fork starts with the
// base's files and is independent from then on.
//
//	go run ./examples/forks
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/go-vercel/sandbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	// Set up once: later runs find it ready until it is deleted.
	base, err := sandbox.GetOrCreate(ctx, "forks-base", &sandbox.CreateOptions{
		Tags: map[string]string{"role": "base"},
		OnCreate: func(ctx context.Context, sb *sandbox.Sandbox) error {
			fmt.Println("Setting the base up…") // npm ci, pip install, a database dump…
			return sb.WriteFiles(ctx, []sandbox.File{{Path: "data.txt", Content: []byte("from the base\n")}}, nil)
		},
	})
	if err != nil {
		return err
	}
	// A real program keeps its base.
	defer func() { err = errors.Join(err, base.Delete(context.WithoutCancel(ctx), nil)) }()

	// A fork starts from the base's current snapshot, which stopping creates.
	// Unlike Close, Stop waits for it.
	if _, err := base.Stop(ctx, nil); err != nil {
		return err
	}
	for _, name := range []string{"forks-red", "forks-blue"} {
		if err := work(ctx, base.Name(), name); err != nil {
			return err
		}
	}

	// The base is not affected by its forks.
	data, err := base.FS().ReadFile(ctx, "data.txt")
	if err != nil {
		return err
	}
	fmt.Printf("%s has:\n%s", base.Name(), data)
	return nil
}

// work makes a fork, changes its files and shows them.
func work(ctx context.Context, base, name string) (err error) {
	fork, err := sandbox.Fork(ctx, base, &sandbox.ForkOptions{
		Name: name,
		Tags: map[string]string{"role": "fork"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fork.Delete(context.WithoutCancel(ctx), nil)) }()

	if err := fork.FS().AppendFile(ctx, "data.txt", []byte("and "+name+"\n")); err != nil {
		return err
	}
	data, err := fork.FS().ReadFile(ctx, "data.txt")
	if err != nil {
		return err
	}
	fmt.Printf("%s has:\n%s", fork.Name(), data)
	return nil
}
