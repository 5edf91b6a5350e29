package sandboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// In a test, use [sandboxtest.New], which closes the server itself.
func Example() {
	srv, err := sandboxtest.NewServer(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	ctx := context.Background()

	sb, err := srv.Client().Create(ctx, &sandbox.CreateOptions{Name: "build"})
	if err != nil {
		log.Fatal(err)
	}
	done, err := sb.RunCommand(ctx, "sh", []string{"-c", "echo built > result; exit 3"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit code", done.ExitCode)

	// The session reaches its timeout at once. The next call starts another one with the
	// files of the first.
	srv.Advance(time.Hour)
	done, err = sb.RunCommand(ctx, "cat", []string{"result"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	text, err := done.Stdout(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(text)
	// Output:
	// exit code 3
	// built
}

func ExampleServer_HandleCommand() {
	srv, err := sandboxtest.NewServer(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	srv.HandleCommand("npm install", func(_ context.Context, inv *sandboxtest.Invocation) int {
		fmt.Fprintln(inv.Stdout, "added 1 package")
		return 0
	})

	ctx := context.Background()
	sb, err := srv.Client().Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	done, err := sb.RunCommand(ctx, "npm", []string{"install", "--silent"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	text, err := done.Stdout(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(text)
	// Output: added 1 package
}

func ExampleServer_Inject() {
	srv, err := sandboxtest.NewServer(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	ctx := context.Background()
	sb, err := srv.Client().Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}

	// The connection breaks in the middle of the output. The client resumes the
	// stream.
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, CutAfterBytes: 1000, Times: 1})
	done, err := sb.RunCommand(ctx, "seq", []string{"1000"}, &sandbox.CommandOptions{Stdout: io.Discard})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit code", done.ExitCode)
	// Output: exit code 0
}

// A program that creates sandboxes from its own image finds an image with that name. The
// image has the programs of this machine.
func ExampleOptions_images() {
	srv, err := sandboxtest.NewServer(&sandboxtest.Options{
		Images: []string{"team/toolchain:v1"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	ctx := context.Background()
	sb, err := srv.Client().Create(ctx, &sandbox.CreateOptions{Image: "team/toolchain:v1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.HasPrefix(sb.Info().Image, "team/toolchain@sha256:"))

	_, err = srv.Client().Create(ctx, &sandbox.CreateOptions{Image: "team/toolchain:v2"})
	fmt.Println(errors.Is(err, sandbox.ErrNotFound))
	// Output:
	// true
	// true
}
