package table

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
)

// TestFit omits columns that do not fit, first those with the same value in all rows.
func TestFit(t *testing.T) {
	t.Parallel()
	table := New("NAME", "STATUS", "REGION", "SIZE", "TAGS")
	table.Least = []string{"SIZE", "REGION", "TAGS", "NOT THERE"}
	table.Row("web", Cell{Text: "running"}, "iad1", "1 GiB", "env=prod")
	table.Row("notebook", Cell{Text: "running"}, "iad1", "20 GiB", "-")
	for width, want := range map[int]string{
		0: "NAME STATUS REGION SIZE TAGS", 47: "NAME STATUS REGION SIZE TAGS", 46: "NAME STATUS SIZE TAGS …", 42: "NAME STATUS SIZE TAGS …", 41: "NAME STATUS TAGS …",
		32: "NAME STATUS SIZE …", 31: "NAME STATUS SIZE …", 30: "NAME STATUS …", 10: "NAME …",
	} {
		var b bytes.Buffer
		require.NoError(t, table.Write(&console.Stream{Raw: &b}, width))
		header, rows, _ := strings.Cut(b.String(), "\n")
		assert.Equal(t, want, strings.Join(strings.Fields(header), " "), "%d columns:\n%s", width, b.String())
		if width > 17 {
			assert.NotContains(t, rows, "…", "%d columns", width)
		}
	}
	one := New("NAME", "REGION")
	one.Least = []string{"REGION"}
	one.Row("web", "iad1")
	var b bytes.Buffer
	require.NoError(t, one.Write(&console.Stream{Raw: &b}, 20))
	assert.Equal(t, "NAME   REGION\nweb    iad1  \n", b.String())
	one.Row("web", "a long one")
	b.Reset()
	require.NoError(t, one.Write(&console.Stream{Raw: &b}, 10))
	assert.Equal(t, "NAME   …\nweb \nweb \n", b.String())
	one.Least = nil
	b.Reset()
	require.NoError(t, one.Write(&console.Stream{Raw: &b}, 14))
	assert.Equal(t, "NAME   REGION\nweb    iad1\nweb    a long…\n", b.String(), "only a cut text ends with dots")
}

// TestBreaks wraps the last column between words. An ID that is longer than a line is
// broken at the end of the line.
func TestBreaks(t *testing.T) {
	t.Parallel()
	table := New("CHECK", "DETAIL")
	table.Breaks = true
	table.Row(Cell{Text: "network"}, "no answer from the server at this address")
	table.Row("id", "snap_0123456789012345678")
	var b bytes.Buffer
	require.NoError(t, table.Write(&console.Stream{Raw: &b}, 30))
	assert.Equal(t, "CHECK     DETAIL\nnetwork   no answer from the\n          server at this\n          address\nid        snap_012345678901234\n          5678\n", unpadded(b.String()))
	b.Reset()
	require.NoError(t, table.Write(&console.Stream{Raw: &b}, 0))
	assert.Contains(t, b.String(), "no answer from the server at this address\n", "a program gets one line")
}

// unpadded returns the lines of a text without the spaces at their ends.
func unpadded(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// TestHostileTexts: texts from the network neither move the cursor nor add a line, and the
// width of a column counts only visible characters.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	table := New("NAME", "REGION")
	table.Row("a\x1b[2J\nb\r\u202ec", Cell{Text: "\x1b]0;title\aiad1"})
	table.Row("web", "iad1")
	var b bytes.Buffer
	require.NoError(t, table.Write(&console.Stream{Raw: &b}, 0))
	assert.Equal(t, "NAME     REGION\na b  c   iad1  \nweb      iad1  \n", b.String())
}
