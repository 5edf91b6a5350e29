package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) telemetryCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "telemetry", Short: "Say what is collected about the use of this program: nothing"}
	status := func() {
		fmt.Fprintln(a.err, "Telemetry status: Disabled\n\nThis program collects nothing. The choice is kept for the official CLI.")
	}
	set := func(enabled bool) func(*cobra.Command, []string) error {
		return func(*cobra.Command, []string) error {
			dirs, err := a.dirs()
			if err != nil {
				return err
			}
			if err := dirs.SetTelemetry(enabled); err != nil {
				return err
			}
			status()
			return nil
		}
	}
	cmd.AddCommand(
		&cobra.Command{Use: "status", Short: "Say whether telemetry is on; it never is", Args: positionals(), RunE: func(*cobra.Command, []string) error {
			status()
			return nil
		}},
		&cobra.Command{Use: "enable", Short: "Allow the official CLI to collect data", Args: positionals(), RunE: set(true)},
		&cobra.Command{Use: "disable", Short: "Forbid the official CLI to collect data", Args: positionals(), RunE: set(false)},
	)
	return group(cmd)
}
