package sandboxtest

import (
	"context"
	"errors"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

// session is one run of a sandbox. Its fields are guarded by the store's lock,
// save those that never change.
type session struct {
	sb             *namedSandbox
	id             string
	vcpus          int
	runtime        string
	region         string
	cwd            string
	drives         []*drive // mounted to read and write
	taking         []*drive // that the machine is about to take hold of
	sourceSnapshot string
	requestedAt    time.Time

	status          string
	timeout         time.Duration
	policy          *wire.NetworkPolicy // nil was never set
	failed          bool                // by Server.Crash
	startedAt       time.Time
	requestedStopAt time.Time
	stoppedAt       time.Time
	abortedAt       time.Time
	snapshottedAt   time.Time
	updatedAt       time.Time
	used            usage // once it has ended

	machine  *box.Box  // nil once it has ended
	firewall *firewall // nil where the machine heeds none
	expiry   *timer
	next     *timer // of the transitional state
	plan     *snapshotPlan
	taken    *snapshot
	token    string // of the terminal
	commands map[string]*command
	order    []*command
	streams  traffic
	// changed is closed when the status changes, then replaced.
	changed chan struct{}
}

// snapshotPlan is the snapshot that the end of a session makes.
type snapshotPlan struct {
	method     string
	expiration *time.Duration // nil means the sandbox's own
}

func (sess *session) live() bool {
	return sess.status == statusPending || sess.status == statusRunning
}

// sandboxStatus is the status of the session's sandbox, of which there are
// fewer.
func (sess *session) sandboxStatus() string {
	switch sess.status {
	case statusPending, statusRunning:
		return statusRunning
	case statusStopping, statusSnapshotting:
		return statusStopping
	}
	return statusStopped
}

// isEnding reports whether the session comes to its end, or has.
func (sess *session) isEnding() bool {
	st := sess.sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	return !sess.live()
}

// hasFailed reports whether the session's machine has died.
func (sess *session) hasFailed() bool {
	st := sess.sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	return sess.failed
}

// ended says whether the session has come to its end.
func (sess *session) ended() bool {
	switch sess.status {
	case statusStopped, statusFailed, statusAborted:
		return true
	}
	return false
}

// began is what the timeout counts from.
func (sess *session) began() time.Time {
	if sess.startedAt.IsZero() {
		return sess.requestedAt
	}
	return sess.startedAt
}

// setStatus changes the status, of which those who wait are told.
func (sess *session) setStatus(status string) {
	sess.status = status
	if sess.sb.current == sess {
		sess.sb.statusUpdatedAt = sess.sb.s.clock.Now()
	}
	sess.wakeLocked()
}

// wakeLocked tells those who wait that something about the session has changed.
func (sess *session) wakeLocked() {
	close(sess.changed)
	sess.changed = make(chan struct{})
}

func (sess *session) wire() wire.Session {
	w := wire.Session{
		ID: sess.id, Memory: sess.vcpus * memoryPer, VCPUs: sess.vcpus, Region: sess.region,
		Runtime: sess.runtime, Architecture: architecture, Timeout: wire.Duration(sess.timeout), Status: sess.status,
		RequestedAt: wire.At(sess.requestedAt), StartedAt: wire.At(sess.startedAt),
		RequestedStopAt: wire.At(sess.requestedStopAt), StoppedAt: wire.At(sess.stoppedAt),
		AbortedAt: wire.At(sess.abortedAt), SourceSnapshotID: sess.sourceSnapshot,
		SnapshottedAt: wire.At(sess.snapshottedAt), CreatedAt: wire.At(sess.requestedAt),
		Cwd: sess.cwd, UpdatedAt: wire.At(sess.updatedAt), InteractivePort: terminalPort,
		NetworkPolicy: sess.policy, SourceSandboxName: sess.sb.key.name, ProjectID: sess.sb.key.project,
	}
	if sess.ended() {
		w.Duration = new(wholeMillis(sess.used.Duration))
		w.ActiveCPUDurationMs = new(wholeMillis(sess.used.CPU))
		w.NetworkTransfer = &wire.NetworkTransfer{Ingress: sess.used.Ingress, Egress: sess.used.Egress}
	}
	return w
}

// measure is what a session with a machine has used so far.
func (sess *session) measure() usage {
	u := sess.machine.Usage()
	in, out := sess.streams.load()
	return usage{
		CPU:      u.CPU,
		Duration: sess.sb.s.clock.Now().Sub(sess.began()),
		Ingress:  max(u.NetworkIn, in), Egress: max(u.NetworkOut, out),
	}
}

// start boots a session of the sandbox from a layer. The caller holds sb.op.
// fill, when given, puts the first files in place before anybody else can
// reach the machine.
func (sb *namedSandbox) start(ctx context.Context, from *snapshot, fill func(context.Context, *box.Box) error) error {
	st := sb.s.store
	st.mu.Lock()
	set := sb.settings.clone()
	st.mu.Unlock()
	sess := &session{
		sb: sb, id: newSessionID(), vcpus: set.VCPUs, runtime: set.Runtime, timeout: set.Timeout,
		policy: set.Policy, region: set.Region, cwd: set.account().WorkDir, requestedAt: sb.s.clock.Now(), status: statusPending,
		commands: make(map[string]*command), changed: make(chan struct{}), token: newToken(),
	}
	sess.updatedAt = sess.requestedAt
	config := box.Config{Hostname: sb.key.name, DenyNetwork: set.deniesAll(), Account: set.account()}
	if err := sess.guard(&config, set.PolicyRequest); err != nil {
		return err
	}
	if from != nil {
		if err := set.reach(from); err != nil {
			sess.unguard()
			return err
		}
		sess.sourceSnapshot, config.Layer = from.id, from.layer // and what that stands on
	} else if set.Image != "" {
		root, err := sb.s.images.root(set.Image)
		if err != nil {
			sess.unguard()
			return err
		}
		config.Image = root
	}
	mounts, err := sess.attach(set.Mounts)
	if err != nil {
		sess.unguard()
		return err
	}
	config.Mounts = mounts
	machine, err := sb.s.host.New(ctx, config)
	if err != nil {
		sess.detach()
		sess.unguard()
		switch {
		case errors.Is(err, box.ErrNoLayer):
			return errSnapshotGone
		case errors.Is(err, box.ErrNoImage):
			return badRequest("The image that the snapshot stands on is not on this machine: %s. Start the emulator with the directory in Options.Images again.", set.Image)
		case errors.Is(err, box.ErrTooManyLayers):
			return badRequest("The snapshot has too many ancestors for this machine: %v", err)
		}
		return err
	}
	sess.haveTaken()
	if fill != nil {
		if err := fill(ctx, machine); err != nil {
			err = errors.Join(err, machine.Remove())
			sess.detach()
			sess.unguard()
			return err
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	sess.machine = machine
	if from != nil {
		from.use(sb.s.clock.Now())
	}
	sb.current = sess
	st.sessions[sess.id] = sess
	if d := sb.s.opts.Pending; d > 0 {
		sess.setStatus(statusPending)
		sess.next = sb.s.clock.AfterFunc(d, sess.run)
	} else {
		sess.runLocked()
	}
	st.changedLocked()
	return nil
}

func (sess *session) run() {
	st := sess.sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if sess.status == statusPending {
		sess.runLocked()
		st.changedLocked()
	}
}

func (sess *session) runLocked() {
	sess.startedAt = sess.sb.s.clock.Now()
	sess.updatedAt = sess.startedAt
	sess.setStatus(statusRunning)
	sess.scheduleExpiry()
}

// scheduleExpiry lets the clock stop the session once its timeout is over.
func (sess *session) scheduleExpiry() {
	sess.expiry.Stop()
	left := sess.began().Add(sess.timeout).Sub(sess.sb.s.clock.Now())
	sess.expiry = sess.sb.s.clock.AfterFunc(left, func() {
		if sess.sb.s.enter() {
			defer sess.sb.s.leave()
			sess.stop(nil)
		}
	})
}

// use waits until the session runs, and returns its machine, or the API's error
// when there is none.
func (sess *session) use(ctx context.Context) (*box.Box, error) {
	st := sess.sb.s.store
	for {
		st.mu.Lock()
		status, changed, machine := sess.status, sess.changed, sess.machine
		st.mu.Unlock()
		switch status {
		case statusRunning:
			return machine, nil
		case statusPending:
		case statusStopping:
			return nil, errStopping
		case statusSnapshotting:
			return nil, errSnapshotting
		default:
			return nil, errStopped
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// machineError returns the error for what a machine refused; if the machine was
// stopped meanwhile, that takes precedence.
func (sess *session) machineError(ctx context.Context, err error) error {
	if errors.Is(err, box.ErrStopped) {
		if _, err := sess.use(ctx); err != nil {
			return err
		}
		return errStopping
	}
	return err
}

// stop begins to end the session, with a snapshot when the plan says so, and
// goes as far as the durations of the states let it. A nil plan makes a
// snapshot where the sandbox is persistent. On a session that is about to end
// it does nothing.
func (sess *session) stop(plan *snapshotPlan) bool {
	s, st := sess.sb.s, sess.sb.s.store
	st.mu.Lock()
	if !sess.live() {
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
		sess.setStatus(statusSnapshotting)
	} else {
		sess.setStatus(statusStopping)
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
	sess.setStatus(statusSnapshotting)
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
	sess.used = sess.measure()
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
	sess.setStatus(status)
	st.changedLocked()
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
		ended := sess.ended()
		st.mu.Unlock()
		if !ended {
			_ = sess.await(context.Background(), func() bool { return false }) // for what is ending it
		}
		return
	}
	switch {
	case status == statusFailed: // a machine that dies does not tell before
		sess.setStatus(status)
	case sess.live():
		sess.requestedStopAt = sess.sb.s.clock.Now()
		sess.setStatus(statusStopping)
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

// resume gives the sandbox a running session, and says whether it is a new
// one. A session that is about to end is left to do so; where the server is
// realistic, the resume waits for that. The caller holds sb.op.
func (sb *namedSandbox) resume(ctx context.Context) (bool, error) {
	if sb.s.opts.Realistic {
		if err := sb.awaitEnd(ctx); err != nil {
			return false, err
		}
	}
	st := sb.s.store
	st.mu.Lock()
	if !sb.current.ended() {
		st.mu.Unlock()
		return false, nil
	}
	from, err := sb.sourceLocked()
	st.mu.Unlock()
	if err != nil {
		return false, err
	}
	err = sb.start(ctx, from, nil)
	return err == nil, err
}
