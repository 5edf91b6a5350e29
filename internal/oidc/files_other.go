//go:build !unix

package oidc

import (
	"io/fs"
	"os"
)

const openFlags = os.O_RDONLY

// owner is not known: access is controlled by the system's own lists.
func owner(fs.FileInfo) (uid uint32, known bool) { return 0, false }

// syncDir does nothing: directories can't be opened.
func syncDir(string) {}
