package localfile

import (
	"crypto/rand"
	"os"
	"regexp"
)

// TempName returns a name for a file that is not complete yet. [IsTemp] recognizes it.
func TempName() string { return ".download-" + rand.Text() }

var tempName = regexp.MustCompile(`^\.download-[A-Z2-7]{26}$`)

// IsTemp reports whether a name without a directory is from TempName.
func IsTemp(name string) bool { return tempName.MatchString(name) }

// Sweep removes the temporary files that killed downloads have left in a directory. It
// keeps files that a process holds, and ignores errors.
func Sweep(dir *os.Root) {
	d, err := dir.Open(".")
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		if !IsTemp(name) {
			continue
		}
		if info, err := dir.Lstat(name); err != nil || !info.Mode().IsRegular() {
			continue
		}
		f, err := dir.Open(name)
		if err != nil {
			continue
		}
		if release, ok := Hold(f); ok {
			_ = dir.Remove(name)
			release()
		}
		f.Close()
	}
}
