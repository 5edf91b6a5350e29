package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ownWords marks commands that take a command line of somebody else, by how many
// arguments of their own come before it. What follows is not looked at.
const ownWords = "own words"

// line is a command line that is read once, by the options of the command that
// it is for.
type line struct {
	cmd  *cobra.Command
	path []string // the words of the command
	all  func(word string) bool

	flags []string
	words []string // arguments
	taken []string // options after the command of run that are the sandbox's

	given map[*pflag.Flag]string // by the name it was given under
}

// arrange brings a command line into the form that cobra parses in one go:
// options, then "--", then arguments. So "sandbox --name x create" is "sandbox
// create --name x", and "exec box --sudo ls" is "exec --sudo -- box ls".
func arrange(root *cobra.Command, args []string) (out, taken []string, err error) {
	l := &line{cmd: root, all: valueOptions(root), given: map[*pflag.Flag]string{}}
	moved, rest := l.find(args)
	if l.cmd.HasSubCommands() || l.cmd.DisableFlagParsing { // which reads another program's options itself
		return slices.Concat(l.path, moved, rest), nil, nil
	}
	out, err = l.read(slices.Concat(moved, rest))
	return out, l.taken, err
}

// arrangeForCompletion does what can be done with a line whose last word is not
// complete.
func arrangeForCompletion(root *cobra.Command, args []string) []string {
	l := &line{cmd: root, all: valueOptions(root)}
	last := len(args) - 1
	moved, rest := l.find(args[:last])
	if n, foreign := l.cmd.Annotations[ownWords]; foreign {
		l.given = map[*pflag.Flag]string{}
		if out, err := l.read(slices.Concat(moved, rest)); err == nil && len(l.words) > int(n[0]-'0') {
			return append(out, args[last])
		}
	}
	return slices.Concat(l.path, moved, rest, args[last:])
}

// find finds the command, and the options before it.
func (l *line) find(args []string) (moved, rest []string) {
	rest = args
	for len(rest) > 0 && l.cmd.HasSubCommands() {
		word := rest[0]
		if word == "--" {
			if len(rest) > 1 && child(l.cmd, rest[1]) != nil {
				rest = rest[1:]
				continue
			}
			break
		}
		if strings.HasPrefix(word, "-") && word != "-" {
			n := 1
			if l.all(word) && len(rest) > 1 {
				n = 2
			}
			moved = append(moved, rest[:n]...)
			rest = rest[n:]
			continue
		}
		next := child(l.cmd, word)
		if next == nil {
			break
		}
		l.cmd, rest, l.path = next, rest[1:], append(l.path, word)
	}
	return moved, rest
}

func child(cmd *cobra.Command, word string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == word || c.HasAlias(word) {
			return c
		}
	}
	return nil
}

// valueOptions tells which options, of all commands together, are followed by a
// value: those before the command are read when it is not known.
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

var negative = regexp.MustCompile(`^-\d+$`)

// read sorts options and arguments. It stops at an option that is not known,
// which cobra reports.
func (l *line) read(rest []string) ([]string, error) {
	l.cmd.InitDefaultHelpFlag()
	own, foreign := len(rest), false
	if n, ok := l.cmd.Annotations[ownWords]; ok {
		own, foreign = int(n[0]-'0'), true
	}
	for dash := false; len(rest) > 0; {
		word := rest[0]
		switch {
		case word == "--" && (!dash || len(l.words) == own):
			dash, rest = true, rest[1:]
			if !foreign || len(l.words) == own {
				l.words, rest = append(l.words, rest...), nil
			}
		case !dash && strings.HasPrefix(word, "-") && word != "-" && !l.number(word):
			n, err := l.option(rest)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				return slices.Concat(l.path, l.flags, rest, l.words), nil
			}
			rest = rest[n:]
		case foreign && len(l.words) == own:
			l.words, rest = append(l.words, word), rest[1:]
			if own == 0 && !dash {
				var err error
				if rest, err = l.late(rest); err != nil {
					return nil, err
				}
			}
			l.words, rest = append(l.words, rest...), nil
		default:
			l.words, rest = append(l.words, word), rest[1:]
		}
	}
	if foreign && len(l.words) > 0 || slices.ContainsFunc(l.words, func(w string) bool { return strings.HasPrefix(w, "-") }) {
		l.flags = append(l.flags, "--")
	}
	return slices.Concat(l.path, l.flags, l.words), nil
}

// number reports whether a word is a negative number, and no option.
func (l *line) number(word string) bool { return negative.MatchString(word) && l.short(word[1]) == nil }

func (l *line) long(name string) *pflag.Flag {
	name = string(l.cmd.Root().GlobalNormalizationFunc()(nil, name))
	return l.cmd.Flag(name)
}

func (l *line) short(c byte) (found *pflag.Flag) {
	look := func(f *pflag.Flag) {
		if f.Shorthand == string(c) {
			found = f
		}
	}
	l.cmd.InheritedFlags().VisitAll(look)
	l.cmd.Flags().VisitAll(look)
	return found
}

// option takes the option that a line begins with, and returns of how many words
// it is: 0 if it is not known.
func (l *line) option(rest []string) (int, error) {
	words, n := l.terminalOrTag(rest)
	if n == 0 {
		words, n = l.emptyValue(rest)
	}
	if n == 0 {
		return l.take(rest)
	}
	for len(words) > 0 {
		used, err := l.take(words)
		if err != nil {
			return 0, err
		}
		words = words[used:]
	}
	return n, nil
}

// take takes the option that some words begin with.
func (l *line) take(words []string) (int, error) {
	used, again, err := l.one(words)
	used = min(used, len(words))
	if !again {
		l.flags = append(l.flags, words[:used]...)
	}
	return used, err
}

// emptyValue writes -x= as a long option, since pflag takes "=" for the value. It
// returns of how many words that was, or the line as it is, and 0.
func (l *line) emptyValue(rest []string) (words []string, n int) {
	bundle, empty := strings.CutSuffix(rest[0], "=")
	if !empty || len(bundle) < 2 || strings.HasPrefix(bundle, "--") {
		return rest, 0
	}
	last := len(bundle) - 1
	for i := 1; i <= last; i++ {
		f := l.short(bundle[i])
		if f == nil || f.NoOptDefVal == "" && i < last {
			return rest, 0
		}
		if i == last {
			words = append(words, "--"+f.Name+"=")
		} else {
			words = append(words, "--"+f.Name)
		}
	}
	return words, 1
}

// one measures an option. Again says that it was given already, under its other
// name, with the same value.
func (l *line) one(words []string) (used int, again bool, err error) {
	word := words[0]
	next := ""
	if len(words) > 1 {
		next = words[1]
	}
	if name, value, with := strings.Cut(strings.TrimPrefix(word, "--"), "="); strings.HasPrefix(word, "--") {
		f := l.long(name)
		switch {
		case f == nil:
			return 0, false, nil
		case f.NoOptDefVal != "" || with:
			again, err = l.note(f, name, value)
			return 1, again, err
		}
		again, err = l.note(f, name, next)
		return 2, again, err
	}
	for i := 1; i < len(word); i++ {
		f := l.short(word[i])
		if f == nil {
			return 0, false, nil
		}
		value := strings.TrimPrefix(word[i+1:], "=")
		last := f.NoOptDefVal == "" || strings.HasPrefix(word[i+1:], "=")
		if _, err := l.note(f, f.Name, value); err != nil {
			return 0, false, err
		}
		if last {
			if i == len(word)-1 {
				return 2, false, nil
			}
			return 1, false, nil
		}
	}
	return 1, false, nil
}

// note refuses an option that comes again and may not.
func (l *line) note(f *pflag.Flag, name, value string) (again bool, err error) {
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
	return false, &usageError{message: l.cmd.CommandPath() + ": --" + name + " may be given only once", hint: moreAbout(l.cmd)}
}

// terminalOrTag writes -t of run out: a tag is followed by KEY=VALUE, and
// anything else is the -t that asks for a terminal. It returns of how many words
// that was, or the line as it is, and 0.
func (l *line) terminalOrTag(rest []string) (words []string, n int) {
	if l.cmd.Name() != "run" || l.cmd.Parent() != l.cmd.Root() {
		return rest, 0
	}
	word := rest[0]
	switch {
	case word == "-t" && len(rest) > 1 && isPair(rest[1]):
		return []string{"--tag", rest[1]}, 2
	case word == "-t":
		return []string{"--tty"}, 1
	case word == "-it", word == "-ti":
		return []string{"--interactive", "--tty"}, 1
	case strings.HasPrefix(word, "-t") && strings.Contains(word, "="):
		return []string{"--tag", strings.TrimPrefix(word[2:], "=")}, 1
	}
	return rest, 0
}

func isPair(word string) bool {
	return !strings.HasPrefix(word, "-") && strings.Contains(word, "=")
}

// late takes long options of the sandbox that directly follow the command
// word, as the official CLI does: "run echo --timeout 5m hello".
func (l *line) late(rest []string) ([]string, error) {
	if l.cmd.Name() != "run" {
		return rest, nil
	}
	for len(rest) > 0 && strings.HasPrefix(rest[0], "--") && len(rest[0]) > 2 {
		name, _, with := strings.Cut(rest[0][2:], "=")
		f := l.long(name)
		if f == nil || f.Name == "help" || !with && f.NoOptDefVal == "" && len(rest) < 2 {
			break
		}
		n, err := l.option(rest)
		if err != nil {
			return nil, err
		}
		l.taken = append(l.taken, rest[:n]...)
		rest = rest[n:]
	}
	return rest, nil
}

// positionals checks the number of a command's arguments, which it names: [name] may
// be left out, and [...name] come several times.
func positionals(names ...string) cobra.PositionalArgs {
	required := slices.IndexFunc(append(names, "["), func(name string) bool { return strings.HasPrefix(name, "[") })
	variadic := len(names) > 0 && strings.HasPrefix(names[len(names)-1], "[...")
	return func(cmd *cobra.Command, args []string) error {
		for i := range required {
			if i >= len(args) || args[i] == "" {
				return &usageError{message: "no value provided for " + names[i], hint: moreAbout(cmd)}
			}
		}
		if !variadic && len(args) > len(names) {
			return &usageError{message: "unknown argument " + quote(args[len(names)]), hint: moreAbout(cmd)}
		}
		return nil
	}
}

func moreAbout(cmd *cobra.Command) string {
	return "for more information, try '" + cmd.CommandPath() + " --help'"
}
