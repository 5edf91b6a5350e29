package backend

import "os"

// Terminal is a pseudo terminal, whose slave the process gets.
type Terminal struct{ Master, Slave *os.File }

// CloseAll closes files.
func CloseAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
