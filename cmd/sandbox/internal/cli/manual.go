package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

type manCommand struct{ app *app }

func (c *manCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "man <dir>", Short: "Write the manual pages to a directory", GroupID: groupTools, Args: positionals("dir"),
		RunE: c.run,
	}
}

func (c *manCommand) run(cmd *cobra.Command, args []string) error {
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	return writeManual(cmd.Root(), args[0])
}

// writeManual writes the page of a command, and those of the commands below it.
func writeManual(cmd *cobra.Command, dir string) error {
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		if err := writeManual(c, dir); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), []byte(manualPage(cmd)), 0o644)
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manualPage has what the help page has, in the language of man(7).
func manualPage(cmd *cobra.Command) string {
	var b strings.Builder
	cmd.InitDefaultHelpFlag()
	fmt.Fprintf(&b, ".TH \"%s\" \"1\" \"\" \"sandbox %s\" \"Vercel Sandbox\"\n", roff(strings.ToUpper(pageName(cmd))), roff(Version()))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n[options]%s\n", roff(pageName(cmd)), roff(cmd.Short), roff(cmd.CommandPath()), roff(arguments(cmd)))
	b.WriteString(".SH DESCRIPTION\n")
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		b.WriteString(roff(paragraph) + "\n")
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, ".PP\nAliases: %s\n", roff(strings.Join(cmd.Aliases, ", ")))
	}
	section := func(title string, lines [][2]string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(&b, ".SH \"%s\"\n", roff(strings.ToUpper(title)))
		for _, l := range lines {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(l[0]), roff(l[1]))
		}
	}
	eachCommandGroup(cmd, func(title string, lines [][2]string) { section(strings.TrimSuffix(title, ":"), lines) })
	if !cmd.HasAvailableSubCommands() {
		section("Arguments", argumentLines(cmd))
	}
	groups := optionGroups(cmd)
	for _, title := range optionTitles {
		section(title, groups[title])
	}
	if d, ok := documentOf(cmd); ok {
		fmt.Fprintf(&b, ".SH \"WITH --JSON\"\n%s\n", roff(d.describe()))
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(strings.TrimRight(cmd.Example, "\n")))
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, pageName(cmd.Parent()))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			others = append(others, pageName(c))
		}
	}
	if len(others) > 0 {
		b.WriteString(".SH \"SEE ALSO\"\n" + roff(strings.Join(others, "(1), ")) + "(1)\n")
	}
	return b.String()
}

// roff keeps text from being taken for requests and escapes of man(7).
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
