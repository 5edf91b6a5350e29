package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/outputs"
)

// Without writers the output is kept, and can be read afterwards.
func ExampleSandbox_RunCommand() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	done, err := sb.RunCommand(ctx, "sh", []string{"-c", `echo "hello $WHO"; echo oops >&2; exit 1`}, &sandbox.CommandOptions{
		Env:     map[string]string{"WHO": "world"},
		Timeout: time.Minute,
	})
	if err != nil {
		log.Fatal(err) // the sandbox failed, not the command
	}
	stdout, err := done.Stdout(ctx)
	if err != nil {
		log.Fatal(err)
	}
	stderr, err := done.Stderr(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d %q %q\n", done.ExitCode, stdout, stderr)
	// Output: 1 "hello world\n" "oops\n"
}

func ExampleSandbox_RunCommand_sudo() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	if _, err := sb.RunCommand(ctx, "dnf", []string{"install", "-y", "jq"}, &sandbox.CommandOptions{
		Sudo:   true,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	}); err != nil {
		log.Fatal(err)
	}
}

// A command can outlive the program that started it. Another program that knows its ID can
// wait for it.
func ExampleSandbox_StartCommand() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	cmd, err := sb.StartCommand(ctx, "sh", []string{"-c", "sleep 0.2; echo trained; exit 7"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	id := cmd.ID()

	again, err := sb.GetCommand(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	done, err := again.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	out, err := done.Stdout(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(done.ExitCode, " ", out)
	// Output: 7 trained
}

func ExampleCommand_Logs() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	cmd, err := sb.StartCommand(ctx, "sh", []string{"-c", "echo compiling; sleep 0.3; echo 'a warning' >&2; sleep 0.3; echo done"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for line, err := range cmd.Logs(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s", line.Stream, line.Data)
	}
	// Output:
	// stdout: compiling
	// stderr: a warning
	// stdout: done
}

func ExampleCommand_Kill() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	cmd, err := sb.StartCommand(ctx, "sleep", []string{"1000"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := cmd.Signal(ctx, sandbox.SIGTERM); err != nil {
		log.Fatal(err)
	}
	done, err := cmd.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.ExitCode == 128+int(sandbox.SIGTERM))
	// Output: true
}

// An interrupted program lists the commands in its sandbox.
func ExampleSandbox_ListCommands() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	if _, err := sb.RunCommand(ctx, "false", nil, nil); err != nil {
		log.Fatal(err)
	}
	cmds, err := sb.ListCommands(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, cmd := range cmds {
		code, exited := cmd.ExitStatus()
		fmt.Println(cmd.Name(), exited, code)
	}
	// Output: false true 1
}

// Code that uses os/exec works with a Cmd of a sandbox.
func ExampleSandbox_CommandContext() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	cmd := sb.CommandContext(ctx, "tr", "a-z", "A-Z")
	cmd.Stdin = strings.NewReader("some input\n")
	out, err := cmd.Output()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(out))

	err = sb.CommandContext(ctx, "sh", "-c", "exit 5").Run()
	if exit, ok := errors.AsType[*sandbox.ExitError](err); ok {
		fmt.Println("exit code", exit.ExitCode())
	}
	err = sb.CommandContext(ctx, "no-such-program").Run()
	fmt.Println(errors.Is(err, exec.ErrNotFound))
	// Output:
	// SOME INPUT
	// exit code 5
	// true
}

// The error tells a failed program from a failed sandbox.
func ExampleExitError() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	run := func(name string, args ...string) {
		err := sb.CommandContext(ctx, name, args...).Run()
		exit, failed := errors.AsType[*sandbox.ExitError](err)
		switch {
		case err == nil:
			fmt.Println("success")
		case failed:
			fmt.Println("the program failed with", exit.ExitCode())
		default:
			fmt.Println("the sandbox failed")
		}
	}
	run("true")
	run("sh", "-c", "exit 3")
	run("sh", "-c", "kill -9 $$")
	if err := sb.Delete(ctx, nil); err != nil {
		log.Fatal(err)
	}
	run("true")
	// Output:
	// success
	// the program failed with 3
	// the program failed with 137
	// the sandbox failed
}

// A limit on the output ends a program that would never end.
func ExampleSandbox_RunCommand_limit() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	tail := &outputs.Tail{Max: 4}
	_, err = sb.RunCommand(ctx, "yes", nil, &sandbox.CommandOptions{
		Stdout:       outputs.Limit(tail, 1<<20),
		KillOnCancel: true,
	})
	fmt.Printf("%v, %d bytes, the last %q\n", errors.Is(err, outputs.ErrLimit), tail.Total(), tail)
	// Output: true, 1048576 bytes, the last "y\ny\n"
}

// Start a server and wait for its first response.
func ExampleSandbox_WaitForPort() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ports: []int{8000}, Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	if _, err := sb.StartCommand(ctx, "python3", []string{"-m", "http.server", "8000"}, nil); err != nil {
		log.Fatal(err)
	}
	address, err := sb.WaitForPort(ctx, 8000, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("open", address)
}

func ExampleCommand_WaitForLog() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	cmd, err := sb.StartCommand(ctx, "sh", []string{"-c", "echo compiling; sleep 0.1; echo 'ready in 100 ms'; sleep 1000"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	line, err := cmd.WaitForLog(ctx, regexp.MustCompile(`^ready in`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(line)
	// Output: ready in 100 ms
}

// Keep the sandbox running during long work.
func ExampleSandbox_KeepAlive() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	working, done := context.WithCancel(ctx)
	kept := make(chan error, 1)
	go func() { kept <- sb.KeepAlive(working, nil) }()

	if _, err := sb.RunCommand(ctx, "sleep", []string{"0.1"}, nil); err != nil { // in place of hours of work
		log.Fatal(err)
	}
	done()
	fmt.Println(<-kept)
	// Output: <nil>
}

// If the response to a command is lost, the command may or may not run. The SDK does not
// send it again. This program looks it up.
func ExampleRequestError() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	_, err = sb.RunCommand(ctx, "./migrate", nil, nil)
	if errors.Is(err, sandbox.ErrOutcomeUnknown) {
		cmds, err := sb.ListCommands(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, cmd := range cmds {
			if cmd.Name() == "./migrate" {
				fmt.Println("it arrived:", cmd.ID())
			}
		}
	}
}

// If an output stream can't be resumed, the error names the command.
func ExampleStreamError() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	_, err = sb.RunCommand(ctx, "make", []string{"world"}, &sandbox.CommandOptions{Stdout: os.Stdout})
	if e, ok := errors.AsType[*sandbox.StreamError](err); ok && e.CommandID != "" {
		cmd, err := sb.GetCommand(ctx, e.CommandID)
		if err != nil {
			log.Fatal(err)
		}
		done, err := cmd.Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("exit code", done.ExitCode)
	}
}
