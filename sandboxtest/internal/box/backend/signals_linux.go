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

// withDefaultSignals calls start so that the new process has the default signal handling. A
// shell makes background processes ignore interrupts, nohup makes them ignore hangups, a
// supervisor may block signals, and Go passes all of that on.
func withDefaultSignals(start func() error) error {
	// The calling thread is not used for anything else.
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, new(unix.Sigset_t), nil); err != nil {
		return err
	}
	if ignored := ignoredSignals(); len(ignored) > 0 {
		// A new process gets the default handling of the signals that this one catches.
		// Catch the ignored signals meanwhile, and drop them.
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
