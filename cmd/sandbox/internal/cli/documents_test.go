package cli

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
)

// undocumented are commands whose standard output is somebody else's: a terminal, a
// program, a file.
var undocumented = []string{
	"completion", "connect", "emulator", "help", "local logs", "logs", "mcp", "port-forward", "read", "rsh", "sh",
}

// TestEveryCommandIsDocumented: a command's document is known, or it has none; and
// each argument is explained.
func TestEveryCommandIsDocumented(t *testing.T) {
	t.Parallel()
	rows := slices.Collect(maps.Keys(documents))
	texts := maps.Clone(argumentTexts)
	var leaves []string
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			visit(c)
		}
		if cmd.HasSubCommands() {
			return
		}
		words := strings.TrimPrefix(cmd.CommandPath(), "sandbox ")
		leaves = append(leaves, words)
		for _, l := range argumentLines(cmd) {
			assert.NotEmpty(t, l[1], "%s of %s", l[0], words)
			for key, text := range texts {
				if text == l[1] {
					delete(texts, key)
				}
			}
		}
	}
	visit(testTree(t))
	assert.ElementsMatch(t, leaves, append(rows, undocumented...))
	assert.Empty(t, texts, "arguments that no command has")
}

// TestHelpIsWrapped: nothing but examples is wider than a terminal, and what is
// continued stands below its beginning.
func TestHelpIsWrapped(t *testing.T) {
	t.Parallel()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, width := range []int{40, 80, 132} {
			p := &helpPage{width: width, bold: func(s string) string { return s }}
			p.write(cmd)
			page, _, _ := strings.Cut(p.text.String(), "\nExamples:\n")
			_, page, _ = strings.Cut(page, "\n\n▲")
			_, page, _ = strings.Cut(page, "\n\n")
			for l := range strings.SplitSeq(page, "\n") {
				// A word alone can't be broken.
				if len([]rune(l)) > width {
					assert.LessOrEqual(t, len(strings.Fields(l)), 4, "%s at %d: %s", cmd.CommandPath(), width, l)
				}
			}
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(testTree(t))
	p := &helpPage{width: 40, bold: func(s string) string { return s }}
	p.section("Options:", [][2]string{{"--x <y>", "one two three four five six seven"}, {"--much-longer-than-the-others <z>", "eight"}})
	assert.Equal(t, "Options:\n\n    --x <y>  one two three four five six\n             seven\n    --much-longer-than-the-others\n        <z>\n             eight\n\n", p.text.String())
}
