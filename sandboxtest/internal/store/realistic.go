package store

import (
	"context"
	"math/rand/v2"
	"time"
)

// Times that were observed on the service.
const (
	minStopping      = time.Second
	maxStopping      = 2700 * time.Millisecond
	snapshottingTime = 3700 * time.Millisecond
	// snapshotTimePerGiB is added to snapshottingTime. The figures fit an observed stop,
	// which took 18 seconds with 1.3 GB.
	snapshotTimePerGiB = 12 * time.Second
	maxSnapshotting    = 20 * time.Second
	// stopResponse is how long the response to a stop with a snapshot takes at most. The
	// snapshot may be incomplete then.
	stopResponse = 1500 * time.Millisecond
	// settleTime is how long a session continues after its snapshot was taken.
	settleTime = 400 * time.Millisecond
)

// stoppingTime returns how long a session keeps the status stopping.
func (st *Store) stoppingTime() time.Duration {
	if st.opts.Realistic {
		return minStopping + rand.N(maxStopping-minStopping)
	}
	return 0
}

// snapshottingTimeOf returns how long saving a session with so many bytes takes in
// realistic mode.
func snapshottingTimeOf(size int64) time.Duration {
	const mega = 1 << 20
	return min(snapshottingTime+time.Duration(size/mega)*snapshotTimePerGiB/1024, maxSnapshotting)
}

// snapshotAndFinish takes the session's snapshot and ends it. In realistic mode it takes
// the snapshot only after the time that the service needs for it.
func (sess *Session) snapshotAndFinish() {
	if sess.sb.st.opts.Realistic {
		sess.after(snapshottingTimeOf(sess.freeze().size), func() {
			if sess.takeSnapshot() || !sess.continueUnsaved() {
				sess.after(settleTime, sess.finish)
			}
		})
		return
	}
	if sess.takeSnapshot() || !sess.continueUnsaved() {
		sess.finish()
	}
}

// await waits until done returns true, the session has ended, or the session continues.
// It calls done with the store's lock held.
func (sess *Session) await(ctx context.Context, done func() bool) error {
	st := sess.sb.st
	for {
		st.mu.Lock()
		over, changed := sess.endedLocked() || sess.liveLocked() || done(), sess.changed
		st.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitEnd waits until no session of the sandbox is ending.
func (sb *Sandbox) awaitEnd(ctx context.Context) error {
	sb.st.mu.Lock()
	current := sb.current
	sb.st.mu.Unlock()
	return current.await(ctx, func() bool { return current.liveLocked() })
}

// awaitStop waits until the response to a stop is due. ours is set if this request has
// begun the stop.
func (sess *Session) awaitStop(ctx context.Context, ours bool) error {
	st := sess.sb.st
	if !st.opts.Realistic {
		if ours {
			return nil
		}
		return sess.await(ctx, func() bool { return false })
	}
	responseDue := func() bool { return false }
	st.mu.Lock()
	persistent := sess.plan != nil
	st.mu.Unlock()
	if persistent {
		var due bool
		t := st.Clock.AfterFunc(stopResponse, func() {
			st.mu.Lock()
			defer st.mu.Unlock()
			due = true
			sess.wakeLocked()
		})
		defer t.Stop()
		responseDue = func() bool { return due }
	}
	return sess.await(ctx, responseDue)
}
