// Package rootfs makes root file systems for tests.
package rootfs

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// Make fills dir with a root file system of some of this machine's programs,
// with the libraries that they need, and nothing else. It skips the test where
// one of them is missing.
func Make(tb testing.TB, dir string, programs ...string) {
	tb.Helper()
	needs.Programs(tb, append(programs, "ldd")...)
	for _, name := range programs {
		path, err := exec.LookPath(name)
		require.NoError(tb, err)
		Copy(tb, path, filepath.Join(dir, "bin", name))
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			continue // it needs none
		}
		for field := range strings.FieldsSeq(string(out)) {
			if filepath.IsAbs(field) {
				Copy(tb, field, filepath.Join(dir, field))
			}
		}
	}
}

// Copy copies a program, unless it is there.
func Copy(tb testing.TB, from, to string) {
	tb.Helper()
	if _, err := os.Lstat(to); err == nil {
		return
	}
	require.NoError(tb, os.MkdirAll(filepath.Dir(to), 0o755))
	in, err := os.Open(from)
	require.NoError(tb, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	require.NoError(tb, err)
	_, err = io.Copy(out, in)
	require.NoError(tb, err)
	require.NoError(tb, out.Close())
}
