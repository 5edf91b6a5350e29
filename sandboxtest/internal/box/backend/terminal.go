package backend

import "os"

// Terminal is a pseudo terminal. The process gets the slave.
type Terminal struct{ Master, Slave *os.File }

// CloseAll closes files.
func CloseAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
