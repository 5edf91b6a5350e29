package cli

// allOptions is the page of the options of all commands.
const allOptions = "options"

// The ends of pages. Help does not depend on the account.
const (
	moreOptions  = "Options of all commands, such as --local and --json: sandbox help " + allOptions
	moreCommands = "All commands: sandbox help --all"
)
