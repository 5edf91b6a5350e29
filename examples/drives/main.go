// Drives keeps data on a drive, which outlives sandboxes. Two sandboxes mount it
// one after the other to write to it, and a third one reads a snapshot of it. To
// start from files instead of sharing them, use Sandbox.Fork.
//
//	go run ./cmd/sandbox-emulator go run ./examples/drives
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
	err := run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	client, err := sandbox.NewClient(nil)
	if err != nil {
		return err
	}
	// A sandbox can only mount drives of its own region, so name the region for both.
	drive, err := client.GetOrCreateDrive(ctx, "drives-shared", &sandbox.DriveOptions{Region: "iad1"})
	if err != nil {
		return err
	}
	// Only this example deletes its drive.
	defer func() { err = errors.Join(err, drive.Delete(context.WithoutCancel(ctx))) }()

	// The drive outlives its sandboxes. Only one session at a time can write to it,
	// so each sandbox is deleted before the next one is created.
	if err := runScript(ctx, "drives-first", drive.Mount(sandbox.MountReadWrite), "echo 'measured by the first' > /data/log.txt"); err != nil {
		return err
	}
	if err := runScript(ctx, "drives-second", drive.Mount(sandbox.MountReadWrite), "cat /data/log.txt; echo 'measured by the second' >> /data/log.txt"); err != nil {
		return err
	}
	// MountSnapshot mounts the drive as it is when the session starts. Any number of
	// sandboxes can do so, even while another one writes.
	return runScript(ctx, "drives-reader", drive.Mount(sandbox.MountSnapshot), "cat /data/log.txt")
}

// runScript runs a script in a new sandbox.
func runScript(ctx context.Context, name string, mount sandbox.Mount, script string) (err error) {
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{
		Name:      name,
		Region:    "iad1",
		Ephemeral: true, // its files are on the drive
		Mounts:    map[string]sandbox.Mount{"/data": mount},
	})
	if err != nil {
		return err
	}
	// The drive gets the session's writes when the session ends, so stop it.
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
