// Drives keeps data on a drive that two sandboxes mount one after the other,
// and lets a third one read it from a snapshot.
//
//	go run ./examples/drives
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
	client, err := sandbox.NewClient(nil)
	if err != nil {
		return err
	}
	// Created by the first run. Sandboxes can only mount drives of their own
	// region, so it is best to name the region on both sides.
	drive, err := client.GetOrCreateDrive(ctx, "drives-shared", &sandbox.DriveOptions{Region: "iad1"})
	if err != nil {
		return err
	}
	// A real program keeps its drive.
	defer func() { err = errors.Join(err, drive.Delete(context.WithoutCancel(ctx))) }()

	// Each sandbox is deleted before the next one is created: the drive
	// remains, and only one session at a time can write to it.
	if err := with(ctx, "drives-first", drive.Mount(sandbox.MountReadWrite), "echo 'measured by the first' > /data/log.txt"); err != nil {
		return err
	}
	if err := with(ctx, "drives-second", drive.Mount(sandbox.MountReadWrite), "cat /data/log.txt; echo 'measured by the second' >> /data/log.txt"); err != nil {
		return err
	}
	// A snapshot is the drive as it is when the session starts. Any number of
	// sandboxes can have one, even while another one writes.
	return with(ctx, "drives-reader", drive.Mount(sandbox.MountSnapshot), "cat /data/log.txt")
}

// with runs a script in a sandbox created for it.
func with(ctx context.Context, name string, mount sandbox.Mount, script string) (err error) {
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{
		Name:      name,
		Region:    "iad1",
		Ephemeral: true, // its files are on the drive
		Mounts:    map[string]sandbox.Mount{"/data": mount},
	})
	if err != nil {
		return err
	}
	// What the session has written is on the drive once it has ended.
	defer func() {
		ctx := context.WithoutCancel(ctx)
		_, stopErr := sb.Stop(ctx, nil)
		err = errors.Join(err, stopErr, sb.Delete(ctx, nil))
	}()
	fmt.Printf("%s has the drive %s (%s):\n", name, mount.Drive, mount.Mode)
	done, err := sb.RunCommand(ctx, "sh", []string{"-ec", script}, &sandbox.CommandOptions{Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		return err
	}
	if done.ExitCode != 0 {
		return fmt.Errorf("the script in %s exited with %d", name, done.ExitCode)
	}
	return nil
}
