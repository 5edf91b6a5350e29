package sandboxtest

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// sparedSignals restores the default handling of signals for programs in sandboxes, if
// this process was started with signals ignored, as by nohup or as a background process
// of a shell. A program would inherit that, could not be interrupted, and could not even
// set a trap in a shell. For this process itself nothing changes: a signal that is not
// read from the channel has no effect.
var sparedSignals = sync.OnceFunc(func() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
})
