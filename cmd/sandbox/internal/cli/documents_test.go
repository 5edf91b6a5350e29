package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

// eachCommand calls do for every command that can be run.
func eachCommand(t *testing.T, do func(path string, c *line.Command)) {
	t.Helper()
	a := newApp(nil)
	a.screen.SetStreams("never")
	var visit func(c *line.Command)
	visit = func(c *line.Command) {
		for _, s := range c.Sub {
			visit(s)
		}
		if c.Sub == nil {
			do(strings.TrimPrefix(c.Cobra.CommandPath(), "sandbox "), c)
		}
	}
	visit(a.allCommands())
}

// TestCommands: every command describes itself and its arguments, and its example is a
// valid command line.
func TestCommands(t *testing.T) {
	t.Parallel()
	count := 0
	eachCommand(t, func(path string, c *line.Command) {
		count++
		assert.NotEmpty(t, c.Short, path)
		assert.NotNil(t, c.Run, path)
		for _, g := range c.Args {
			assert.NotEmpty(t, g.Text, "%s of %s", g.Name, path)
		}
		require.NotEmpty(t, c.Example, path)
		root := testTree(t)
		words, _, err := line.Arrange(root, strings.Fields(c.Example))
		require.NoError(t, err, path)
		cmd := root
		for len(words) > 0 && line.Child(cmd, words[0]) != nil {
			cmd, words = line.Child(cmd, words[0]), words[1:]
		}
		assert.Equal(t, "sandbox "+path, cmd.CommandPath(), "the example of another command")
		assert.NoError(t, cmd.ValidateArgs(words), path)
	})
	assert.Greater(t, count, 50)
}

// TestHelpIsWrapped: only examples are wider than a terminal, and wrapped lines are
// indented below their start.
func TestHelpIsWrapped(t *testing.T) {
	t.Parallel()
	var visit func(*line.Command)
	visit = func(c *line.Command) {
		cmd := c.Cobra
		for _, width := range []int{40, 80, 132} {
			p := &helpPage{width: width, bold: func(s string) string { return s }}
			p.write(c)
			page, _, _ := strings.Cut(p.text.String(), "\nExample:\n")
			_, page, _ = strings.Cut(page, "\n\n▲")
			_, page, _ = strings.Cut(page, "\n\n")
			for l := range strings.SplitSeq(page, "\n") {
				// A word alone can't be broken.
				if len([]rune(l)) > width {
					assert.LessOrEqual(t, len(strings.Fields(l)), 4, "%s at %d: %s", cmd.CommandPath(), width, l)
				}
			}
		}
		for _, s := range c.Sub {
			visit(s)
		}
	}
	visit(newApp(nil).allCommands())
	p := &helpPage{width: 40, bold: func(s string) string { return s }}
	p.section("Options:", [][2]string{{"--x <y>", "one two three four five six seven"}, {"--much-longer-than-the-others <z>", "eight"}})
	assert.Equal(t, "Options:\n\n    --x <y>  one two three four five six\n             seven\n    --much-longer-than-the-others\n        <z>\n             eight\n\n", p.text.String())
}
