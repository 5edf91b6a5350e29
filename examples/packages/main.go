// Packages installs software as root and uses it as the ordinary user, in this
// session and the next.
//
//	go run ./examples/packages              # a program of its own
//	go run ./examples/packages -package jq  # a package of the distribution
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/go-vercel/sandbox"
)

// installPackage installs $1 with the available package manager: dnf on the
// platform, perhaps apt-get where the emulator runs.
const installPackage = `
if command -v dnf >/dev/null; then
	dnf install -y -q "$1"
else
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$1"
fi`

func main() {
	pkg := flag.String("package", "", "a package of the distribution, which is fetched; empty installs a small program without any network")
	program := flag.String("program", "", "the program of the package, if it has another name")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *program == "" {
		*program = *pkg
	}
	if err := run(ctx, *pkg, *program); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, pkg, program string) (err error) {
	sb, err := sandbox.GetOrCreate(ctx, "packages-example", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Delete(context.WithoutCancel(ctx), nil)) }()

	// On the emulator root is real only where that runs as root on Linux.
	if asRoot(ctx, sb, "test", "-w", "/usr/local/bin") != nil {
		return errors.New("root can't write to /usr/local/bin in this sandbox: the emulator has to run as root on Linux for this example")
	}
	if pkg != "" {
		err = asRoot(ctx, sb, "sh", "-c", installPackage, "sh", pkg)
	} else {
		program = "greet"
		err = fromSource(ctx, sb)
	}
	if err != nil {
		return err
	}
	if err := use(ctx, sb, program); err != nil {
		return err
	}
	// Installed software outlives the session, like all files.
	if _, err := sb.Stop(ctx, nil); err != nil {
		return err
	}
	return use(ctx, sb, program)
}

// fromSource does what "sudo make install" does.
func fromSource(ctx context.Context, sb *sandbox.Sandbox) error {
	if err := sb.WriteFiles(ctx, []sandbox.File{{Path: "greet", Content: []byte("#!/bin/sh\necho \"greet 1.0, run by $(id -un)\"\n")}}, nil); err != nil {
		return err
	}
	return asRoot(ctx, sb, "install", "-m", "755", "greet", "/usr/local/bin/greet")
}

// asRoot runs a command as root, and fails when it does.
func asRoot(ctx context.Context, sb *sandbox.Sandbox, name string, args ...string) error {
	done, err := sb.RunCommand(ctx, name, args, &sandbox.CommandOptions{Sudo: true, Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		return err
	}
	if done.ExitCode != 0 {
		return fmt.Errorf("%s exited with %d", name, done.ExitCode)
	}
	return nil
}

// use shows where the program is and what version it reports.
func use(ctx context.Context, sb *sandbox.Sandbox, program string) error {
	done, err := sb.RunCommand(ctx, "sh", []string{"-c", `command -v "$1" && "$1" --version`, "sh", program},
		&sandbox.CommandOptions{Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		return err
	}
	if done.ExitCode != 0 {
		return fmt.Errorf("%s is not installed", program)
	}
	return nil
}
