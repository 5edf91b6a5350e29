package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// command describes one command. Its help page, its completion, the check of its
// arguments, and the tests that all commands have to pass are made from it.
type command struct {
	name    string
	aliases []string
	near    []string // what other programs call it
	title   string   // under which the main page lists it; "" for official commands
	first   bool     // whether the first page lists it
	hidden  bool
	short   string // what it does, in a line
	long    string // the same at more length, if there is more to say
	args    []argument
	check   cobra.PositionalArgs // in place of the check that args make
	options func(*pflag.FlagSet)
	example string // a line, without the program's name
	account account
	doc     any // the type of what it writes with --json; nil if its output is somebody else's
	run     func(cmd *cobra.Command, args []string) error

	// foreign is how many arguments of its own come before a command line of somebody
	// else, whose options are not looked at; "" is none.
	foreign string
	// ssh are the options of ssh that it reads and leaves alone: those with a value, a
	// space, and the others.
	ssh string

	sub []*command

	cobra *cobra.Command // made from it
}

// account says whose account a command uses.
type account int

const (
	accountOfLine account = iota // it asks the API for that of the line
	noAccount                    // it asks nobody
)

// argument is an argument of a command.
type argument struct {
	name     string
	text     string
	optional bool
	several  bool // it can be given more than once, or not at all
	parse    func(string) error
	values   []string // what it can be
	sandbox  string   // it is the name of a sandbox, followed by this
}

// usage is the argument as usage lines show it.
func (g argument) usage() string {
	switch {
	case g.several:
		return "[..." + g.name + "]"
	case g.optional:
		return "[" + g.name + "]"
	}
	return "<" + g.name + ">"
}

// The arguments that many commands have.
var (
	nameArg      = argument{name: "name", text: "The name of the sandbox", sandbox: " "}
	moreNames    = argument{name: "name", text: "More of them", several: true, sandbox: " "}
	commandIDArg = argument{name: "command_id", text: "The ID of the command, from exec -d or ps"}
	moreWords    = argument{name: "args", text: "Its arguments", several: true}
)

// usage are the arguments as usage lines show them.
func (c *command) usage() string {
	if c.sub != nil {
		return " <command>"
	}
	var b strings.Builder
	for _, g := range c.args {
		b.WriteString(" " + g.usage())
	}
	return b.String()
}

// build makes the command and those below it ready for cobra.
func (c *command) build(complete func(*command) cobra.CompletionFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use: c.name, Aliases: c.aliases, SuggestFor: c.near, Short: c.short, Long: c.long, Hidden: c.hidden, Args: c.check, RunE: c.run,
		Annotations: map[string]string{}, ValidArgsFunction: complete(c),
	}
	c.cobra = cmd
	if cmd.Args == nil {
		cmd.Args = c.checkArguments
	}
	if c.foreign != "" {
		cmd.Annotations[ownWords] = c.foreign
		cmd.Flags().SetInterspersed(false) // for completions
	}
	if c.ssh != "" {
		cmd.Annotations[ssh] = c.ssh
	}
	if c.options != nil {
		c.options(cmd.Flags())
	}
	cmd.Flags().BoolP("help", "h", false, "Show this page") // InitDefaultHelpFlag would merge the options of each
	for _, s := range c.sub {
		cmd.AddCommand(s.build(complete))
	}
	if c.sub != nil {
		group(cmd)
	} else {
		cmd.Use += c.usage()
	}
	completeOptions(cmd, cmd.Flags())
	return cmd
}

// checkArguments refuses what a command can't take, by what it says of its arguments.
func (c *command) checkArguments(cmd *cobra.Command, args []string) error {
	for i, g := range c.args {
		switch {
		case g.several:
		case i < len(args) && (args[i] != "" || g.optional):
			continue
		case !g.optional:
			return &usageError{message: "no value provided for " + g.name, hint: moreAbout(cmd)}
		}
	}
	n := len(c.args)
	for i, word := range args {
		if i >= n && (n == 0 || !c.args[n-1].several) {
			return &usageError{message: "unknown argument " + strconv.Quote(word), hint: moreAbout(cmd)}
		}
		if parse := c.args[min(i, n-1)].parse; parse != nil {
			if err := parse(word); err != nil {
				return &usageError{message: err.Error(), hint: moreAbout(cmd)}
			}
		}
	}
	return nil
}

// of finds what a command of cobra was made from.
func (c *command) of(cmd *cobra.Command) *command {
	if c.cobra == cmd {
		return c
	}
	for _, s := range c.sub {
		if found := s.of(cmd); found != nil {
			return found
		}
	}
	return nil
}

// find finds a command below this one by its name or an alias.
func (c *command) find(word string) *command {
	if i := slices.IndexFunc(c.sub, func(s *command) bool { return s.name == word || slices.Contains(s.aliases, word) }); i >= 0 {
		return c.sub[i]
	}
	return nil
}

// group makes a command that only holds others show its help, and refuse what is
// no command of it.
func group(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 1
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		e := &usageError{message: fmt.Sprintf("%s is not a command of %s", strconv.Quote(args[0]), cmd.CommandPath()), hint: moreAbout(cmd)}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 && len(args[0]) > 2 { // of less, everything is a part
			e.hint = "did you mean " + strings.Join(near, " or ") + "?"
		}
		return e
	}
}

// completeOptions completes the values of options that have a choice. Files are
// offered for those that name files.
func completeOptions(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		kind := strings.ToLower(f.Value.Type())
		if f.NoOptDefVal == "" && !strings.Contains(kind, "file") && !strings.Contains(kind, "path") && kind != "dir" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(f.Annotations[choicesAnnotation], cobra.ShellCompDirectiveNoFileComp)) // it has none yet
		}
	})
}
