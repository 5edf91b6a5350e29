package project_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryTestMain: the tests of each package begin in the same environment,
// whatever a user has set, and leave no goroutine behind. Those of the examples'
// programs have the user's, like those of their readers. Without it a token of the
// user's went to a test's server, and leaked goroutines were found by users.
func TestEveryTestMain(t *testing.T) {
	t.Parallel()
	atRoot(t)
	out, err := exec.Command("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}", "./...").Output()
	require.NoError(t, err)
	here, err := os.Getwd()
	require.NoError(t, err)
	calls := regexp.MustCompile(`(?s)\nfunc TestMain\(m \*testing\.M\) \{.*?\b(testmain\.|testkit\.)?Main\(`)
	for dir := range strings.Lines(string(out)) {
		folder, err := filepath.Rel(here, strings.TrimSpace(dir))
		require.NoError(t, err)
		if strings.HasPrefix(folder, "examples"+string(filepath.Separator)) {
			continue
		}
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		require.NoError(t, err)
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			found = found || calls.Match(text)
		}
		assert.True(t, found, "%s has no TestMain: add main_test.go with func TestMain(m *testing.M) { testmain.Main(m) }", folder)
	}
}

// TestSkips: tests are skipped by package needs alone, whose reasons a check
// counts, and which tells what could be installed from what is not for a machine.
// Without it tests that ran nowhere looked as if they passed.
func TestSkips(t *testing.T) {
	t.Parallel()
	atRoot(t)
	skips := regexp.MustCompile(`\b(t|tb|b|f)\.Skip(f|Now)?\(`)
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || filepath.Dir(name) == filepath.Join("internal", "test", "needs") {
			return err
		}
		text, err := os.ReadFile(name)
		if found := skips.Find(text); found != nil && name != filepath.Join("internal", "test", "project", "testmain_test.go") {
			t.Errorf("%s has %q: call needs.Missing, needs.Other or needs.Long", name, found)
		}
		return err
	}))
}
