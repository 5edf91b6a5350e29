package backend

import (
	"fmt"
	"os"
	"syscall"
)

// reserved is how many descriptors a new sandbox must leave to the running ones: each
// program and each connection needs some.
const reserved = 256

// CheckFileLimit returns an error that matches syscall.EMFILE if this process can't open
// the files of another sandbox.
func CheckFileLimit() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return err
	}
	defer dir.Close()
	open, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	if n := uint64(len(open)); n+min(reserved, limit.Cur/4) > limit.Cur {
		return fmt.Errorf("%d of the %d files that the emulator may open (ulimit -n) are in use: stop sandboxes, or let it open more: %w", n, limit.Cur, syscall.EMFILE)
	}
	return nil
}
