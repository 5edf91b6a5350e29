package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNamesTable wants the table of docs/agents.md to have every tool, and every
// other name that a tool answers to in its row.
func TestNamesTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/agents.md")
	require.NoError(t, err)
	row := func(tool string) string {
		for line := range strings.Lines(string(text)) {
			if cells := strings.Split(line, "|"); len(cells) == 5 && strings.Contains(cells[1], "`"+tool+"`") {
				return cells[3]
			}
		}
		assert.Fail(t, "no row", tool)
		return ""
	}
	for other, tool := range toolNames {
		assert.Contains(t, row(tool), "`"+other+"`", tool)
	}
	tools := ForProject(nil, &Options{Artifacts: &os.Root{}})
	defer tools.Close()
	for _, tool := range tools.Tools() {
		row(tool.Name)
	}
}
