package durable_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox/durable/durabletest"
)

// TestDocs: the code on the pages is part of compiled examples or tests, and the tests that
// the pages name exist.
func TestDocs(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	doc := ""
	for _, page := range []string{"../docs/durable.md", "../docs/durable-service.md"} {
		doc += read(page)
	}
	_, proofs, found := strings.Cut(read("../docs/maintainers/reliability.md"), "\n## Durable sessions\n")
	require.True(t, found)
	doc += proofs
	var code strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			text, readErr := os.ReadFile(path)
			code.Write(text)
			return readErr
		}
		return err
	}))
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(doc, -1)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		assert.Contains(t, code.String(), b[1])
	}
	names := regexp.MustCompile("`(Test[A-Z]\\w*)`").FindAllStringSubmatch(doc, -1)
	require.Greater(t, len(names), 5)
	for _, n := range names {
		assert.True(t, strings.Contains(code.String(), "func "+n[1]+"("), "%s is not a test of this module", n[1])
	}
}

// TestS3Store: the example's store passes the tests of a store.
func TestS3Store(t *testing.T) {
	t.Parallel()
	durabletest.TestStore(t, &s3Store{&memory{all: map[string][]byte{}}, "sandbox/"})
}

// TestFirstWorkflow runs the workflow of the package's example.
func TestFirstWorkflow(t *testing.T) {
	t.Parallel()
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "build"})
	env.ExecuteWorkflow(Build, "echo built")
	require.NoError(t, env.GetWorkflowError())
	var out string
	require.NoError(t, env.GetWorkflowResult(&out))
	assert.Equal(t, "built\n", out)
}
