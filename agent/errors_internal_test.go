package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestProgramErrors: each error that the model can't fix has its own text.
func TestProgramErrors(t *testing.T) {
	t.Parallel()
	for _, e := range programErrors {
		text, program := textForModel(fmt.Errorf("a secret: %w", e.err))
		assert.True(t, program, e.err)
		assert.Equal(t, e.text, text, e.err)
	}
	text, program := textForModel(fmt.Errorf("a secret"))
	assert.True(t, program)
	assert.Equal(t, unreachable, text)
}

// TestCutText: the tags around data stay balanced when a result is cut.
func TestCutText(t *testing.T) {
	t.Parallel()
	const size = 100
	files, output := wrapData("a\nb"), wrapData(strings.Repeat("x", 200))
	for _, text := range []string{output, "Done.\n" + files + output, files + strings.Repeat("y", 200), strings.Repeat("☃", 100)} {
		cut := cutText(text, size)
		assert.LessOrEqual(t, len(cut), size)
		assert.Equal(t, strings.Count(cut, "<sandbox-data>"), strings.Count(cut, "</sandbox-data>"), cut)
		assert.Contains(t, cut, "…")
	}
	assert.LessOrEqual(t, len(oneLine(strings.Repeat("\n", 1000))), maxOneLine+len("…"))
}
