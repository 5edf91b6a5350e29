package project_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/testmain"
)

func TestMain(m *testing.M) { testmain.Main(m) }

// atRoot changes to the root of the repository. It also accesses all files, so that go test
// does not use a cached result if one has changed: these tests, and the programs that they
// run, depend on all files. Each test calls it, because go test does not notice accesses by
// TestMain.
func atRoot(t *testing.T) {
	t.Helper()
	require.NoError(t, toRoot())
}

var toRoot = sync.OnceValue(func() error {
	if err := os.Chdir("../../.."); err != nil {
		return err
	}
	return filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		_, _ = os.Stat(path) // go test notices this access
		return err
	})
})
