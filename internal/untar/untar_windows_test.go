package untar

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestWindowsLinks: targets by which Windows would leave the directory.
func TestWindowsLinks(t *testing.T) {
	for _, target := range []string{
		`..\..\x`, `..\x`, `a\..\..\..\x`, `C:x`, `\x`, `\\host\share\x`, `C:\x`, `//host/share/x`, `NUL`, `sub\..\..`, `x.`,
	} {
		_, err := extract(t, archive(t, symlink("l", target)), lax)
		assert.ErrorIs(t, err, ErrUnsafe, target)
	}
	for _, name := range []string{`a\b`, `a:b`, `CON`, `trail.`, `trail `, `x/..\y`, `C:evil`, `aux.txt`, `COM1`, `conin$`} {
		_, err := Clean(name)
		assert.ErrorIs(t, err, ErrUnsafe, name)
	}
}
