package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// eachCommand calls do for every command that runs.
func eachCommand(t *testing.T, do func(path string, c *command)) {
	t.Helper()
	a := newApp(nil)
	a.screen.setStreams("never")
	var visit func(c *command)
	visit = func(c *command) {
		for _, s := range c.sub {
			visit(s)
		}
		if c.sub == nil {
			do(strings.TrimPrefix(c.cobra.CommandPath(), "sandbox "), c)
		}
	}
	visit(a.allCommands())
}

// TestCommands: every command says what it does and what its arguments are, and its
// example is a line that the program takes.
func TestCommands(t *testing.T) {
	t.Parallel()
	count := 0
	eachCommand(t, func(path string, c *command) {
		count++
		assert.NotEmpty(t, c.short, path)
		assert.NotNil(t, c.run, path)
		for _, g := range c.args {
			assert.NotEmpty(t, g.text, "%s of %s", g.name, path)
		}
		require.NotEmpty(t, c.example, path)
		root := testTree(t)
		words, _, err := arrange(root, strings.Fields(c.example))
		require.NoError(t, err, path)
		cmd := root
		for len(words) > 0 && child(cmd, words[0]) != nil {
			cmd, words = child(cmd, words[0]), words[1:]
		}
		assert.Equal(t, "sandbox "+path, cmd.CommandPath(), "the example of another command")
		assert.NoError(t, cmd.ValidateArgs(words), path)
	})
	assert.Greater(t, count, 50)
}

// TestHelpIsWrapped: nothing but examples is wider than a terminal, and what is
// continued stands below its beginning.
func TestHelpIsWrapped(t *testing.T) {
	t.Parallel()
	var visit func(*command)
	visit = func(c *command) {
		cmd := c.cobra
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
		for _, s := range c.sub {
			visit(s)
		}
	}
	visit(newApp(nil).allCommands())
	p := &helpPage{width: 40, bold: func(s string) string { return s }}
	p.section("Options:", [][2]string{{"--x <y>", "one two three four five six seven"}, {"--much-longer-than-the-others <z>", "eight"}})
	assert.Equal(t, "Options:\n\n    --x <y>  one two three four five six\n             seven\n    --much-longer-than-the-others\n        <z>\n             eight\n\n", p.text.String())
}
