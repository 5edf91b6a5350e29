package agent

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestEditLineEnds: an edit preserves line ends and a byte order mark.
func TestEditLineEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, old, new, edited string
		all                    bool
	}{
		{"one\r\ntwo\r\nthree\r\n", "one\ntwo\n", "1\n2\n", "1\r\n2\r\nthree\r\n", false},
		{"one\r\ntwo\r\n", "one", "1\n1a", "1\r\n1a\r\ntwo\r\n", false},
		{"one\r\ntwo", "two", "2\n3", "one\r\n2\r\n3", false},
		{"one\r\ntwo\r\n", "one\ntwo", "", "\r\n", false},
		{"one\r\ntwo\r\n", "\ntwo", "", "one\r\n", false},
		{"one\ntwo\n", "one\ntwo", "1\n2", "1\n2\n", false},
		{"a\r\nb\nc\r\nd\n", "a\nb\nc\n", "x\ny\n", "x\r\ny\r\nd\n", false},
		{"a\r\nb\nc\r\n", "b", "x\ny", "a\r\nx\ny\nc\r\n", false},
		{"a\r\nb\r\na\nb\n", "a\nb\n", "x\n", "x\r\nx\n", true},
		{"\ufeffone\r\ntwo\r\n", "one\n", "1\n", "\ufeff1\r\ntwo\r\n", false},
		{"\ufeffone\n", "one", "0\none", "\ufeff0\none\n", false},
		{"one\r\ntwo\r\n", "one\r\n", "one\n", "one\ntwo\r\n", false},
		{"one\ntwo\n", "one\n", "one\r\n", "one\r\ntwo\n", false},
		{"one", "one", "1\n", "1\n", false},
	} {
		in := &editInput{Old: c.old, New: c.new, All: c.all}
		edited, _, err := in.apply(c.text)
		if assert.NoError(t, err, "%q: %q", c.text, c.old) {
			assert.Equal(t, c.edited, edited, "%q: %q", c.text, c.old)
		}
	}
}

// TestReadLineEnds: a result names the file's line ends once, without showing them.
func TestReadLineEnds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\r\nb\r\n":       "Its lines end in CR LF, which edits keep.",
		"a\r\nb":           "Its lines end in CR LF, which edits keep.",
		"a\r\nb\nc\n":      "Some lines end in CR LF, others in LF",
		"\ufeffa\r\nb\r\n": "It begins with a byte order mark, which edits keep. Its lines end in CR LF, which edits keep.",
		"a\nb\n":           "This is the end of the file.\n",
	} {
		result, err := readLines(strings.NewReader(text), "f", 1, 10, 1000)
		require.NoError(t, err)
		assert.Contains(t, result.Text, want, "%q", text)
		assert.Contains(t, result.Text, "     1\ta\n     2\tb\n", "%q", text)
	}
}

// TestReadLines: a long line is cut, and lines before the first one are skipped.
func TestReadLines(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 100_000 {
		fmt.Fprintln(&many, i+1)
	}
	for _, c := range []struct {
		text  string
		first int
		want  string
	}{
		{strings.Repeat("0", 5000) + "\nend\n", 1, "0[… 3000 bytes left out …]\n     2\tend\n"},
		{strings.Repeat("0", 5000) + "\nend\n", 2, "f, lines 2 to 2. This is the end of the file.\n" + wrapData("     2\tend\n")},
		{many.String(), 99_999, wrapData(" 99999\t99999\n100000\t100000\n")},
		{"one\ntwo\nthree\n", 9, "f has 3 lines: nothing from line 9 on."},
	} {
		result, err := readLines(strings.NewReader(c.text), "f", c.first, 10, 4000)
		require.NoError(t, err)
		assert.Contains(t, result.Text, c.want)
	}
}

// TestEditMismatch: if old_string does not occur, the result shows where it first differs.
func TestEditMismatch(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"one\ntwo\n", "three", "Its first line does not occur either."},
		{"one\n\ttwo\n", "one\n  two\n", "Line 2 of the file has other spaces than line 2 of old_string:\n<sandbox-data>\n\\ttwo\n"},
		{"a\nb\nc\nd\n", "b\nc\nx\n", "From line 2 of the file, 2 of its lines match. Then the file has, in line 4:\n<sandbox-data>\nd\n"},
		{"a\nb", "a\nb\n", "The file ends without a line end"},
		{"a\nb", "a\nb\nc", "the file ends there"},
		{"a\nb\n", "a\r\nb", "give them without \\r"},
		{"a\rb\r", "a\nb", "CR alone"},
	} {
		_, _, err := (&editInput{Old: c[1], New: "new"}).apply(c[0])
		assert.ErrorContains(t, err, "old_string is not in the file. ")
		assert.ErrorContains(t, err, c[2], "%q", c[1])
	}
	_, _, err := (&editInput{New: "new"}).apply("a\n")
	assert.ErrorContains(t, err, "old_string is empty")
}

// TestEditAgainstSed: editing a file with CR LF gives the same as converting it to LF with
// sed, editing it, and converting it back.
func TestEditAgainstSed(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "sed")
	r := rand.New(rand.NewPCG(1, 2))
	randomText := func(n int) string {
		var b strings.Builder
		for range 1 + r.IntN(n) {
			b.WriteString([]string{"a", "b", "\n", "ä", "\ufeff"}[r.IntN(5)])
		}
		return b.String()
	}
	file := filepath.Join(t.TempDir(), "f")
	sed := func(script, text string) string {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		out, err := exec.Command("sed", script, file).Output()
		require.NoError(t, err)
		return string(out)
	}
	edits, most := 0, 40
	if !needs.Slow() {
		most = 4
	}
	for i := 0; edits < most; i++ {
		require.Less(t, i, 10000)
		text := randomText(12) + "\n"
		in := &editInput{Old: randomText(3), New: randomText(4), All: true}
		plain, summary, err := in.apply(text)
		if err != nil || !strings.HasSuffix(plain, "\n") {
			continue
		}
		edits++
		edited, summaryOfDOS, err := in.apply(sed("s/$/\\r/", text))
		require.NoError(t, err, "%q %q", text, in.Old)
		assert.Equal(t, summary, summaryOfDOS)
		assert.Equal(t, plain, sed("s/\\r$//", edited), "%q %q", text, in.Old)
		assert.Equal(t, sed("s/$/\\r/", plain), edited, "%q %q", text, in.Old)
	}
}
