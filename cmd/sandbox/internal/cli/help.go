package cli

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// The groups of options on a page.
const (
	groupAnnotation = "group"
	groupScope      = "Auth & Scope"
	groupOutput     = "Output & Behavior"
)

// These titles group the commands that the official CLI does not have.
const (
	titleCommands = "Commands in a sandbox:"
	titleFiles    = "Files and ports:"
	titleManage   = "Manage:"
	titleTools    = "Tools:"
)

// titles are the titles of "help --all", in order. The official commands have no title.
var titles = []string{"", titleCommands, titleFiles, titleManage, titleTools}

// optionTitles are the groups in the order of the page.
var optionTitles = []string{"Options", "Flags", groupScope, groupOutput}

// pageWidth is the width of a help page that is not shown at a terminal.
const pageWidth = 100

func printPage(s *screen.Screen, write func(*helpPage)) {
	p := &helpPage{width: pageWidth, bold: func(text string) string { return s.Out.Paint(console.Bold, text) }}
	if s.Out.Terminal {
		p.width = max(s.Out.Width(), 40)
	}
	write(p)
	fmt.Fprint(s.Out, p.text.String())
}

type helpCommand struct {
	screen *screen.Screen
	root   *line.Command

	all bool
}

func (c *helpCommand) command() *line.Command {
	return &line.Command{
		Name: "help", First: true, Title: titleTools, Short: "Show the help of a command; --all lists all commands",
		Args:    []line.Argument{{Name: "command...", Text: "The words of the command, or options", Optional: true}},
		Check:   cobra.ArbitraryArgs,
		Options: func(flags *pflag.FlagSet) { line.Toggle(flags, &c.all, "all", "a", "List all commands") },
		Example: "help config", Account: line.NoAccount, Run: c.run,
	}
}

func (c *helpCommand) run(cmd *cobra.Command, words []string) error {
	of := cmd.Root()
	switch {
	case c.all:
		printPage(c.screen, func(p *helpPage) { eachTitle(c.root, p.section) })
		return nil
	case len(words) == 1 && words[0] == allOptions:
		printPage(c.screen, func(p *helpPage) {
			groups := optionGroups(of.PersistentFlags())
			for _, title := range optionTitles {
				p.section(title+":", groups[title])
			}
		})
		return nil
	}
	for i, word := range words {
		next := line.Child(of, word)
		if next == nil && of.HasSubCommands() {
			return of.RunE(of, words[i:])
		}
		if next == nil {
			return &line.UsageError{Message: "unknown argument " + strconv.Quote(word), Hint: line.MoreAbout(of)}
		}
		of = next
	}
	return of.Help()
}

// helpPage collects the text of a help page.
type helpPage struct {
	text  strings.Builder
	width int
	bold  func(string) string
}

func (p *helpPage) write(c *line.Command) {
	cmd := c.Cobra
	root := cmd == cmd.Root()
	if root {
		fmt.Fprintf(&p.text, "%s %s\n\n", p.bold("sandbox"), Version())
	} else {
		fmt.Fprintf(&p.text, "%s\n\n", p.bold(strings.TrimPrefix(cmd.CommandPath(), "sandbox ")))
	}
	fmt.Fprintf(&p.text, "▲ %s [options]%s\n\n", cmd.CommandPath(), c.Usage())
	if !root {
		p.paragraphs(cmp.Or(c.Long, c.Short))
	}
	if len(c.Aliases) > 0 {
		p.paragraphs(p.bold("Aliases:") + " " + strings.Join(c.Aliases, ", "))
	}
	if c.Sub != nil {
		p.paragraphs("For command help, run `" + cmd.CommandPath() + " <command> --help`")
	}
	var lines [][2]string
	for _, s := range c.Sub {
		if s.First {
			lines = append(lines, helpLine(s))
		}
	}
	if root {
		p.section("Commands:", lines)
	} else {
		eachTitle(c, p.section)
	}
	p.section("Arguments:", mapped(c.Args, func(g line.Argument) [2]string { return [2]string{g.Usage(), g.Text} }))
	groups := optionGroups(cmd.LocalNonPersistentFlags())
	for _, title := range optionTitles {
		p.section(title+":", groups[title])
	}
	p.paragraphs(moreOptions)
	if root {
		p.paragraphs(moreCommands)
	}
	if c.Account == line.NoAccount {
		p.paragraphs("It needs no account.")
	}
	if c.Doc != nil {
		fmt.Fprintf(&p.text, "%s\n\n    %s\n\n", p.bold("With --json:"), p.wrapped(describeDoc(c.Doc), 4))
	}
	if c.Example != "" {
		fmt.Fprintf(&p.text, "%s\n\n    $ sandbox %s\n\n", p.bold("Example:"), c.Example)
	}
}

// describeDoc describes in words what a command writes with --json.
func describeDoc(doc any) string {
	t := reflect.TypeOf(doc)
	what := "an object with "
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return "an array of names"
	case t.Kind() == reflect.Slice:
		t, what = t.Elem(), "an array of objects with "
	}
	var names []string
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return what + strings.Join(names, ", ")
}

func (p *helpPage) paragraphs(text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		fmt.Fprintf(&p.text, "%s\n\n", p.wrapped(paragraph, 0))
	}
}

// section writes a title and lines of two columns. If the first column of a line is too
// wide, the second one starts on the next line.
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

// wrapped breaks text between words. It indents every line but the first, which the caller
// has already indented.
func (p *helpPage) wrapped(text string, indent int) string {
	return screen.Wrapped(text, indent, p.width)
}

// helpLine returns the two columns of a command in a list of commands.
func helpLine(c *line.Command) [2]string {
	names := append(slices.Clone(c.Aliases), c.Name)
	usage := c.Usage()
	if c.Sub != nil {
		usage = ""
	}
	return [2]string{strings.Join(names, " | ") + usage, c.Short}
}

// eachTitle calls do for the subcommands of c, grouped by title.
func eachTitle(c *line.Command, do func(title string, lines [][2]string)) {
	for _, title := range titles {
		var lines [][2]string
		for _, s := range c.Sub {
			if s.Title == title && !s.Hidden {
				lines = append(lines, helpLine(s))
			}
		}
		do(cmp.Or(title, "Commands:"), lines)
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
