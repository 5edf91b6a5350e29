// Package guard keeps a panic in a goroutine of the emulator from ending the
// process.
package guard

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// Guard recovers from panics. Without it, data from one sandbox could end the process, and
// with it all other sandboxes and the program that uses the emulator. Every goroutine that
// handles data of a sandbox runs under a guard. A Guard is safe for concurrent use.
type Guard struct {
	log *slog.Logger

	mu     sync.Mutex
	logged map[string]bool // by the place of the panic
}

// New returns a guard that reports to log.
func New(log *slog.Logger) *Guard { return &Guard{log: log, logged: make(map[string]bool)} }

// Go runs f as [Guard.Do] does, in a goroutine of a group.
func (g *Guard) Go(group *sync.WaitGroup, doing string, f func()) {
	group.Go(func() { g.Do(doing, f) })
}

// Do calls f. If f panics, its work is dropped, and the panic is logged once for each
// place in the source. f has to release what it has locked and opened by defer.
func (g *Guard) Do(doing string, f func()) {
	defer func() {
		failure := recover()
		if failure == nil {
			return
		}
		where := panickedAt()
		g.mu.Lock()
		known := g.logged[where]
		g.logged[where] = true
		g.mu.Unlock()
		if !known {
			g.log.Error("dropped data of a sandbox that could not be handled", "while", doing, "panic", fmt.Sprint(failure), "at", where)
		}
	}()
	f()
}

// Tried calls f, and returns a panic as an error. Use it in a goroutine whose error another
// goroutine waits for.
func Tried(f func() error) (err error) {
	defer func() {
		if failure := recover(); failure != nil {
			err = fmt.Errorf("panic at %s: %v", panickedAt(), failure)
		}
	}()
	return f()
}

// panickedAt returns the place of a panic that was just recovered.
func panickedAt() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	panicking := false
	for {
		frame, more := frames.Next()
		ofRuntime := strings.HasPrefix(frame.Function, "runtime.")
		if panicking && !ofRuntime {
			return fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		}
		panicking = panicking || frame.Function == "runtime.gopanic"
		if !more {
			return "an unknown place"
		}
	}
}
