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

// atRoot has the tests run where the repository begins: they look at its files.
// Each test calls it. TestMain would be too early: only from when tests run does
// go test notice which files a result depends on, and these depend on all of
// them, also through programs that they run.
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
		_, _ = os.Stat(path) // to have looked at it
		return err
	})
})
