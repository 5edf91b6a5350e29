package folder

import (
	"sync"
	"syscall"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// leftovers are process groups that outlived their leader, for systems on which processes
// can't be found by their box.
type leftovers struct {
	mu     sync.Mutex
	groups map[int]struct{}
}

func (l *leftovers) add(pid int) {
	if backend.HasMarker || backend.SignalGroup(pid, 0) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.groups == nil {
		l.groups = make(map[int]struct{})
	}
	l.groups[pid] = struct{}{}
}

func (l *leftovers) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for pid := range l.groups {
		_ = backend.SignalGroup(pid, syscall.SIGKILL)
	}
	l.groups = nil
}
