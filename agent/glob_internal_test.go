package agent

import (
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

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
