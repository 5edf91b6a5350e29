package sandboxtest

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// sparedSignals undoes, for the programs in sandboxes, that this process was
// started with signals ignored, as shells do for what runs in the background
// and nohup does: a program inherits that, can't be interrupted, and can't
// even set a trap in a shell. To this process itself nothing changes: a signal
// that is not read from the channel does nothing.
var sparedSignals = sync.OnceFunc(func() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
})
