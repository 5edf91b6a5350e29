// Package line describes commands and reads command lines.
package line

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Command describes one command. Its help page, its completion, the check of its
// arguments and the tests of all commands are generated from this description.
type Command struct {
	Name    string
	Aliases []string
	Near    []string // names of this command in other programs, for suggestions
	Title   string   // its group on the main page; "" for official commands
	First   bool     // whether the first page lists it
	Hidden  bool
	Short   string // what it does, in a line
	Long    string // what it does, in detail; "" if Short says everything
	Args    []Argument
	Check   cobra.PositionalArgs // checks the arguments instead of Args
	Options func(*pflag.FlagSet)
	Example string // a line, without the program's name
	Account account
	Doc     any // a value of the type that --json writes; nil if the command writes no document
	Run     func(cmd *cobra.Command, args []string) error

	// Foreign is the number of arguments before the command line of another program, whose
	// options are not read; "" if the command takes none.
	Foreign string
	// SSH lists the options of ssh that the command accepts and ignores: those with a
	// value, a space, and the others.
	SSH string

	Sub []*Command

	Cobra *cobra.Command // the result of Build
}

// account says which account a command uses.
type account int

const (
	accountOfLine account = iota // the account of the command line
	NoAccount                    // none: the command makes no request to the API
)

// Argument is an argument of a command.
type Argument struct {
	Name     string
	Text     string
	Optional bool
	Several  bool // any number of arguments, or none
	Parse    func(string) error
	Values   []string // the values that completions offer
	Sandbox  string   // not empty for the name of a sandbox; completions add it to the name
}

// Usage returns the argument's form in usage lines.
func (g Argument) Usage() string {
	switch {
	case g.Several:
		return "[..." + g.Name + "]"
	case g.Optional:
		return "[" + g.Name + "]"
	}
	return "<" + g.Name + ">"
}

// The arguments of many commands.
var (
	NameArg      = Argument{Name: "name", Text: "The name of the sandbox", Sandbox: " "}
	MoreNames    = Argument{Name: "name", Text: "More sandboxes", Several: true, Sandbox: " "}
	CommandIDArg = Argument{Name: "command_id", Text: "The ID of the command, from exec -d or ps"}
	MoreWords    = Argument{Name: "args", Text: "Its arguments", Several: true}
)

// Usage returns the form of the arguments in usage lines.
func (c *Command) Usage() string {
	if c.Sub != nil {
		return " <command>"
	}
	var b strings.Builder
	for _, g := range c.Args {
		b.WriteString(" " + g.Usage())
	}
	return b.String()
}

// Build returns the cobra command, with its subcommands.
func (c *Command) Build(complete func(*Command) cobra.CompletionFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use: c.Name, Aliases: c.Aliases, SuggestFor: c.Near, Short: c.Short, Long: c.Long, Hidden: c.Hidden, Args: c.Check, RunE: c.Run,
		Annotations: map[string]string{}, ValidArgsFunction: complete(c),
	}
	c.Cobra = cmd
	if cmd.Args == nil {
		cmd.Args = c.checkArguments
	}
	if c.Foreign != "" {
		cmd.Annotations[OwnWords] = c.Foreign
		cmd.Flags().SetInterspersed(false) // for cobra's parser, which only completions use
	}
	if c.SSH != "" {
		cmd.Annotations[ssh] = c.SSH
	}
	if c.Options != nil {
		c.Options(cmd.Flags())
	}
	cmd.Flags().BoolP("help", "h", false, "Show this page") // cobra's InitDefaultHelpFlag would merge the options of all parents
	for _, s := range c.Sub {
		cmd.AddCommand(s.Build(complete))
	}
	if c.Sub != nil {
		makeGroup(cmd)
	} else {
		cmd.Use += c.Usage()
	}
	CompleteOptions(cmd, cmd.Flags())
	return cmd
}

// checkArguments checks the arguments of a command against its description.
func (c *Command) checkArguments(cmd *cobra.Command, args []string) error {
	for i, g := range c.Args {
		switch {
		case g.Several:
		case i < len(args) && (args[i] != "" || g.Optional):
			continue
		case !g.Optional:
			return &UsageError{Message: "no value provided for " + g.Name, Hint: MoreAbout(cmd)}
		}
	}
	n := len(c.Args)
	for i, word := range args {
		if i >= n && (n == 0 || !c.Args[n-1].Several) {
			return &UsageError{Message: "unknown argument " + strconv.Quote(word), Hint: MoreAbout(cmd)}
		}
		if parse := c.Args[min(i, n-1)].Parse; parse != nil {
			if err := parse(word); err != nil {
				return &UsageError{Message: err.Error(), Hint: MoreAbout(cmd)}
			}
		}
	}
	return nil
}

// Of returns the Command that a cobra command was made from.
func (c *Command) Of(cmd *cobra.Command) *Command {
	if c.Cobra == cmd {
		return c
	}
	for _, s := range c.Sub {
		if found := s.Of(cmd); found != nil {
			return found
		}
	}
	return nil
}

// Find returns the subcommand with a name or alias.
func (c *Command) Find(word string) *Command {
	if i := slices.IndexFunc(c.Sub, func(s *Command) bool { return s.Name == word || slices.Contains(s.Aliases, word) }); i >= 0 {
		return c.Sub[i]
	}
	return nil
}

// makeGroup makes a command that only has subcommands show its help. It refuses any word that
// is not a subcommand.
func makeGroup(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 1
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		e := &UsageError{Message: fmt.Sprintf("%s is not a command of %s", strconv.Quote(args[0]), cmd.CommandPath()), Hint: MoreAbout(cmd)}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 && len(args[0]) > 2 { // a shorter word is part of too many names
			e.Hint = "did you mean " + strings.Join(near, " or ") + "?"
		}
		return e
	}
}

// CompleteOptions completes the values of options with choices. It offers files for
// options that name files.
func CompleteOptions(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		kind := strings.ToLower(f.Value.Type())
		if f.NoOptDefVal == "" && !strings.Contains(kind, "file") && !strings.Contains(kind, "path") && kind != "dir" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(f.Annotations[ChoicesAnnotation], cobra.ShellCompDirectiveNoFileComp)) // fails only if the option already has a function
		}
	})
}

// UsageError is a mistake in the command line.
type UsageError struct {
	Message string
	Hint    string
}

func (e *UsageError) Error() string { return e.Message }

// Usagef returns a [UsageError].
func Usagef(format string, args ...any) error {
	return &UsageError{Message: fmt.Sprintf(format, args...)}
}

// MoreAbout names the help page of a command.
func MoreAbout(cmd *cobra.Command) string {
	return "for more information, try '" + cmd.CommandPath() + " --help'"
}
