package backend

import "path/filepath"

// Mount is a drive at a path of a sandbox.
type Mount struct {
	// Path is absolute and clean.
	Path string
	// Drive is the drive's name. A missing drive is created. The sandbox uses the files
	// that the drive has when the sandbox is created.
	Drive string
	// Keep saves the files to the drive when the Box is frozen or removed.
	Keep bool
	// Dir is a directory of the host. It contains a copy of the drive's files or, if Lower
	// is set, only the sandbox's changes to the drive's files in Lower. Host.New sets both.
	Dir, Lower string
}

// Upper is the directory of changes of an overlay over Lower.
func (m Mount) Upper() string { return filepath.Join(m.Dir, "u") }

// Work is the work directory of that overlay.
func (m Mount) Work() string { return filepath.Join(m.Dir, "w") }
