package cli

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
)

// The groups that options are shown in.
const (
	groupAnnotation = "group"
	groupScope      = "Auth & Scope"
	groupOutput     = "Output & Behavior"
)

// optionTitles are the groups in the order of the page.
var optionTitles = []string{"Options", "Flags", groupScope, groupOutput}

// pageWidth is how wide a page is where nobody knows better.
const pageWidth = 100

// help writes a command's page on standard output, as wide as the terminal.
func (a *app) help(cmd *cobra.Command) { a.page(func(p *helpPage) { p.write(cmd) }) }

func (a *app) page(write func(*helpPage)) {
	p := &helpPage{width: pageWidth, bold: func(s string) string { return a.out.Paint(console.Bold, s) }}
	if a.out.Terminal {
		p.width = max(a.out.Width(), 40)
	}
	write(p)
	fmt.Fprint(a.out, p.text.String())
}

// mostNeeded are the commands on the first page.
var mostNeeded = []string{"create", "run", "exec", "connect", "copy", "list", "stop", "remove", "snapshot", "config", "login", "help"}

type helpCommand struct {
	app *app

	all bool
}

func (c *helpCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "help [command...]", Short: "Show the page of a command; --all lists all commands, and help options what each of them takes", GroupID: groupTools, RunE: c.run,
	}
	toggle(cmd.Flags(), &c.all, "all", "a", "List all commands")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, words []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		of := cmd.Root()
		for _, word := range words {
			if of = child(of, word); of == nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
		}
		for _, c := range of.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name()+"\t"+c.Short)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

func (c *helpCommand) run(cmd *cobra.Command, words []string) error {
	of := cmd.Root()
	switch {
	case c.all:
		c.app.page(func(p *helpPage) { eachCommandGroup(of, p.section) })
		return nil
	case len(words) == 1 && words[0] == allOptions:
		c.app.page(func(p *helpPage) {
			groups := optionGroups(of.PersistentFlags())
			for _, title := range optionTitles {
				p.section(title+":", groups[title])
			}
		})
		return nil
	}
	for i, word := range words {
		next := child(of, word)
		if next == nil && of.HasSubCommands() {
			return of.RunE(of, words[i:])
		}
		if next == nil {
			return &usageError{message: "unknown argument " + quote(word), hint: moreAbout(of)}
		}
		of = next
	}
	return of.Help()
}

// helpPage is a page that is being written.
type helpPage struct {
	text  strings.Builder
	width int
	bold  func(string) string
}

func (p *helpPage) write(cmd *cobra.Command) {
	if cmd == cmd.Root() {
		fmt.Fprintf(&p.text, "%s %s\n\n", p.bold("sandbox"), Version())
	} else {
		fmt.Fprintf(&p.text, "%s\n\n", p.bold(strings.TrimPrefix(cmd.CommandPath(), "sandbox ")))
	}
	fmt.Fprintf(&p.text, "▲ %s [options]%s\n\n", cmd.CommandPath(), arguments(cmd))
	if cmd != cmd.Root() {
		p.paragraphs(first(cmd.Long, cmd.Short))
	}
	if len(cmd.Aliases) > 0 {
		p.paragraphs(p.bold("Aliases:") + " " + strings.Join(cmd.Aliases, ", "))
	}
	if cmd.HasAvailableSubCommands() {
		p.paragraphs("For command help, run `" + cmd.CommandPath() + " <command> --help`")
		if cmd == cmd.Root() {
			p.section("Commands:", firstCommands(cmd))
		} else {
			eachCommandGroup(cmd, p.section)
		}
	} else {
		p.section("Arguments:", argumentLines(cmd))
	}
	groups := optionGroups(cmd.LocalNonPersistentFlags())
	for _, title := range optionTitles {
		p.section(title+":", groups[title])
	}
	p.paragraphs(moreOptions)
	if cmd == cmd.Root() {
		p.paragraphs(moreCommands)
	}
	if d, ok := documentOf(cmd); ok {
		fmt.Fprintf(&p.text, "%s\n\n    %s\n\n", p.bold("With --json:"), p.wrapped(d.describe(), 4))
	}
	if cmd.Example != "" {
		fmt.Fprintf(&p.text, "%s\n\n%s\n\n", p.bold("Examples:"), strings.TrimRight(cmd.Example, "\n"))
	}
}

func (p *helpPage) paragraphs(text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		fmt.Fprintf(&p.text, "%s\n\n", p.wrapped(paragraph, 0))
	}
}

// section writes lines of two columns. A name that would leave no room for the
// second one has a line of its own.
func (p *helpPage) section(title string, lines [][2]string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(&p.text, "%s\n\n", p.bold(title))
	column := 0
	for _, l := range lines {
		if n := len(l[0]); n <= p.width/2 {
			column = max(column, n)
		}
	}
	if p.width < 100 {
		column = min(column, p.width*2/5)
	}
	for _, l := range lines {
		text := p.wrapped(l[1], column+6)
		if len(l[0]) > column {
			fmt.Fprintf(&p.text, "    %s\n    %-*s  %s\n", p.wrapped(l[0], 8), column, "", text)
		} else {
			fmt.Fprintf(&p.text, "    %-*s  %s\n", column, l[0], text)
		}
	}
	p.text.WriteByte('\n')
}

// wrapped breaks text between words, so that it goes on below its beginning, which
// is that far from the left.
func (p *helpPage) wrapped(text string, indent int) string { return wrapped(text, indent, p.width) }

func wrapped(text string, indent, width int) string {
	var b strings.Builder
	at := indent
	for i, word := range strings.Fields(text) {
		n := ansi.StringWidth(word)
		switch {
		case i == 0:
		case at+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// arguments are what follows the options.
func arguments(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() {
		return " <command>"
	}
	return strings.TrimPrefix(cmd.Use, cmd.Name())
}

func firstCommands(root *cobra.Command) (lines [][2]string) {
	for _, name := range mostNeeded {
		lines = append(lines, commandLine(child(root, name)))
	}
	return lines
}

func commandLine(c *cobra.Command) [2]string {
	name := c.Name()
	if len(c.Aliases) > 0 {
		name = strings.Join(c.Aliases, " | ") + " | " + name
	}
	return [2]string{name + strings.TrimPrefix(c.Use, c.Name()), c.Short}
}

// eachCommandGroup gives the commands below one, by the group that they are in.
func eachCommandGroup(cmd *cobra.Command, do func(title string, lines [][2]string)) {
	titled := map[string][][2]string{}
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		titled[c.GroupID] = append(titled[c.GroupID], commandLine(c))
	}
	do("Commands:", titled[""])
	for _, g := range cmd.Groups() {
		do(g.Title, titled[g.ID])
	}
}

func optionGroups(flags *pflag.FlagSet) map[string][][2]string {
	groups := map[string][][2]string{}
	add := func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		group := "Options"
		if f.NoOptDefVal != "" {
			group = "Flags"
		}
		if g := f.Annotations[groupAnnotation]; len(g) > 0 {
			group = g[0]
		}
		groups[group] = append(groups[group], [2]string{optionTitle(f), optionText(f)})
	}
	flags.VisitAll(add)
	return groups
}

func optionTitle(f *pflag.Flag) string {
	title := "--" + f.Name
	if f.Shorthand != "" {
		title = "-" + f.Shorthand + ", " + title
	}
	switch {
	case f.NoOptDefVal == "":
		title += " <" + f.Value.Type() + ">"
	case f.Value.Type() != "bool":
		title += "[=" + f.Value.Type() + "]"
	}
	return title
}

func optionText(f *pflag.Flag) string {
	if f.DefValue != "" && f.DefValue != "false" {
		return f.Usage + " [default: " + f.DefValue + "]"
	}
	return f.Usage
}
