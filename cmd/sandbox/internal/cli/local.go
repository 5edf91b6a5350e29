package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/account"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/local"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

func runDaemon(args []string) int {
	idle, err := time.ParseDuration(args[2])
	if err != nil {
		return screen.ExitUsage
	}
	return local.Serve(args[0], args[1], Version(), idle)
}

type localView struct {
	PID     int    `json:"pid"`
	Mode    string `json:"mode"`
	Version string `json:"version"`
	URL     string `json:"url"`
	Dir     string `json:"dir"`
}

type localCommand struct{ deps }

func (c *localCommand) command() *line.Command {
	leaf := func(name, short string, doc any, run func(*cobra.Command, []string) error) *line.Command {
		return &line.Command{Name: name, Short: short, Example: "local " + name, Account: line.NoAccount, Doc: doc, Run: run}
	}
	return &line.Command{
		Name: "local", Title: titleTools, Short: "Inspect and stop the emulator that --local uses",
		Long: "Inspect and stop the emulator that --local uses. The first command that needs it starts it, and it serves all processes of its user: " +
			"commands started with -d and published ports remain. It ends after ten idle minutes without a running sandbox. " + account.NoBoundary,
		Sub: []*line.Command{
			leaf("status", "Show whether it is running", localView{}, c.status),
			leaf("stop", "Stop its sandboxes, keep their files, and end it", doneView{}, c.stop),
		},
	}
}

func (c *localCommand) status(cmd *cobra.Command, _ []string) error {
	dir, state, err := c.account.LocalDirs()
	if err != nil {
		return err
	}
	e, err := local.Use(cmd.Context(), dir)
	if errors.Is(err, local.ErrNone) {
		return &screen.ExitError{Code: screen.ExitNotFound, Err: screen.WithHint(local.ErrNone, "any command with --local starts it")}
	}
	if err != nil {
		return err
	}
	defer e.Close()
	if c.screen.Opts.Structured() {
		v := localView{e.Address.PID, e.Address.Mode, e.Address.Version, e.Address.URL, state}
		return c.screen.Print(screen.Output{Doc: v, Names: []string{fmt.Sprint(e.Address.PID)}})
	}
	serves := fmt.Sprintf("Process %d serves in mode %s, with its files in %s.", e.Address.PID, e.Address.Mode, state)
	_, err = fmt.Fprintf(c.screen.Out, "%s\n%s\n", screen.Prose(c.screen.Out, serves), screen.Prose(c.screen.Out, account.NoBoundary))
	return err
}

func (c *localCommand) stop(cmd *cobra.Command, _ []string) error {
	dir, _, err := c.account.LocalDirs()
	if err != nil {
		return err
	}
	err = local.Stop(cmd.Context(), dir)
	if errors.Is(err, local.ErrUnsaved) {
		return screen.WithHint(err, "make room for them, or remove what you don't need with: %s", screen.Try("--local rm NAME"))
	}
	if err != nil && !errors.Is(err, local.ErrNone) {
		return err
	}
	return c.screen.Result(doneView{err == nil})
}
