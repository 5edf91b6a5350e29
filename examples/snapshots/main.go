// Snapshots saves a sandbox's files before something risky and rolls them back
// if it went wrong.
//
//	go run ./cmd/sandbox-emulator go run ./examples/snapshots
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/go-vercel/sandbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	sb, err := sandbox.GetOrCreate(ctx, "snapshots-example", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Delete(context.WithoutCancel(ctx), nil)) }()

	if err := sb.FS().WriteFile(ctx, "db.txt", []byte("version 1\n"), 0o644); err != nil {
		return err
	}
	// A snapshot stops the session; the next call starts a new one from it.
	good, err := sb.Snapshot(ctx, &sandbox.SnapshotOptions{Expiration: 7 * 24 * time.Hour})
	if err != nil {
		return err
	}
	fmt.Printf("Saved %d bytes as %s\n", good.Info().SizeBytes, good.ID())

	migration, err := sb.RunCommand(ctx, "sh", []string{"-c", "echo garbage > db.txt; exit 1"}, nil)
	if err != nil {
		return err
	}
	if err := show(ctx, sb, "After the migration"); err != nil {
		return err
	}
	if migration.ExitCode != 0 {
		fmt.Println("It failed: rolling back")
		// Stop takes a snapshot of the current files and makes it the sandbox's
		// current snapshot, so choose the saved one afterwards.
		if _, err := sb.Stop(ctx, nil); err != nil {
			return err
		}
		if err := sb.Update(ctx, &sandbox.UpdateOptions{CurrentSnapshotID: good.ID()}); err != nil {
			return err
		}
	}
	if err := show(ctx, sb, "After the rollback"); err != nil {
		return err
	}

	// Another sandbox starts from the same snapshot.
	twin, err := sandbox.Create(ctx, &sandbox.CreateOptions{
		Source:    sandbox.SnapshotSource{SnapshotID: good.ID()},
		Ephemeral: true,
	})
	if err != nil {
		return err
	}
	defer twin.Close()
	if err := show(ctx, twin, "In a sandbox made from the snapshot"); err != nil {
		return err
	}

	fmt.Println("The sandbox's snapshots, the latest first:")
	for info, err := range sb.ListSnapshots(ctx, &sandbox.PageOptions{SortOrder: sandbox.Descending}) {
		if err != nil {
			return err
		}
		fmt.Printf("  %s by %s\n", info.ID, info.CreationMethod)
	}
	return nil
}

func show(ctx context.Context, sb *sandbox.Sandbox, when string) error {
	data, err := sb.FS().ReadFile(ctx, "db.txt")
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s", when, data)
	return nil
}
