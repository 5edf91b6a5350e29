// Devserver starts Temporal's server, runs a command that finds it in its environment,
// and exits with the command's status:
//
//	devserver [-dir DIR] [-port PORT] COMMAND ARGS…
//
//	devserver sandbox-sessions -emulator
//	devserver temporal workflow list
//
// The command gets the server's address and keys in TEMPORAL_ADDRESS and the
// TEMPORAL_TLS_ variables, as Temporal's own programs read them. Without a command the
// server runs until it is interrupted, and prints these variables.
//
// DIR holds the database from one start to the next. It is this user's alone, and in the
// home directory by default.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/go-vercel/sandbox/durable/devserver"
)

// Exit codes, as a shell has them.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitNotRunnable = 126
	exitNotFound    = 127
	exitSignal      = 128
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program. It returns the exit code.
func run(args []string, stdout, stderr io.Writer) (code int) {
	fail := func(err error) int {
		fmt.Fprintln(stderr, "devserver:", err)
		return exitFailure
	}
	flags := flag.NewFlagSet("devserver", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "", "keep the database in `DIR` (default: sandbox-devserver in the user's cache directory)")
	port := flags.Int("port", 0, "listen on `PORT` instead of a free one")
	flags.Usage = func() {
		fmt.Fprint(stderr, "usage: devserver [flags] [COMMAND ARGS…]\n\n")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	}
	if *dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return fail(errors.New("there is no home directory for the database: set HOME, or name a folder with -dir"))
		}
		*dir = filepath.Join(cache, "sandbox-devserver")
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	server, err := devserver.Start(context.Background(), *dir, *port)
	if err != nil {
		return fail(err)
	}
	defer func() {
		if err := server.Close(); err != nil {
			code = max(code, fail(err))
		}
	}()
	if flags.NArg() == 0 {
		for _, variable := range server.Environ() {
			fmt.Fprintln(stdout, "export "+quote(variable))
		}
		<-signals
		return 0
	}
	return runCommand(flags.Args(), environment(server), stderr, signals)
}

// environment returns this process's variables, with the server's TEMPORAL_ variables
// instead of its own.
func environment(server *devserver.Server) []string {
	others := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "TEMPORAL_") })
	return append(others, server.Environ()...)
}

// quote quotes the value of a variable for a shell.
func quote(variable string) string {
	name, value, _ := strings.Cut(variable, "=")
	return name + "='" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}

// runCommand runs a command to its end, and passes it the signals of this process.
func runCommand(command, env []string, stderr io.Writer, signals <-chan os.Signal) int {
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec // the user's
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, env
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(stderr, "devserver:", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return exitNotFound
		}
		return exitNotRunnable
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // ProcessState has the result
	}()
	atTerminal := term.IsTerminal(int(os.Stdin.Fd()))
	for {
		select {
		case sig := <-signals:
			if sig == os.Interrupt && atTerminal {
				continue // the terminal interrupts the command as well
			}
			_ = cmd.Process.Signal(sig) // it may have ended
		case <-ended:
			status, _ := cmd.ProcessState.Sys().(interface {
				Signaled() bool
				Signal() syscall.Signal
			})
			if status != nil && status.Signaled() {
				return exitSignal + int(status.Signal())
			}
			return cmd.ProcessState.ExitCode()
		}
	}
}
