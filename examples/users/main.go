// Users gives two agents in one sandbox a user each, so that they can't read or
// break each other's work, and a directory that they share.
//
//	go run ./cmd/sandbox-emulator go run ./examples/users # needs root
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	sb, err := sandbox.Create(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Delete(context.WithoutCancel(ctx), nil)) }()

	writer, err := sb.CreateUser(ctx, "writer")
	if err != nil {
		return err
	}
	reader, err := sb.CreateUser(ctx, "reader")
	if err != nil {
		return err
	}
	shared, err := sb.CreateGroup(ctx, "team")
	if err != nil {
		return err
	}
	for _, u := range []*sandbox.User{writer, reader} {
		if err := u.AddToGroup(ctx, "team"); err != nil {
			return err
		}
	}

	// A user's relative paths start in the home directory. The files belong to the user.
	err = writer.FS().WriteFiles(ctx, []sandbox.File{
		{Path: "notes/private.txt", Content: []byte("for me only\n"), Mode: new(fs.FileMode(0o600))},
	}, nil)
	if err != nil {
		return err
	}
	_, err = reader.FS().ReadFile(ctx, writer.HomeDir()+"/notes/private.txt")
	fmt.Println("The reader looks at the private notes:", err)
	if !errors.Is(err, fs.ErrPermission) {
		return errors.New("the notes are not private")
	}

	// Commands run as the user.
	done, err := writer.RunCommand(ctx, "sh", []string{"-c", `echo "from $(id -un)" > "$1"`, "sh", shared + "/hello.txt"}, nil)
	if err != nil {
		return err
	}
	if done.ExitCode != 0 {
		return fmt.Errorf("writing to the shared folder: exit code %d", done.ExitCode)
	}
	data, err := reader.FS().ReadFile(ctx, shared+"/hello.txt")
	if err != nil {
		return err
	}
	fmt.Printf("The shared folder has a greeting %s", data)
	return nil
}
