package cli

// allOptions is the name of the help page about the options of all commands.
const allOptions = "options"

// The last lines of help pages. They name the program directly instead of using
// [screen.Try], because help is the same for all accounts.
const (
	moreOptions  = "Options of all commands, such as --local and --json: sandbox help " + allOptions
	moreCommands = "All commands: sandbox help --all"
)
