package cli

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// arrange moves options that come before the command behind it, so that
// "sandbox --name x create" is "sandbox create --name x", and settles what -t
// means in run.
func arrange(root *cobra.Command, args []string) []string {
	takesValue := valueOptions(root)
	cmd, path, moved, rest := root, []string{}, []string{}, args
	for len(rest) > 0 && cmd.HasSubCommands() {
		word := rest[0]
		if word == "--" {
			if len(rest) > 1 && child(cmd, rest[1]) != nil {
				rest = rest[1:]
				continue
			}
			break
		}
		if strings.HasPrefix(word, "-") && word != "-" {
			n := 1
			if takesValue(word) && len(rest) > 1 {
				n = 2
			}
			moved = append(moved, rest[:n]...)
			rest = rest[n:]
			continue
		}
		next := child(cmd, word)
		if next == nil {
			break
		}
		cmd, rest, path = next, rest[1:], append(path, word)
	}
	if cmd == root {
		return args
	}
	switch {
	case cmd.Parent() != root:
	case cmd.Name() == "run":
		moved, rest = terminalOrTag(moved, takesValue), terminalOrTag(rest, takesValue)
	case cmd.Name() == "rollback":
		rest = slices.Clone(rest)
		for i, word := range rest {
			if n, err := strconv.Atoi(word); err == nil && n < 0 {
				rest[i] = "--back=" + strconv.Itoa(-n)
			}
		}
	}
	return slices.Concat(path, moved, rest)
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
// value.
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
			return names[word]
		}
		return len(word) > 1 && names["-"+word[len(word)-1:]]
	}
}

// terminalOrTag writes -t out: a tag is followed by KEY=VALUE, and anything else
// is the -t that asks for a terminal. It looks at the options before the command
// only.
func terminalOrTag(args []string, takesValue func(string) bool) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		word := args[i]
		switch {
		case word == "--", !strings.HasPrefix(word, "-"), word == "-":
			return append(out, args[i:]...)
		case word == "-t":
			if i+1 < len(args) && isPair(args[i+1]) {
				out = append(out, "--tag", args[i+1])
				i++
			} else {
				out = append(out, "--tty")
			}
		case word == "-it", word == "-ti":
			out = append(out, "--interactive", "--tty")
		case strings.HasPrefix(word, "-t=") || strings.HasPrefix(word, "-t") && strings.Contains(word, "="):
			out = append(out, "--tag", strings.TrimPrefix(strings.TrimPrefix(word, "-t"), "="))
		case takesValue(word) && i+1 < len(args):
			out = append(out, word, args[i+1])
			i++
		default:
			out = append(out, word)
		}
	}
	return out
}

func isPair(word string) bool {
	return !strings.HasPrefix(word, "-") && strings.Contains(word, "=")
}

// positionals checks the number of a command's arguments, which it names.
func positionals(names ...string) cobra.PositionalArgs {
	variadic := len(names) > 0 && strings.HasPrefix(names[len(names)-1], "[")
	return func(cmd *cobra.Command, args []string) error {
		required := len(names)
		if variadic {
			required--
		}
		for i := range required {
			if i >= len(args) || args[i] == "" {
				return &usageError{message: "no value provided for " + names[i], hint: moreAbout(cmd)}
			}
		}
		if !variadic && len(args) > required {
			return &usageError{message: "unknown argument " + quote(args[required]), hint: moreAbout(cmd)}
		}
		return nil
	}
}

func moreAbout(cmd *cobra.Command) string {
	return "for more information, try '" + cmd.CommandPath() + " --help'"
}
