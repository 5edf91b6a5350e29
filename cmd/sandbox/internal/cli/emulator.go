package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/sandboxtest"
)

type emulatorCommand struct {
	deps

	o       sandboxtest.Options
	mode    string
	verbose bool
}

func (c *emulatorCommand) command() *line.Command {
	return &line.Command{
		Name: "emulator", Title: titleTools, Short: "Serve the API on this machine, for any program and without an account", Foreign: "0",
		Long: "Serve the API on this machine with real processes. With a command, run it with environment variables that point to the emulator, " +
			"which ends when the command ends. Without one, serve until Ctrl-C. The emulator is not a security boundary: its sandboxes run on this machine, as you.",
		Args:    []line.Argument{{Name: "command", Text: "A program to run with the emulator's address in its environment", Optional: true}, line.MoreWords},
		Options: c.define, Example: "emulator -- npm test", Account: line.NoAccount, Run: c.run,
	}
}

func (c *emulatorCommand) define(flags *pflag.FlagSet) {
	line.Option(flags, &c.o.Addr, "addr", "", "host:port", "", "Listen here instead of on a free port of the loopback interface", line.ParseText)
	line.Option(flags, &c.o.Token, "token", "", "token", "", "The token that clients must send; a new one by default", line.ParseText)
	line.Option(flags, &c.o.Dir, "state", "", "dir", "", "Keep sandboxes and snapshots from one run to the next", line.ParseText)
	line.Choice(flags, &c.mode, "mode", "", "mode", "How to run commands: namespace or folder", "namespace", "folder")
	line.Toggle(flags, &c.verbose, "verbose", "v", "Show each request")
}

func (c *emulatorCommand) run(cmd *cobra.Command, args []string) error {
	c.o.Mode = sandboxtest.Mode(c.mode)
	c.o.Logger = slog.New(slog.NewTextHandler(c.screen.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if c.verbose {
		c.o.OnRequest = func(r sandboxtest.Request) {
			fmt.Fprintf(c.screen.Err, "%d %s %s %s\n", r.Status, r.Method, r.Path, r.Duration.Round(time.Microsecond))
		}
	}
	server, err := sandboxtest.NewServer(&c.o)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		err = runUnderEmulator(server, args)
	} else {
		c.serveEmulator(cmd.Context(), server)
	}
	return errors.Join(err, server.Close())
}

// emulatorEnv returns the variables that make a program use the emulator.
func emulatorEnv(server *sandboxtest.Server) []string {
	c := server.Credentials()
	return []string{
		"VERCEL_SANDBOX_BASE_URL=" + server.URL, "VERCEL_TOKEN=" + c.Token, "VERCEL_TEAM_ID=" + c.TeamID, "VERCEL_PROJECT_ID=" + c.ProjectID,
		// The user's own values would take precedence over the server's.
		"SANDBOX_TOKEN=", "VERCEL_OIDC_TOKEN=", "VERCEL_OIDC_TOKEN_FILE=",
		"VERCEL_AUTH_TOKEN=" + c.Token, "SANDBOX_SCOPE=" + c.TeamID, "SANDBOX_PROJECT=" + c.ProjectID,
	}
}

func (c *emulatorCommand) serveEmulator(ctx context.Context, server *sandboxtest.Server) {
	for _, v := range emulatorEnv(server) {
		fmt.Fprintln(c.screen.Out, "export", v)
	}
	fmt.Fprintf(c.screen.Err, "Serving on %s in mode %s. Press Ctrl-C to stop.\n", server.URL, server.Mode())
	<-ctx.Done()
}

func runUnderEmulator(server *sandboxtest.Server, args []string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), emulatorEnv(server)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// A terminal sends Ctrl-C to the command, too. But SIGTERM reaches only this program,
	// so forward it.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return startError(err)
	}
	done := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended
		case <-done:
		}
	}()
	err := cmd.Wait()
	close(done)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code := exit.ExitCode()
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = signalExitCode(status.Signal())
		}
		return screen.ExitWith(code)
	}
	return err
}
