package store

import (
	"context"
	"math/rand/v2"
	"time"
)

// What the service was seen to take.
const (
	minStopping      = time.Second
	maxStopping      = 2700 * time.Millisecond
	snapshottingTime = 3700 * time.Millisecond
	// snapshotTimePerGiB comes on top, and with maxSnapshotting of it a stop
	// takes the 18 seconds that it took for 1.3 GB.
	snapshotTimePerGiB = 12 * time.Second
	maxSnapshotting    = 20 * time.Second
	// stopResponse is the latest time of the response to a stop that is followed
	// by a snapshot: before the snapshot is there.
	stopResponse = 1500 * time.Millisecond
	// settleTime is how long a session continues after its snapshot was taken.
	settleTime = 400 * time.Millisecond
)

// stoppingTime is how long a session is stopping.
func (st *Store) stoppingTime() time.Duration {
	if st.opts.Realistic {
		return minStopping + rand.N(maxStopping-minStopping)
	}
	return 0
}

// snapshottingTimeOf is how long a realistic session with so many bytes of its
// own is saved.
func snapshottingTimeOf(size int64) time.Duration {
	const mega = 1 << 20
	return min(snapshottingTime+time.Duration(size/mega)*snapshotTimePerGiB/1024, maxSnapshotting)
}

// snapshotAndFinish takes the session's snapshot and ends it. A realistic
// snapshot is there only at the end of its time, others are from the start.
func (sess *Session) snapshotAndFinish() {
	if sess.sb.st.opts.Realistic {
		sess.after(snapshottingTimeOf(sess.freeze().size), func() {
			if sess.takeSnapshot() || !sess.goOn() {
				sess.after(settleTime, sess.finish)
			}
		})
		return
	}
	if sess.takeSnapshot() || !sess.goOn() {
		sess.finish()
	}
}

// await waits until done, which is called with the store's lock held, or until
// the session has ended, or runs on.
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

// awaitEnd waits until no session of the sandbox is coming to its end.
func (sb *Sandbox) awaitEnd(ctx context.Context) error {
	sb.st.mu.Lock()
	current := sb.current
	sb.st.mu.Unlock()
	return current.await(ctx, func() bool { return current.liveLocked() })
}

// awaitStop waits until a stop responds. ours says that this stop has begun it.
func (sess *Session) awaitStop(ctx context.Context, ours bool) error {
	st := sess.sb.st
	if !st.opts.Realistic {
		if ours {
			return nil
		}
		return sess.await(ctx, func() bool { return false })
	}
	late := func() bool { return false }
	st.mu.Lock()
	persistent := sess.plan != nil
	st.mu.Unlock()
	if persistent {
		var over bool
		t := st.Clock.AfterFunc(stopResponse, func() {
			st.mu.Lock()
			defer st.mu.Unlock()
			over = true
			sess.wakeLocked()
		})
		defer t.Stop()
		late = func() bool { return over }
	}
	return sess.await(ctx, late)
}
