package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// newSessionLocked returns a session of the sandbox without a machine.
func (sb *Sandbox) newSessionLocked(from *Snapshot) *Session {
	set := sb.rec.Settings.clone()
	sess := &Session{
		sb: sb, commands: make(map[string]*Command), changed: make(chan struct{}), Token: newToken(),
		rec: sessionRecord{
			Key: sb.rec.Key, ID: newSessionID(), VCPUs: set.VCPUs, Runtime: set.Runtime, Timeout: set.Timeout, Policy: set.Policy,
			Region: set.Region, Cwd: set.account().WorkDir, RequestedAt: sb.st.Clock.Now(), Status: statusPending,
		},
	}
	if from != nil {
		sess.rec.SourceSnapshot = from.rec.ID
	}
	sess.rec.UpdatedAt = sess.rec.RequestedAt
	return sess
}

// bootInOp boots a session of the sandbox from a layer, and makes it the current one.
// fill, if not nil, writes the initial files before anybody else can reach the machine.
func (sb *Sandbox) bootInOp(ctx context.Context, sess *Session, from *Snapshot, fill func(context.Context, *box.Box) error) error {
	st := sb.st
	st.mu.Lock()
	set := sb.rec.Settings.clone()
	st.mu.Unlock()
	machine, err := sess.makeMachine(ctx, &set, from, fill)
	if err != nil {
		sess.detach()
		sess.closeFirewall()
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	sess.machine = machine
	if from != nil {
		from.markUsedLocked(sb.st.Clock.Now())
	}
	sb.setCurrentLocked(sess)
	sb.creating = false
	st.sessions[sess.rec.ID] = sess
	sess.runLocked()
	st.changedLocked()
	return nil
}

// makeMachine creates the machine of a starting session. If it fails, the caller releases
// what the session has reserved.
func (sess *Session) makeMachine(ctx context.Context, set *Settings, from *Snapshot, fill func(context.Context, *box.Box) error) (*box.Box, error) {
	st := sess.sb.st
	config := backend.Config{Hostname: sess.sb.rec.Key.Name, Account: set.account()}
	if err := sess.openFirewall(&config, set); err != nil {
		return nil, err
	}
	var err error
	if from != nil {
		err = set.checkSnapshotRegion(from)
		config.Layer = from.rec.Layer // and the layers below it
	}
	if err == nil {
		config.Mounts, err = sess.attach(set.Mounts)
	}
	if err != nil {
		return nil, err
	}
	machine, err := st.Host.New(ctx, config)
	switch {
	case errors.Is(err, box.ErrNoLayer):
		return nil, reply.ErrSnapshotGone
	case errors.Is(err, backend.ErrTooManyLayers):
		return nil, reply.BadRequest("The snapshot has too many ancestors for this machine: %v", err)
	case err != nil:
		return nil, err
	}
	sess.endMounting()
	if fill != nil {
		if err := fill(ctx, machine); err != nil {
			return nil, errors.Join(err, machine.Remove())
		}
	}
	return machine, nil
}

func (sess *Session) runLocked() {
	sess.rec.StartedAt = sess.sb.st.Clock.Now()
	sess.rec.UpdatedAt = sess.rec.StartedAt
	sess.setStatusLocked(StatusRunning)
	sess.scheduleExpiryLocked()
}

// scheduleExpiryLocked schedules the stop of the session at its timeout.
func (sess *Session) scheduleExpiryLocked() {
	sess.expiry.Stop()
	left := sess.timeoutStartLocked().Add(sess.rec.Timeout).Sub(sess.sb.st.Clock.Now())
	sess.expiry = sess.sb.st.Clock.AfterFunc(left, func() {
		if sess.sb.st.Enter() {
			defer sess.sb.st.Leave()
			sess.stop(nil)
		}
	})
}

// stop ends the session, with the planned snapshot. If plan is nil, it takes a snapshot
// only if the sandbox is persistent. In realistic mode stop only begins the stop, and the
// clock ends the session later. If the session is already ending, stop does nothing and
// returns false.
func (sess *Session) stop(plan *snapshotPlan) bool {
	st := sess.sb.st
	sess.awaitMachine()
	sess.awaitSignals()
	st.mu.Lock()
	if !sess.liveLocked() {
		st.mu.Unlock()
		return false
	}
	sess.expiry.Stop()
	sess.nextStep.Stop()
	explicit := plan != nil
	if explicit {
		sess.rec.SnapshottedAt = st.Clock.Now() // the time of the request
	} else {
		sess.rec.RequestedStopAt = st.Clock.Now()
	}
	if plan == nil && sess.sb.rec.Settings.Persistent {
		plan = &snapshotPlan{method: methodAutomatic}
	}
	sess.plan = plan
	if explicit {
		sess.setStatusLocked(statusSnapshotting)
	} else {
		sess.setStatusLocked(StatusStopping)
	}
	machine := sess.machine
	st.mu.Unlock()

	sess.haltStubs()
	if err := machine.Stop(); err != nil {
		st.opts.Log.Error("stop", "session", sess.rec.ID, "error", err)
	}
	sess.awaitCommands()
	if explicit {
		sess.snapshotAndFinish()
		return true
	}
	sess.after(st.stoppingTime(), func() {
		if !sess.beginSnapshotting() {
			sess.finish()
			return
		}
		sess.snapshotAndFinish()
	})
	return true
}

// awaitMachine waits while the session's sandbox is being created.
func (sess *Session) awaitMachine() {
	st := sess.sb.st
	for {
		st.mu.Lock()
		creating, changed := sess.sb.creating, sess.changed
		st.mu.Unlock()
		if !creating {
			return
		}
		<-changed
	}
}

// after calls f after d, or at once if d is zero because the mode is not realistic.
func (sess *Session) after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	st := sess.sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if sess.machine != nil {
		sess.nextStep = sess.sb.st.Clock.AfterFunc(d, f)
	}
}

// beginSnapshotting changes the status if a snapshot is planned. Otherwise, or if the
// session has already ended, it returns false.
func (sess *Session) beginSnapshotting() bool {
	st := sess.sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if sess.plan == nil || sess.machine == nil {
		return false
	}
	sess.setStatusLocked(statusSnapshotting)
	return true
}

// finish ends the session. It does nothing if the session has already ended.
func (sess *Session) finish() { sess.end(StatusStopped) }

func (sess *Session) end(status string) {
	st := sess.sb.st
	st.mu.Lock()
	machine := sess.machine
	if machine == nil {
		st.mu.Unlock()
		return
	}
	sess.rec.Used = sess.measureLocked()
	sess.machine = nil
	sess.sb.rec.Past.add(sess.rec.Used)
	sess.expiry.Stop()
	sess.nextStep.Stop()
	commands := sess.order
	st.mu.Unlock()
	// Release the drives before the status changes: a client that sees the session's end
	// may mount them.
	if err := machine.Remove(); err != nil {
		sess.sb.st.opts.Log.Error("remove", "session", sess.rec.ID, "error", err)
	}
	sess.detach()
	sess.closeFirewall()
	st.mu.Lock()
	now := sess.sb.st.Clock.Now()
	if sess.rec.StoppedAt = now; status == statusAborted {
		sess.rec.AbortedAt = now
	}
	sess.setStatusLocked(status)
	st.changedLocked()
	st.mu.Unlock()
	for _, cmd := range commands {
		cmd.log.Remove()
	}
}

// kill ends the session at once and without a snapshot.
func (sess *Session) kill(status string) {
	st := sess.sb.st
	st.mu.Lock()
	machine := sess.machine
	if machine == nil {
		ended := sess.endedLocked()
		st.mu.Unlock()
		if !ended {
			_ = sess.await(context.Background(), func() bool { return false }) // until the goroutine that is ending it has done so
		}
		return
	}
	switch {
	case status == statusFailed: // a machine that dies skips the status stopping
		sess.setStatusLocked(status)
	case sess.liveLocked():
		sess.rec.RequestedStopAt = sess.sb.st.Clock.Now()
		sess.setStatusLocked(StatusStopping)
	}
	st.mu.Unlock()
	sess.haltStubs()
	if err := machine.Stop(); err != nil {
		sess.sb.st.opts.Log.Error("stop", "session", sess.rec.ID, "error", err)
	}
	sess.awaitCommands()
	sess.end(status)
}

// currentSnapshotLocked returns the snapshot from which the sandbox resumes.
func (sb *Sandbox) currentSnapshotLocked() (*Snapshot, error) {
	if sb.rec.CurrentSnapshot == "" {
		if sb.rec.Settings.Persistent {
			return nil, reply.ErrNothingYet
		}
		return nil, reply.ErrNothingKept
	}
	from := sb.st.snapshots[sb.rec.CurrentSnapshot]
	if from == nil || from.rec.Status != snapshotCreated {
		return nil, reply.ErrSnapshotGone
	}
	return from, nil
}

// resumeInOp starts a session unless one is running, and reports whether it is new. It
// does not interrupt a session that is ending. In realistic mode it waits for the end.
func (sb *Sandbox) resumeInOp(ctx context.Context) (bool, error) {
	if sb.st.opts.Realistic {
		if err := sb.awaitEnd(ctx); err != nil {
			return false, err
		}
	}
	st := sb.st
	st.mu.Lock()
	if !sb.current.endedLocked() {
		st.mu.Unlock()
		return false, nil
	}
	from, err := sb.currentSnapshotLocked()
	if err != nil {
		st.mu.Unlock()
		return false, err
	}
	sess := sb.newSessionLocked(from)
	st.mu.Unlock()
	err = sb.bootInOp(ctx, sess, from, nil)
	return err == nil, err
}

// shutDown ends every session, as Server.Close documents.
func (st *Store) shutDown() error {
	st.mu.Lock()
	sandboxes := slices.Collect(maps.Values(st.sandboxes))
	st.mu.Unlock()
	slots := make(chan struct{}, 8)
	done := make(chan error)
	for _, sb := range sandboxes {
		go func() {
			slots <- struct{}{}
			err := errors.New("a session could not be ended")
			defer func() { <-slots; done <- err }()
			sb.op.Lock()
			defer sb.op.Unlock()
			st.guard.Do("ending a session", func() { err = sb.shutDownInOp() })
		}()
	}
	var errs []error
	for range sandboxes {
		errs = append(errs, <-done)
	}
	return errors.Join(append(errs, st.save())...)
}

// shutDownInOp ends the current session. An error means that its files could not be saved.
func (sb *Sandbox) shutDownInOp() (err error) {
	st := sb.st
	st.mu.Lock()
	current, keep := sb.current, sb.rec.Settings.Persistent && sb.st.opts.Dir != ""
	machine, taken := current.machine, current.taken
	if keep && machine != nil && taken == nil {
		current.plan = &snapshotPlan{method: methodAutomatic}
	}
	st.mu.Unlock()
	if machine == nil {
		sb.closeRoutesInOp()
		return nil
	}
	current.haltStubs()
	if err := machine.Stop(); err != nil {
		sb.st.opts.Log.Error("stop", "session", current.rec.ID, "error", err)
	}
	current.awaitCommands()
	if keep && taken == nil && !current.takeSnapshot() {
		st.mu.Lock()
		err = fmt.Errorf("the files of sandbox %s are lost: %w", sb.rec.Key.Name, current.saveErr)
		st.mu.Unlock()
	}
	current.end(StatusStopped)
	sb.closeRoutesInOp()
	return err
}

// Crash ends the machine of a running sandbox, so that its session fails. It reports
// whether the sandbox was running.
func (st *Store) Crash(name string) bool {
	sb := st.Find("", name)
	if sb == nil || sb.lock() != nil {
		return false
	}
	defer sb.op.Unlock()
	st.mu.Lock()
	current := sb.current
	live := current.liveLocked()
	current.failed = current.failed || live
	st.mu.Unlock()
	if live {
		current.kill(statusFailed)
	}
	return live
}
