// Package inherited keeps new processes from inheriting unknown files. A shell, make or a
// supervisor may have started this process with files that it had open, and package
// os/exec passes them on.
package inherited

import (
	"os"
	"os/exec"
)

// Close lets the process that cmd starts inherit only its standard files and
// cmd.ExtraFiles. Call it right before cmd.Start, with ExtraFiles complete. It does not
// close the files in this process, because it may not own them.
func Close(cmd *exec.Cmd) {
	last := -1
	for _, fd := range passedOn() {
		last = max(last, fd-3)
	}
	// A nil entry is closed in the new process.
	for len(cmd.ExtraFiles) <= last {
		cmd.ExtraFiles = append(cmd.ExtraFiles, (*os.File)(nil))
	}
}
