package sandboxtest

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// restoreSignals stops this process from ignoring signals that it was started with ignored,
// for example by nohup or as a background process of a shell. Programs in sandboxes would
// inherit that: they could not be interrupted, and a shell could not even set a trap. This
// process itself still ignores the signals, because it never reads the channel.
var restoreSignals = sync.OnceFunc(func() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
})
