package line

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// OwnWords is the annotation of commands, such as exec, whose arguments end with the
// command line of another program. Its value is the number of arguments before that command
// line. Options in the command line are not read.
const OwnWords = "own words"

// reader reads one command line. Completions do not use it, but cobra's parser.
type reader struct {
	cmd        *cobra.Command
	path       []string // the words of the command
	takesValue func(word string) bool

	words      []string // arguments
	runOptions []string // options after the program of run that run itself has read
	help       bool

	given map[*pflag.Flag]string // NAME=VALUE as it was given
}

func newReader(root *cobra.Command) *reader {
	return &reader{cmd: root, takesValue: valueOptions(root), given: map[*pflag.Flag]string{}}
}

// Arrange reads a command line. It sets the options of the command, wherever they stand,
// and returns the words of the command with its arguments. So "sandbox --name x create"
// is "sandbox create --name x", and "exec box --sudo ls" is "exec --sudo -- box ls".
func Arrange(root *cobra.Command, args []string) (out, runOptions []string, err error) {
	l := newReader(root)
	moved, rest := l.find(args)
	if err := l.read(moved, rest); err != nil {
		return nil, nil, err
	}
	// Show no help for a command that does not exist: it would hide the mistake.
	if l.help && (!l.cmd.HasSubCommands() || len(l.words) == 0) {
		if err := l.cmd.Flags().Set("help", "true"); err != nil {
			return nil, nil, err
		}
	}
	l.cmd.DisableFlagParsing = true // nothing is left to be parsed
	return append(append([]string{}, l.path...), l.words...), l.runOptions, nil
}

// ownWordsOf returns how many arguments of a command come before the command line of
// another program, and whether it takes one.
func ownWordsOf(cmd *cobra.Command) (n int, foreign bool) {
	text, foreign := cmd.Annotations[OwnWords]
	if !foreign {
		return 0, false
	}
	return int(text[0] - '0'), true
}

// find finds the command and the options before it.
func (l *reader) find(args []string) (moved, rest []string) {
	rest = args
	for len(rest) > 0 && l.cmd.HasSubCommands() {
		word := rest[0]
		if word == "--" {
			if len(rest) > 1 && Child(l.cmd, rest[1]) != nil {
				rest = rest[1:]
				continue
			}
			break
		}
		if strings.HasPrefix(word, "-") && word != "-" {
			n := 1
			if l.takesValue(word) && len(rest) > 1 {
				n = 2
			}
			moved = append(moved, rest[:n]...)
			rest = rest[n:]
			continue
		}
		next := Child(l.cmd, word)
		if next == nil {
			break
		}
		l.cmd, rest, l.path = next, rest[1:], append(l.path, word)
	}
	return moved, rest
}

// Child returns the subcommand with this name or alias, or nil.
func Child(cmd *cobra.Command, word string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == word || c.HasAlias(word) {
			return c
		}
	}
	return nil
}

// valueOptions returns a function that reports whether an option takes a value. It knows
// the options of all commands, because an option can come before the command.
func valueOptions(root *cobra.Command) func(word string) bool {
	names := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		note := func(f *pflag.Flag) {
			if f.NoOptDefVal != "" {
				return
			}
			names["--"+f.Name] = true
			if f.Shorthand != "" {
				names["-"+f.Shorthand] = true
			}
		}
		c.Flags().VisitAll(note)
		c.PersistentFlags().VisitAll(note)
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	return func(word string) bool {
		if strings.Contains(word, "=") {
			return false
		}
		if strings.HasPrefix(word, "--") || len(word) == 2 {
			name := word
			if name == "--team" {
				name = "--scope"
			}
			return names[name]
		}
		return len(word) > 1 && names["-"+word[len(word)-1:]]
	}
}

var Negative = regexp.MustCompile(`^-\d+$`)

// read sets options and collects arguments. moved are the words before the command.
func (l *reader) read(moved, rest []string) error {
	l.cmd.InheritedFlags() // this adds them to the command's own
	for len(moved) > 0 {
		n, err := l.option(moved)
		if err != nil {
			return err
		}
		moved = moved[min(n, len(moved)):]
	}
	own, foreign := ownWordsOf(l.cmd)
	if !foreign {
		own = len(rest)
	}
	for dash := false; len(rest) > 0; {
		word := rest[0]
		switch {
		case word == "--" && (!dash || len(l.words) == own):
			dash, rest = true, rest[1:]
			if !foreign || len(l.words) == own {
				l.words, rest = append(l.words, rest...), nil
			}
		case !dash && strings.HasPrefix(word, "-") && word != "-" && !l.isNumber(word):
			n, err := l.sshOption(rest)
			if n == 0 && err == nil {
				n, err = l.option(rest)
			}
			if err != nil {
				return err
			}
			rest = rest[min(n, len(rest)):]
		case l.cmd.HasSubCommands() && len(l.words) == 0: // drop the options: those of an unknown command are not known
			l.help = slices.Contains(rest, "--help") || slices.Contains(rest, "-h")
			l.words = slices.DeleteFunc(slices.Clone(rest), func(w string) bool { return strings.HasPrefix(w, "-") })
			rest = nil
		case foreign && len(l.words) == own:
			l.words, rest = append(l.words, word), rest[1:]
			if own == 0 && !dash {
				var err error
				if rest, err = l.lateOptions(rest); err != nil {
					return err
				}
			}
			l.words, rest = append(l.words, rest...), nil
		default:
			l.words, rest = append(l.words, word), rest[1:]
		}
	}
	return nil
}

// isNumber reports whether a word is a negative number and not an option.
func (l *reader) isNumber(word string) bool {
	return Negative.MatchString(word) && l.shortOption(word[1]) == nil && l.cmd.Annotations[ssh] == ""
}

func (l *reader) longOption(name string) *pflag.Flag {
	name = string(l.cmd.Root().GlobalNormalizationFunc()(nil, name))
	return l.cmd.Flag(name)
}

func (l *reader) shortOption(c byte) (found *pflag.Flag) {
	look := func(f *pflag.Flag) {
		if f.Shorthand == string(c) {
			found = f
		}
	}
	l.cmd.InheritedFlags().VisitAll(look)
	l.cmd.Flags().VisitAll(look)
	return found
}

// option sets the option at the start of words, and returns how many words it takes.
func (l *reader) option(words []string) (int, error) {
	if n, err := l.terminalOrTag(words); n > 0 {
		return n, err
	}
	word := words[0]
	if text, long := strings.CutPrefix(word, "--"); long {
		name, value, with := strings.Cut(text, "=")
		f := l.longOption(name)
		switch {
		case f == nil:
			return 0, l.unknownOption(name, "unknown flag: --"+name)
		case with:
			return 1, l.set(f, name, value)
		case f.NoOptDefVal != "":
			return 1, l.set(f, name, f.NoOptDefVal)
		case len(words) < 2:
			return 0, l.usageError("flag needs an argument: --" + name)
		}
		return 2, l.set(f, name, words[1])
	}
	for i := 1; i < len(word); i++ {
		f := l.shortOption(word[i])
		if f == nil {
			return 0, l.unknownOption(word[i:i+1], fmt.Sprintf("unknown shorthand flag: %q in %s", word[i], word))
		}
		value, with := strings.CutPrefix(word[i+1:], "=")
		switch {
		case with || f.NoOptDefVal == "" && value != "":
			return 1, l.set(f, f.Name, value)
		case f.NoOptDefVal != "":
			if err := l.set(f, f.Name, f.NoOptDefVal); err != nil {
				return 0, err
			}
		case len(words) < 2:
			return 0, l.usageError(fmt.Sprintf("flag needs an argument: %q in %s", word[i], word))
		default:
			return 2, l.set(f, f.Name, words[1])
		}
	}
	return 1, nil
}

// set sets an option, unless it was already set to the same value under its other name.
func (l *reader) set(f *pflag.Flag, name, value string) error {
	if repeated, err := l.checkRepeated(f, name, value); repeated || err != nil {
		return err
	}
	if f.Name == "help" {
		l.help = value == f.NoOptDefVal
		return nil
	}
	if err := f.Value.Set(value); err != nil {
		return l.usageError("--" + f.Name + ": " + err.Error())
	}
	f.Changed = true
	return nil
}

func (l *reader) usageError(message string) error {
	return &UsageError{Message: l.cmd.CommandPath() + ": " + message, Hint: MoreAbout(l.cmd)}
}

// unknownOption returns the error for an unknown option.
func (l *reader) unknownOption(name, message string) error {
	hint := MoreAbout(l.cmd)
	if len(name) == 1 { // of a word such as -x, or -xyz
		hint = "-- comes before words that are not options"
	}
	return &UsageError{Message: l.cmd.CommandPath() + ": " + message, Hint: hint}
}

// checkRepeated returns an error if an option is repeated that may be given only once. It
// accepts a repetition with the same value under another name, and then returns true.
func (l *reader) checkRepeated(f *pflag.Flag, name, value string) (repeated bool, err error) {
	if _, once := f.Value.(interface{ once() }); !once {
		return false, nil
	}
	before, given := l.given[f]
	l.given[f] = name + "=" + value
	if !given {
		return false, nil
	}
	if otherName, otherValue, _ := strings.Cut(before, "="); otherName != name && otherValue == value {
		return true, nil
	}
	return false, &UsageError{Message: l.cmd.CommandPath() + ": --" + name + " may be given only once", Hint: MoreAbout(l.cmd)}
}

// terminalOrTag decides what -t of run means: with KEY=VALUE it is a tag, otherwise it
// requests a terminal. It returns how many words the option takes, or 0 if it is another
// option.
func (l *reader) terminalOrTag(words []string) (n int, err error) {
	if l.cmd.Name() != "run" || l.cmd.Parent() != l.cmd.Root() {
		return 0, nil
	}
	set := func(name, value string) error { return l.set(l.longOption(name), name, value) }
	word := words[0]
	switch {
	case word == "-t" && len(words) > 1 && isPair(words[1]):
		return 2, set("tag", words[1])
	case word == "-t":
		return 1, set("tty", "true")
	case word == "-it", word == "-ti":
		if err := set("interactive", "true"); err != nil {
			return 1, err
		}
		return 1, set("tty", "true")
	case strings.HasPrefix(word, "-t") && strings.Contains(word, "="):
		return 1, set("tag", strings.TrimPrefix(word[2:], "="))
	}
	return 0, nil
}

// ssh is the annotation of commands that programs call instead of ssh. It lists the
// options of ssh that the command accepts and ignores: first those that take a value,
// then, after a space, the others.
const ssh = "ssh"

// sshOption reads an option of ssh, if the command accepts those. It returns how many words
// the option takes, or 0 if it is not an option of ssh.
func (l *reader) sshOption(words []string) (n int, err error) {
	valued, plain, is := strings.Cut(l.cmd.Annotations[ssh], " ")
	if !is || strings.HasPrefix(words[0], "--") {
		return 0, nil
	}
	for i, c := range words[0][1:] {
		switch {
		case strings.ContainsRune(plain, c):
			n = 1
		case !strings.ContainsRune(valued, c):
			return 0, nil // not an option of ssh: the method option reads or refuses it
		case i+2 < len(words[0]):
			return 1, nil
		case len(words) < 2:
			return 0, l.usageError(fmt.Sprintf("flag needs an argument: %q in %s", c, words[0]))
		default:
			return 2, nil
		}
	}
	return n, nil
}

func isPair(word string) bool {
	return !strings.HasPrefix(word, "-") && strings.Contains(word, "=")
}

// lateOptions reads long options of run that directly follow the program, as the official
// CLI does: "run echo --timeout 5m hello".
func (l *reader) lateOptions(rest []string) ([]string, error) {
	if l.cmd.Name() != "run" {
		return rest, nil
	}
	for len(rest) > 0 && strings.HasPrefix(rest[0], "--") && len(rest[0]) > 2 {
		name, _, with := strings.Cut(rest[0][2:], "=")
		f := l.longOption(name)
		if f == nil || f.Name == "help" || !with && f.NoOptDefVal == "" && len(rest) < 2 {
			break
		}
		n, err := l.option(rest)
		if err != nil {
			return nil, err
		}
		l.runOptions = append(l.runOptions, rest[:n]...)
		rest = rest[n:]
	}
	return rest, nil
}
