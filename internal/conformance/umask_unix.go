//go:build unix

package conformance

import "syscall"

// setUmask sets the umask that the recordings were made with: the modes of
// local files are part of some results.
func setUmask() { syscall.Umask(0o022) }
