package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/settings"
)

// telemetryView says whether data is collected.
type telemetryView struct {
	Enabled bool `json:"enabled"`
}

type telemetryCommand struct{ deps }

func (c *telemetryCommand) command() *line.Command {
	leaf := func(name, short string, run func(*cobra.Command, []string) error) *line.Command {
		return &line.Command{Name: name, Short: short, Example: "telemetry " + name, Account: line.NoAccount, Doc: telemetryView{}, Run: run}
	}
	set := func(enabled bool) func(*cobra.Command, []string) error {
		return func(*cobra.Command, []string) error {
			dirs := settings.FindDirs(c.screen.Env.Lookup)
			if err := dirs.SetTelemetry(enabled); err != nil {
				return err
			}
			return c.run(nil, nil)
		}
	}
	return &line.Command{
		Name: "telemetry", Short: "Show the choice about telemetry; this program collects nothing", Hidden: true,
		Sub: []*line.Command{
			leaf("status", "Say whether telemetry is on; it never is", c.run),
			leaf("enable", "Allow the official CLI to collect data", set(true)),
			leaf("disable", "Forbid the official CLI to collect data", set(false)),
		},
	}
}

func (c *telemetryCommand) run(*cobra.Command, []string) error {
	if c.screen.Opts.Structured() {
		return c.screen.Print(screen.Output{Doc: telemetryView{}})
	}
	fmt.Fprintln(c.screen.Err, "Telemetry status: Disabled\n\nThis program collects nothing. The choice is kept for the official CLI.")
	return nil
}
