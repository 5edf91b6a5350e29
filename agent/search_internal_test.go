package agent

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestCanceledSearch: cancellation ends a search of a long line with a slow pattern, which
// would take minutes.
func TestCanceledSearch(t *testing.T) {
	t.Parallel()
	re, err := compilePattern(strings.Repeat("(?:x?){240}", 9) + "y")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &cancelableReader{Reader: bytes.NewReader(bytes.Repeat([]byte("x"), maxSearched)), ctx: ctx}
	assert.False(t, re.MatchReader(r))
	assert.Greater(t, r.Len(), maxSearched-2*maxLooked, "the search continues after the cancellation")
}

// TestGlobHint: a pattern that other programs read differently has a hint.
func TestGlobHint(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"a/*.@(ts|tsx)": "@(a|b)", "!*.ts": "leading !", "~/*.go": "~ and $", "$HOME/*": "~ and $", `src\*.ts`: "backslash", "*.go, *.ts": "Commas", "*.go": "",
	} {
		assert.Contains(t, globHint(pattern), want, pattern)
		assert.Equal(t, want == "", globHint(pattern) == "", pattern)
	}
}

// FuzzGrepOutput: parsing the output of any program does not depend on how the output is
// split into pieces, and needs little memory.
func FuzzGrepOutput(f *testing.F) {
	f.Add([]byte("./a\x001:x\n./b\x0022:y\n"), 3)
	f.Add([]byte("a\x00-1:x\n"), 1)
	f.Add([]byte("a\x0099999999999999999999:x\nno"), 1)
	f.Add(bytes.Repeat([]byte("x"), 3*maxLooked), 100)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		size = max(1, size)
		read := func(size int) (found []match, err error) {
			g := &grepOutput{full: func() bool { return len(found) >= 10 }, found: func(m match) { found = append(found, m) }}
			for rest := data; len(rest) > 0 && g.err == nil; rest = rest[min(size, len(rest)):] {
				_, _ = g.Write(rest[:min(size, len(rest))])
			}
			assert.LessOrEqual(t, len(g.line), maxLooked)
			return found, g.err
		}
		whole, wholeErr := read(len(data) + 1)
		pieces, piecesErr := read(size)
		assert.Equal(t, whole, pieces)
		assert.Equal(t, wholeErr, piecesErr)
		assert.LessOrEqual(t, len(whole), 10)
		for _, m := range whole {
			assert.NotContains(t, string(m.text), "\n")
		}
	})
}

// TestBracesAgainstBash: balanced braces expand as in bash. The test omits {} and unbalanced
// braces, which bash treats differently.
func TestBracesAgainstBash(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "bash")
	r := rand.New(rand.NewPCG(3, 4))
	var patterns []string
	var script strings.Builder
	for len(patterns) < 300 {
		var b strings.Builder
		depth := 0
		for range 1 + r.IntN(12) {
			c := "ab{{,,}/"[r.IntN(8)]
			if c == '}' && (depth == 0 || strings.HasSuffix(b.String(), "{")) {
				continue
			}
			if c == '{' {
				depth++
			} else if c == '}' {
				depth--
			}
			b.WriteByte(c)
		}
		if depth == 0 && b.Len() > 0 {
			patterns = append(patterns, b.String())
			script.WriteString("printf '<%s>' " + b.String() + "; echo\n")
		}
	}
	out, err := exec.Command("bash", "-fc", script.String()).Output()
	require.NoError(t, err)
	want := strings.Split(string(out), "\n")
	for i, p := range patterns {
		list, err := expandBraces(p, 10_000)
		require.NoError(t, err, p)
		var have strings.Builder
		for _, s := range list {
			if s != "" { // bash drops empty words
				have.WriteString("<" + s + ">")
			}
		}
		if have.Len() == 0 {
			have.WriteString("<>")
		}
		assert.Equal(t, want[i], have.String(), p)
	}
}
