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
)

// TestDocs: the code of the two pages is that of the examples, which are compiled
// and tested, and the tests that they name are there.
func TestDocs(t *testing.T) {
	var doc []byte
	for _, page := range []string{"../docs/durable.md", "../docs/durable-service.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		doc = append(doc, text...)
	}
	var code strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			text, readErr := os.ReadFile(path)
			code.Write(text)
			return readErr
		}
		return err
	}))
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(doc), -1)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		assert.Contains(t, code.String(), b[1])
	}
	names := regexp.MustCompile("`(Test[A-Z]\\w*)`").FindAllStringSubmatch(string(doc), -1)
	require.Greater(t, len(names), 5)
	for _, n := range names {
		assert.Contains(t, code.String(), "func "+n[1]+"(")
	}
}
