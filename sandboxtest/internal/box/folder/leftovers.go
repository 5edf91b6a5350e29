package folder

import (
	"sync"
	"syscall"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// leftovers are process groups that outlived their leader. Reaper may not find their
// processes, because some have no marker: programs that the SDK starts in a sandbox begin
// with "env -i".
type leftovers struct {
	mu     sync.Mutex
	groups map[int]struct{}
}

func (l *leftovers) add(pid int) {
	if backend.SignalGroup(pid, 0) != nil {
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
		if !backend.IsGone(pid) {
			continue // another process has this number now
		}
		_ = backend.SignalGroup(pid, syscall.SIGKILL)
	}
	l.groups = nil
}
