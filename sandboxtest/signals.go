package sandboxtest

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// restoreSignals handles each signal that this process ignores because its parent did, for
// example nohup or a shell that started it in the background. Otherwise programs in sandboxes
// would also ignore the signal: they could not be interrupted, and a shell could not even set
// a trap. The handler has no effect on this process, because nothing reads its channel.
var restoreSignals = sync.OnceFunc(func() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
})
