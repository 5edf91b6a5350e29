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
// job runs without end, and only that of a release may write, except that a
// job at night may write issues.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	atRoot(t)
	files, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	uses := regexp.MustCompile(`(?m)^.*\buses:.*$`)
	pinned := regexp.MustCompile(`uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	writes := regexp.MustCompile(`(?m)^ +([\w-]+): write\b`)
	may := map[string][]string{"release.yml": {"contents", "id-token", "attestations"}, "nightly.yml": {"issues"}}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		text := string(data)
		assert.NotEmpty(t, uses.FindAllString(text, -1), file)
		for _, line := range uses.FindAllString(text, -1) {
			assert.Regexp(t, pinned, line, "%s: pin the action by its digest, with the version as a comment: a tag can be moved", file)
		}
		assert.Contains(t, text, "\npermissions:\n  contents: read\n", "%s: a job may read unless it has to write", file)
		assert.Equal(t, strings.Count(text, " runs-on: "), strings.Count(text, " timeout-minutes: "), "%s has a job without timeout-minutes, which can run for six hours", file)
		var granted []string
		for _, m := range writes.FindAllStringSubmatch(text, -1) {
			granted = append(granted, m[1])
		}
		assert.Equal(t, may[filepath.Base(file)], granted, "%s lets a job write what it did not: add it to this test with its reason, or take it out", file)
		assert.NotContains(t, text, "write-all", "%s: name what is written", file)
		assert.NotContains(t, text, "pull_request_target", "%s: it gives secrets to the code of strangers", file)
	}
}

// TestReleasesAreSigned: a release waits for a reviewer, and is made when its files
// are attested.
func TestReleasesAreSigned(t *testing.T) {
	t.Parallel()
	atRoot(t)
	data, err := os.ReadFile(".github/workflows/release.yml")
	require.NoError(t, err)
	rest := string(data)
	for _, step := range []string{"\n    environment: release\n", "run: .ci/files\n", "uses: actions/attest-build-provenance@", "subject-checksums: dist/checksums.txt", "gh release create "} {
		_, after, found := strings.Cut(rest, step)
		require.True(t, found, "%q is missing, or too early", step)
		rest = after
	}
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
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || name == filepath.Join("internal", "test", "project", "testdata", "importer")):
			return filepath.SkipDir
		case d.Name() == "go.mod", d.Name() == "package-lock.json":
			want = append(want, path.Join("/", filepath.ToSlash(filepath.Dir(name))))
		}
		return nil
	}))
	assert.ElementsMatch(t, want, watched, ".github/dependabot.yml lists each folder with a go.mod or package-lock.json: without a line its dependencies grow old unseen")
}
