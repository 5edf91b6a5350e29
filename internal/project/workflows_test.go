package project_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWorkflows: what others wrote is pinned in the workflows by its digest, no
// job runs without end, and only that of a release may write.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	atRoot(t)
	files, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	uses := regexp.MustCompile(`(?m)^.*\buses:.*$`)
	pinned := regexp.MustCompile(`uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	writes := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		text := string(data)
		assert.NotEmpty(t, uses.FindAllString(text, -1), file)
		for _, line := range uses.FindAllString(text, -1) {
			assert.Regexp(t, pinned, line, file)
		}
		assert.Contains(t, text, "\npermissions:\n  contents: read\n", file)
		assert.Equal(t, strings.Count(text, " runs-on: "), strings.Count(text, " timeout-minutes: "), "%s has a job without a time limit", file)
		writes += strings.Count(text, ": write")
	}
	assert.Equal(t, 1, writes)
}

// TestDependenciesAreWatched: Dependabot looks after every module and every lock
// file.
func TestDependenciesAreWatched(t *testing.T) {
	t.Parallel()
	atRoot(t)
	config, err := os.ReadFile(".github/dependabot.yml")
	require.NoError(t, err)
	var watched []string
	for _, m := range regexp.MustCompile(`"(/[^"]*)"|directory: (/\S+)`).FindAllStringSubmatch(string(config), -1) {
		watched = append(watched, m[1]+m[2])
	}
	var want []string
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || name == filepath.Join("testdata", "importer")):
			return filepath.SkipDir
		case d.Name() == "go.mod", d.Name() == "package-lock.json":
			want = append(want, path.Join("/", filepath.ToSlash(filepath.Dir(name))))
		}
		return nil
	}))
	assert.ElementsMatch(t, want, watched)
}
