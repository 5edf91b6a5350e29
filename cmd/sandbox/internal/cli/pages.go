package cli

import "github.com/spf13/cobra"

// allOptions is the page of the options of all commands.
const allOptions = "options"

// What pages end with. For help the account does not matter.
const (
	moreOptions  = "Options of all commands, such as --local and --json: sandbox help " + allOptions
	moreCommands = "All commands: sandbox help --all"
)

// moreAbout names a command's page.
func moreAbout(cmd *cobra.Command) string {
	return "for more information, try '" + cmd.CommandPath() + " --help'"
}
