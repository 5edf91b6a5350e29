package folder

import (
	"sync"
	"syscall"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// leftovers are process groups that outlived their leader. Their processes need not have
// the box's marker: the client's own programs start with "env -i".
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
			continue // a stranger that has this number now
		}
		_ = backend.SignalGroup(pid, syscall.SIGKILL)
	}
	l.groups = nil
}
