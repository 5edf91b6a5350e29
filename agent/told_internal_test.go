package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestProgramErrors wants each error that a model can't mend to have words of its
// own, which those of another don't take the place of.
func TestProgramErrors(t *testing.T) {
	t.Parallel()
	for _, e := range programErrors {
		text, program := told(fmt.Errorf("a secret: %w", e.err))
		assert.True(t, program, e.err)
		assert.Equal(t, e.text, text, e.err)
	}
	text, program := told(fmt.Errorf("a secret"))
	assert.True(t, program)
	assert.Equal(t, unreachable, text)
}

// TestCutText wants the marks of data to stay in pairs where a result is cut.
func TestCutText(t *testing.T) {
	t.Parallel()
	const size = 100
	files, output := marked("a\nb"), marked(strings.Repeat("x", 200))
	for _, text := range []string{output, "Done.\n" + files + output, files + strings.Repeat("y", 200), strings.Repeat("☃", 100)} {
		cut := cutText(text, size)
		assert.LessOrEqual(t, len(cut), size)
		assert.Equal(t, strings.Count(cut, "<sandbox-data>"), strings.Count(cut, "</sandbox-data>"), cut)
		assert.Contains(t, cut, "…")
	}
	assert.LessOrEqual(t, len(line(strings.Repeat("\n", 1000))), maxOfLine+len("…"))
}
