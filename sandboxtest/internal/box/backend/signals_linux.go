package backend

import (
	"bytes"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// withUsualSignals calls start so that the process that it starts handles all
// signals as usual. A shell has what it starts in the background ignore an
// interrupt, nohup a hangup, a supervisor may block some, and Go passes that on.
func withUsualSignals(start func() error) error {
	// The calling thread is not used for anything else.
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, new(unix.Sigset_t), nil); err != nil {
		return err
	}
	if ignored := ignoredSignals(); len(ignored) > 0 {
		// What this process waits for, a new one handles as usual. It is dropped here.
		dropped := make(chan os.Signal, 1)
		signal.Notify(dropped, ignored...)
		defer signal.Stop(dropped)
	}
	return start()
}

// ignoredSignals returns the signals that this process ignores.
func ignoredSignals() (ignored []os.Signal) {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return nil
	}
	_, rest, _ := bytes.Cut(status, []byte("\nSigIgn:\t"))
	hex, _, _ := strings.Cut(string(rest), "\n")
	mask, err := strconv.ParseUint(hex, 16, 64)
	for n := syscall.Signal(1); err == nil && n <= 64; n++ {
		if mask>>(n-1)&1 != 0 {
			ignored = append(ignored, n)
		}
	}
	return ignored
}
