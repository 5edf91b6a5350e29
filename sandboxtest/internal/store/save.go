package store

import (
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

// saver writes the state to Options.Dir. The store's lock guards its fields, except
// writing.
type saver struct {
	// loaded is set once the directory's content has been read. Nothing may be written
	// before.
	loaded bool
	wake   chan struct{}
	// changes is the number of changes so far, and saved is how many of them are saved.
	changes, saved uint64
	// removals remove the files of deleted snapshots and drives. They run only once the
	// saved state no longer names the files. Until then a crash would bring back the
	// previous state, which needs them.
	removals []func() error

	writing sync.Mutex // held while the file is written
}

// changedLocked records that something has changed and has to be saved.
func (st *Store) changedLocked() {
	st.saver.changes++
	select {
	case st.saver.wake <- struct{}{}:
	default:
	}
}

// saveChanges saves changes soon after they happen, until the server closes.
func (st *Store) saveChanges() {
	for {
		select {
		case <-st.saver.wake:
		case <-st.ctx.Done():
			return
		}
		select {
		case <-time.After(saveDelay):
		case <-st.ctx.Done():
			return
		}
		_ = st.Flush() // it logs its errors
	}
}

// Flush returns when all changes so far are saved. A change that can't be saved, for
// example because the disk is full, is saved with the next one.
func (st *Store) Flush() error {
	st.mu.Lock()
	want := st.saver.changes
	st.mu.Unlock()
	st.saver.writing.Lock()
	defer st.saver.writing.Unlock()
	st.mu.Lock()
	done := st.saver.saved >= want
	st.mu.Unlock()
	if done {
		return nil // another caller has saved them
	}
	err := st.saveUnderLock()
	if err != nil {
		st.opts.Log.Error("save the state", "error", err)
	}
	return err
}

// save writes the whole state, even if nothing has changed.
func (st *Store) save() error {
	st.saver.writing.Lock()
	defer st.saver.writing.Unlock()
	return st.saveUnderLock()
}

// saveUnderLock writes the state atomically, and then removes the layers that it no longer
// names. The caller holds saver.writing.
func (st *Store) saveUnderLock() error {
	st.mu.Lock()
	changes, removals := st.saver.changes, st.saver.removals
	st.saver.removals = nil
	var whole *State
	if st.opts.Dir != "" && st.saver.loaded {
		whole = st.stateLocked()
	}
	st.mu.Unlock()
	var err error
	if whole != nil {
		err = writeState(filepath.Join(st.opts.Dir, stateFile), whole)
	}
	st.mu.Lock()
	if err == nil {
		st.saver.saved = changes
	} else {
		st.saver.removals = append(removals, st.saver.removals...)
	}
	st.mu.Unlock()
	if err != nil {
		return err
	}
	for _, remove := range removals {
		if rerr := remove(); rerr != nil && !errors.Is(rerr, box.ErrNoLayer) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}
