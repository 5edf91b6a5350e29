package namespaces

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestHomesOfTheSystem: a directory that all programs need is not a home, whatever an
// account or the environment says.
func TestHomesOfTheSystem(t *testing.T) {
	for _, dir := range []string{"/", "/usr", "/usr/sbin", "/bin", "/etc", "/home", "/tmp", "/var", "/opt", "/nonexistent", "relative", ""} {
		t.Setenv("HOME", dir)
		for _, h := range homes(nil) {
			assert.NotEqual(t, dir, h.dir)
		}
	}
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("PATH", dir+":/bin")
	for _, h := range homes(nil) {
		assert.NotEqual(t, dir, h.dir, "all of it is in PATH")
	}
}
