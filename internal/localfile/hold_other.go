//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package localfile

import "os"

// Hold does nothing on this system, and Sweep removes nothing.
func Hold(*os.File) (release func(), ok bool) { return func() {}, false }
