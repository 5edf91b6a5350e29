package untar

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWindowsLinks: links whose targets leave the directory on Windows are omitted, and
// names that mean something else there are refused.
func TestWindowsLinks(t *testing.T) {
	for _, target := range []string{
		`..\..\x`, `..\x`, `a\..\..\..\x`, `C:x`, `\x`, `\\host\share\x`, `C:\x`, `//host/share/x`, `NUL`, `sub\..\..`, `x.`,
	} {
		opts, leftOut := lax, ""
		opts.LeftOut = func(name string) { leftOut = name }
		_, err := extract(t, archive(t, symlink("l", target)), opts)
		require.NoError(t, err, target)
		assert.Equal(t, "l", leftOut, target)
	}
	for _, name := range []string{`a\b`, `a:b`, `CON`, `trail.`, `trail `, `x/..\y`, `a?b`, `C:evil`, `aux.txt`, `COM1`, `conin$`} {
		_, err := Clean(name)
		assert.ErrorIs(t, err, ErrUnsafe, name)
	}
	opts, named := lax, ""
	opts.Unwritable = func(name string, _ error) { named = name }
	in, err := extract(t, archive(t, file("a:b", "x"), file("z", "x")), opts)
	require.NoError(t, err)
	assert.Equal(t, "a:b", named)
	assert.FileExists(t, filepath.Join(in, "z"))
}
