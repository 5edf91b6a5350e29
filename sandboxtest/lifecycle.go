package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

// newSessionLocked gives a session of the sandbox that has no machine yet.
func (sb *namedSandbox) newSessionLocked(from *snapshot) *session {
	set := sb.settings.clone()
	sess := &session{
		sb: sb, id: newSessionID(), vcpus: set.VCPUs, runtime: set.Runtime, timeout: set.Timeout,
		policy: set.Policy, region: set.Region, cwd: set.account().WorkDir, requestedAt: sb.s.clock.Now(), status: statusPending,
		commands: make(map[string]*command), changed: make(chan struct{}), token: newToken(),
	}
	if from != nil {
		sess.sourceSnapshot = from.id
	}
	sess.updatedAt = sess.requestedAt
	return sess
}

// bootInOp boots a session of the sandbox from a layer, and makes it the current
// one. fill, when given, puts the first files in place before anybody else can
// reach the machine.
func (sb *namedSandbox) bootInOp(ctx context.Context, sess *session, from *snapshot, fill func(context.Context, *box.Box) error) error {
	st := sb.s.store
	st.mu.Lock()
	set := sb.settings.clone()
	st.mu.Unlock()
	machine, err := sess.makeMachine(ctx, &set, from, fill)
	if err != nil {
		sess.detach()
		sess.unguard()
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	sess.machine = machine
	if from != nil {
		from.useLocked(sb.s.clock.Now())
	}
	sb.current, sb.making = sess, false
	st.sessions[sess.id] = sess
	if d := sb.s.opts.Pending; d > 0 {
		sess.setStatusLocked(statusPending)
		sess.next = sb.s.clock.AfterFunc(d, sess.run)
	} else {
		sess.runLocked()
	}
	st.changedLocked(sb, sess)
	return nil
}

// makeMachine makes the machine of a session that starts. What the session has
// taken for it is given back by the caller if that fails.
func (sess *session) makeMachine(ctx context.Context, set *settings, from *snapshot, fill func(context.Context, *box.Box) error) (*box.Box, error) {
	s := sess.sb.s
	config := box.Config{Hostname: sess.sb.key.name, DenyNetwork: set.deniesAll(), Account: set.account(),
		Limits: box.Limits{Memory: int64(sess.vcpus) * wire.MemoryPerVCPU << 20, Processes: maxProcesses}}
	if err := sess.guard(&config, set); err != nil {
		return nil, err
	}
	var err error
	switch {
	case from != nil:
		err = set.reach(from)
		config.Layer = from.layer // and what that stands on
	case set.Image != "":
		config.Image, err = s.images.root(set.Image)
	}
	if err == nil {
		config.Mounts, err = sess.attach(set.Mounts)
	}
	if err != nil {
		return nil, err
	}
	machine, err := s.host.New(ctx, config)
	switch {
	case errors.Is(err, box.ErrNoLayer):
		return nil, errSnapshotGone
	case errors.Is(err, box.ErrNoImage):
		return nil, badRequest("The image that the snapshot stands on is not on this machine: %s. Start the emulator with the directory in Options.Images again.", set.Image)
	case errors.Is(err, box.ErrTooManyLayers):
		return nil, badRequest("The snapshot has too many ancestors for this machine: %v", err)
	case err != nil:
		return nil, err
	}
	sess.haveTaken()
	if fill != nil {
		if err := fill(ctx, machine); err != nil {
			return nil, errors.Join(err, machine.Remove())
		}
	}
	return machine, nil
}

func (sess *session) run() {
	st := sess.sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if sess.status == statusPending {
		sess.runLocked()
		st.changedLocked(sess, sess.sb)
	}
}

func (sess *session) runLocked() {
	sess.startedAt = sess.sb.s.clock.Now()
	sess.updatedAt = sess.startedAt
	sess.setStatusLocked(statusRunning)
	sess.scheduleExpiryLocked()
}

// scheduleExpiryLocked lets the clock stop the session once its timeout is over.
func (sess *session) scheduleExpiryLocked() {
	sess.expiry.Stop()
	left := sess.beganLocked().Add(sess.timeout).Sub(sess.sb.s.clock.Now())
	sess.expiry = sess.sb.s.clock.AfterFunc(left, func() {
		if sess.sb.s.enter() {
			defer sess.sb.s.leave()
			sess.stop(nil)
		}
	})
}

// stop begins to end the session, with a snapshot when the plan says so, and
// goes as far as the durations of the states let it. A nil plan makes a
// snapshot where the sandbox is persistent. On a session that is about to end
// it does nothing.
func (sess *session) stop(plan *snapshotPlan) bool {
	s, st := sess.sb.s, sess.sb.s.store
	sess.awaitMachine()
	sess.awaitSignals()
	st.mu.Lock()
	if !sess.liveLocked() {
		st.mu.Unlock()
		return false
	}
	sess.expiry.Stop()
	sess.next.Stop()
	explicit := plan != nil
	if explicit {
		sess.snapshottedAt = s.clock.Now() // when it was asked for
	} else {
		sess.requestedStopAt = s.clock.Now()
	}
	if plan == nil && sess.sb.settings.Persistent {
		plan = &snapshotPlan{method: methodAutomatic}
	}
	sess.plan = plan
	if explicit {
		sess.setStatusLocked(statusSnapshotting)
	} else {
		sess.setStatusLocked(statusStopping)
	}
	machine := sess.machine
	st.mu.Unlock()

	sess.haltStubs()
	if err := machine.Stop(context.Background()); err != nil {
		s.opts.Logger.Error("stop", "session", sess.id, "error", err)
	}
	sess.awaitCommands()
	if explicit {
		sess.snapshotAndFinish()
		return true
	}
	sess.after(s.stoppingTime(), func() {
		if !sess.toSnapshotting() {
			sess.finish()
			return
		}
		sess.snapshotAndFinish()
	})
	return true
}

// awaitMachine waits while the session's sandbox is being made.
func (sess *session) awaitMachine() {
	st := sess.sb.s.store
	for {
		st.mu.Lock()
		making, changed := sess.sb.making, sess.changed
		st.mu.Unlock()
		if !making {
			return
		}
		<-changed
	}
}

// after goes on at once, or once the transitional state has lasted for d.
func (sess *session) after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	st := sess.sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if sess.machine != nil {
		sess.next = sess.sb.s.clock.AfterFunc(d, f)
	}
}

func (sess *session) toSnapshotting() bool {
	st := sess.sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if sess.plan == nil || sess.machine == nil {
		return false
	}
	sess.setStatusLocked(statusSnapshotting)
	return true
}

// finish ends the session. It does nothing when that was done already.
func (sess *session) finish() { sess.end(statusStopped) }

func (sess *session) end(status string) {
	st := sess.sb.s.store
	st.mu.Lock()
	machine := sess.machine
	if machine == nil {
		st.mu.Unlock()
		return
	}
	sess.used = sess.measureLocked()
	sess.machine = nil
	sess.sb.past.add(sess.used)
	sess.expiry.Stop()
	sess.next.Stop()
	commands := sess.order
	st.mu.Unlock()
	// Whoever hears that the session has ended may have its drives.
	if err := machine.Remove(); err != nil {
		sess.sb.s.opts.Logger.Error("remove", "session", sess.id, "error", err)
	}
	sess.detach()
	sess.unguard()
	st.mu.Lock()
	now := sess.sb.s.clock.Now()
	if sess.stoppedAt = now; status == statusAborted {
		sess.abortedAt = now
	}
	sess.setStatusLocked(status)
	st.changedLocked(sess, sess.sb)
	st.mu.Unlock()
	for _, cmd := range commands {
		cmd.log.Remove()
	}
}

// kill ends the session at once and without a snapshot.
func (sess *session) kill(status string) {
	st := sess.sb.s.store
	st.mu.Lock()
	machine := sess.machine
	if machine == nil {
		ended := sess.endedLocked()
		st.mu.Unlock()
		if !ended {
			_ = sess.await(context.Background(), func() bool { return false }) // for what is ending it
		}
		return
	}
	switch {
	case status == statusFailed: // a machine that dies does not tell before
		sess.setStatusLocked(status)
	case sess.liveLocked():
		sess.requestedStopAt = sess.sb.s.clock.Now()
		sess.setStatusLocked(statusStopping)
	}
	st.mu.Unlock()
	sess.haltStubs()
	if err := machine.Stop(context.Background()); err != nil {
		sess.sb.s.opts.Logger.Error("stop", "session", sess.id, "error", err)
	}
	sess.awaitCommands()
	sess.end(status)
}

// sourceLocked gives the snapshot that the sandbox's files are in.
func (sb *namedSandbox) sourceLocked() (*snapshot, error) {
	if sb.currentSnapshot == "" {
		if sb.settings.Persistent {
			return nil, errNothingYet
		}
		return nil, errNothingKept
	}
	from := sb.s.store.snapshots[sb.currentSnapshot]
	if from == nil || from.status != snapshotCreated {
		return nil, errSnapshotGone
	}
	return from, nil
}

// resumeInOp gives the sandbox a running session, and says whether it is a new
// one. A session that is about to end is left to do so; where the server is
// realistic, the resume waits for that.
func (sb *namedSandbox) resumeInOp(ctx context.Context) (bool, error) {
	if sb.s.opts.Realistic {
		if err := sb.awaitEnd(ctx); err != nil {
			return false, err
		}
	}
	st := sb.s.store
	st.mu.Lock()
	if !sb.current.endedLocked() {
		st.mu.Unlock()
		return false, nil
	}
	from, err := sb.sourceLocked()
	if err != nil {
		st.mu.Unlock()
		return false, err
	}
	sess := sb.newSessionLocked(from)
	st.mu.Unlock()
	err = sb.bootInOp(ctx, sess, from, nil)
	return err == nil, err
}

// Crash simulates the death of the machine of a running sandbox: its processes
// end, its files since the last snapshot are lost, and its session has failed.
// Callers waiting for a command receive the error that the sandbox has stopped,
// and no exit code. It reports whether there was such a sandbox with a session.
func (s *Server) Crash(name string) bool {
	sb := s.store.find("", name)
	if sb == nil || sb.lock() != nil {
		return false
	}
	defer sb.op.Unlock()
	s.store.mu.Lock()
	current := sb.current
	live := current.liveLocked()
	current.failed = current.failed || live
	s.store.mu.Unlock()
	if live {
		current.kill(statusFailed)
	}
	return live
}

// shutDown ends every session, as Server.Close documents.
func (st *store) shutDown() error {
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
			st.s.guard.Do("ending a session", func() { err = sb.shutDownInOp() })
		}()
	}
	var errs []error
	for range sandboxes {
		errs = append(errs, <-done)
	}
	return errors.Join(append(errs, st.save())...)
}

// shutDownInOp ends the session. The error says that its files could not be kept.
func (sb *namedSandbox) shutDownInOp() (err error) {
	st := sb.s.store
	st.mu.Lock()
	current, keep := sb.current, sb.settings.Persistent && sb.s.opts.Dir != ""
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
	if err := machine.Stop(context.Background()); err != nil {
		sb.s.opts.Logger.Error("stop", "session", current.id, "error", err)
	}
	current.awaitCommands()
	if keep && taken == nil && !current.takeSnapshot() {
		st.mu.Lock()
		err = fmt.Errorf("the files of sandbox %s are lost: %w", sb.key.name, current.saveErr)
		st.mu.Unlock()
	}
	current.end(statusStopped)
	sb.closeRoutesInOp()
	return err
}
