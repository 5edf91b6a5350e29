package cli

// allOptions is the page of the options of all commands.
const allOptions = "options"

// What pages end with. For help the account does not matter.
const (
	moreOptions  = "Options of all commands, such as --local and --json: sandbox help " + allOptions
	moreCommands = "All commands: sandbox help --all"
)
