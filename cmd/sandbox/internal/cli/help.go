package cli

import (
	"fmt"
	"strings"

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

// help writes a command's page on standard output.
func (a *app) help(cmd *cobra.Command) {
	var b strings.Builder
	bold := func(s string) string { return a.out.Paint(console.Bold, s) }
	section := func(title string, lines [][2]string) {
		if len(lines) > 0 {
			fmt.Fprintf(&b, "%s\n\n", bold(title))
			columns(&b, lines)
			b.WriteByte('\n')
		}
	}
	if cmd == cmd.Root() {
		fmt.Fprintf(&b, "%s %s\n\n", bold("sandbox"), Version())
	} else {
		fmt.Fprintf(&b, "%s\n\n", bold(strings.TrimPrefix(cmd.CommandPath(), "sandbox ")))
	}
	line := "▲ " + cmd.CommandPath() + " [options]"
	line += arguments(cmd)
	fmt.Fprintf(&b, "%s\n\n", line)
	if cmd != cmd.Root() {
		text := cmd.Short
		if cmd.Long != "" {
			text = cmd.Long
		}
		fmt.Fprintf(&b, "%s\n\n", text)
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, "%s %s\n\n", bold("Aliases:"), strings.Join(cmd.Aliases, ", "))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "For command help, run `%s <command> --help`\n\n", cmd.CommandPath())
		eachCommandGroup(cmd, section)
	}
	groups := optionGroups(cmd)
	for _, title := range optionTitles {
		section(title+":", groups[title])
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "%s\n\n%s\n\n", bold("Examples:"), strings.TrimRight(cmd.Example, "\n"))
	}
	fmt.Fprint(a.out, b.String())
}

// arguments are what follows the options.
func arguments(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() {
		return " <command>"
	}
	return strings.TrimPrefix(cmd.Use, cmd.Name())
}

// eachCommandGroup gives the commands below one, by the group that they are in.
func eachCommandGroup(cmd *cobra.Command, do func(title string, lines [][2]string)) {
	titled := map[string][][2]string{}
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		name := c.Name()
		if len(c.Aliases) > 0 {
			name = strings.Join(c.Aliases, " | ") + " | " + name
		}
		titled[c.GroupID] = append(titled[c.GroupID], [2]string{name + strings.TrimPrefix(c.Use, c.Name()), c.Short})
	}
	do("Commands:", titled[""])
	for _, g := range cmd.Groups() {
		do(g.Title, titled[g.ID])
	}
}

// columns writes lines of two columns.
func columns(b *strings.Builder, lines [][2]string) {
	width := 0
	for _, l := range lines {
		width = max(width, len(l[0]))
	}
	for _, l := range lines {
		fmt.Fprintf(b, "    %-*s  %s\n", width, l[0], l[1])
	}
}

func optionGroups(cmd *cobra.Command) map[string][][2]string {
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
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
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
