package sandboxtest

import (
	"sync"
)

// store holds all that the API knows. Its lock guards the fields of every
// sandbox, session, snapshot and drive, and is never held while a machine works
// or a client is written to.
//
// The locks show in names: a function that ends in Locked is called with the
// store's lock held, one that ends in InOp with the op of its sandbox, which is
// taken before it. Every other one takes what it needs.
type store struct {
	s *Server

	mu        sync.Mutex
	sandboxes map[sandboxKey]*namedSandbox
	sessions  map[string]*session
	snapshots map[string]*snapshot
	drives    map[sandboxKey]*drive
	saver     saver
}

// sandboxKey is what a name is unique in.
type sandboxKey struct{ project, name string }

func newStore(s *Server) *store {
	return &store{
		s:         s,
		sandboxes: make(map[sandboxKey]*namedSandbox),
		sessions:  make(map[string]*session),
		snapshots: make(map[string]*snapshot),
		drives:    make(map[sandboxKey]*drive),
		saver:     saver{wake: make(chan struct{}, 1), changed: newStateChanges()},
	}
}

// find gives the sandbox of that name. Without a project the name is looked
// for in all of them.
func (st *store) find(project, name string) *namedSandbox {
	st.mu.Lock()
	defer st.mu.Unlock()
	if project != "" {
		return st.sandboxes[sandboxKey{project, name}]
	}
	for key, sb := range st.sandboxes {
		if key.name == name {
			return sb
		}
	}
	return nil
}

// session gives the session with that ID.
func (st *store) session(id string) (*session, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if sess := st.sessions[id]; sess != nil {
		return sess, nil
	}
	return nil, errSessionNotFound
}
