package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// telemetryView says whether anything is collected.
type telemetryView struct {
	Enabled bool `json:"enabled"`
}

type telemetryCommand struct{ place }

func (c *telemetryCommand) command() *command {
	leaf := func(name, short string, run func(*cobra.Command, []string) error) *command {
		return &command{name: name, short: short, example: "telemetry " + name, account: noAccount, doc: telemetryView{}, run: run}
	}
	set := func(enabled bool) func(*cobra.Command, []string) error {
		return func(*cobra.Command, []string) error {
			dirs := c.screen.dirs()
			if err := dirs.SetTelemetry(enabled); err != nil {
				return err
			}
			return c.run(nil, nil)
		}
	}
	return &command{
		name: "telemetry", short: "Say what is collected about the use of this program: nothing", hidden: true,
		sub: []*command{
			leaf("status", "Say whether telemetry is on; it never is", c.run),
			leaf("enable", "Allow the official CLI to collect data", set(true)),
			leaf("disable", "Forbid the official CLI to collect data", set(false)),
		},
	}
}

func (c *telemetryCommand) run(*cobra.Command, []string) error {
	if c.screen.opts.structured() {
		return c.screen.print(output{doc: telemetryView{}})
	}
	fmt.Fprintln(c.screen.err, "Telemetry status: Disabled\n\nThis program collects nothing. The choice is kept for the official CLI.")
	return nil
}
