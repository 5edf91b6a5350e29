package box

import (
	"fmt"
	"path/filepath"
)

// realFolders returns the absolute names, without links, of folders to hide from sandboxes.
func realFolders(dirs []string) (hidden []string, err error) {
	for _, dir := range dirs {
		real, err := filepath.Abs(dir) // first: the working directory's own name may have links
		if err == nil {
			real, err = filepath.EvalSymlinks(real)
		}
		if err != nil {
			return nil, fmt.Errorf("hiding %s: %w", dir, err)
		}
		hidden = append(hidden, real)
	}
	return hidden, nil
}
