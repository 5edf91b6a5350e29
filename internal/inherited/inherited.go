// Package inherited keeps from the processes that this one starts what it was
// itself started with and does not know: files that a shell, make or a supervisor
// had open. Package os/exec passes them on.
package inherited

import (
	"os"
	"os/exec"
)

// Close lets the process that cmd starts have its standard files and
// cmd.ExtraFiles, and no other. Call it right before cmd.Start, with ExtraFiles
// complete. It leaves the files of this process alone: in a test they are not
// ours.
func Close(cmd *exec.Cmd) {
	last := -1
	for _, fd := range passedOn() {
		last = max(last, fd-3)
	}
	// What is nil there is closed in the new process.
	for len(cmd.ExtraFiles) <= last {
		cmd.ExtraFiles = append(cmd.ExtraFiles, (*os.File)(nil))
	}
}
