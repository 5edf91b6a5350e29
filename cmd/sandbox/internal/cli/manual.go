package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Manual returns the commands as cobra's generator of manual pages takes them: in
// Markdown, with what its pages do not have at the end of the descriptions. It is
// for that generator only.
func Manual() *cobra.Command {
	a := newApp(nil)
	a.setStreams("never")
	root := a.rootCommand()
	root.DisableAutoGenTag = true
	described := map[*pflag.Flag]bool{} // those of parents are met again
	var describe func(*cobra.Command)
	describe = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			describe(c)
		}
		cmd.Long = manualText(cmd)
		cmd.Use, cmd.Short = markdown.Replace(cmd.Use), markdown.Replace(cmd.Short)
		cmd.Flags().VisitAll(func(f *pflag.Flag) { describeOption(f, described) })
		cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) { describeOption(f, described) })
	}
	describe(root)
	return root
}

// markdown keeps text from being taken for markup.
var markdown = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", `\<`, ">", `\>`, "&", `\&`, "~", `\~`)

// describeOption puts the kind of an option's value where the generator shows the
// default, which goes to the description.
func describeOption(f *pflag.Flag, described map[*pflag.Flag]bool) {
	if described[f] {
		return
	}
	described[f] = true
	kind := f.Value.Type()
	if kind == "bool" {
		kind = "true|false"
	}
	f.Usage, f.DefValue = markdown.Replace(optionText(f)), markdown.Replace(kind)
}

// manualText is the description of a command, its aliases, the arguments and what
// --json writes.
func manualText(cmd *cobra.Command) string {
	var b strings.Builder
	b.WriteString(markdown.Replace(first(cmd.Long, cmd.Short)) + "\n")
	if len(cmd.Aliases) > 0 {
		b.WriteString("\nAliases: " + markdown.Replace(strings.Join(cmd.Aliases, ", ")) + "\n")
	}
	if lines := argumentLines(cmd); len(lines) > 0 && !cmd.HasAvailableSubCommands() {
		b.WriteString("\n# ARGUMENTS\n")
		for _, l := range lines {
			b.WriteString("**" + markdown.Replace(l[0]) + "**\n\t" + markdown.Replace(l[1]) + "\n\n")
		}
	}
	if d, ok := documentOf(cmd); ok {
		b.WriteString("\n# WITH \\-\\-JSON\n" + markdown.Replace(d.describe()) + "\n")
	}
	return b.String()
}
