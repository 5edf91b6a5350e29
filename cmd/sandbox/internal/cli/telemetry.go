package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// telemetryView says whether anything is collected.
type telemetryView struct {
	Enabled bool `json:"enabled"`
}

type telemetryCommand struct{ app *app }

func (c *telemetryCommand) command() *cobra.Command {
	cmd := &cobra.Command{Use: "telemetry", Short: "Say what is collected about the use of this program: nothing", Hidden: true}
	set := func(enabled bool) func(*cobra.Command, []string) error {
		return func(*cobra.Command, []string) error {
			dirs := c.app.dirs()
			if err := dirs.SetTelemetry(enabled); err != nil {
				return err
			}
			return c.run(nil, nil)
		}
	}
	cmd.AddCommand(
		&cobra.Command{Use: "status", Short: "Say whether telemetry is on; it never is", Args: positionals(), RunE: c.run},
		&cobra.Command{Use: "enable", Short: "Allow the official CLI to collect data", Args: positionals(), RunE: set(true)},
		&cobra.Command{Use: "disable", Short: "Forbid the official CLI to collect data", Args: positionals(), RunE: set(false)},
	)
	return group(cmd)
}

func (c *telemetryCommand) run(*cobra.Command, []string) error {
	if c.app.opts.structured() {
		return c.app.print(output{doc: telemetryView{}})
	}
	fmt.Fprintln(c.app.err, "Telemetry status: Disabled\n\nThis program collects nothing. The choice is kept for the official CLI.")
	return nil
}
