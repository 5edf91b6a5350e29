package store

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// The status values of a session.
const (
	statusPending      = "pending"
	StatusRunning      = "running"
	StatusStopping     = "stopping"
	statusSnapshotting = "snapshotting"
	StatusStopped      = "stopped"
	statusFailed       = "failed"
	statusAborted      = "aborted"
)

// Session is one run of a sandbox. The store's lock guards its fields, except those that
// never change.
type Session struct {
	sb       *Sandbox
	rec      sessionRecord
	drives   []*drive // mounted to read and write
	mounting []*drive // counted in drive.readers until the machine has mounted them
	failed   bool     // Server.Crash has ended it

	machine  *box.Box           // nil once it has ended
	firewall *firewall.Firewall // nil where policies can't be enforced
	offline  bool               // there is no firewall, and the machine has no network
	expiry   *timer
	nextStep *timer // ends the transitional state
	plan     *snapshotPlan
	frozen   *frozen   // nil until its files are a layer
	taken    *Snapshot // the last snapshot of the session; rec.Taken is its ID
	saveErr  error     // why the snapshot taken has failed
	Token    string    // of the terminal
	commands map[string]*Command
	order    []*Command // in the order of their start
	traffic  traffic
	// changed is closed when the status changes, then replaced.
	changed chan struct{}
}

// snapshotPlan describes the snapshot at the end of a session.
type snapshotPlan struct {
	method     string
	expiration *time.Duration // nil means the sandbox's own
}

func (sess *Session) liveLocked() bool {
	return sess.rec.Status == statusPending || sess.rec.Status == StatusRunning
}

// sandboxStatusLocked returns the status of the session's sandbox. Sandboxes have fewer
// statuses than sessions.
func (sess *Session) sandboxStatusLocked() string {
	switch sess.rec.Status {
	case statusPending, StatusRunning:
		return StatusRunning
	case StatusStopping, statusSnapshotting:
		return StatusStopping
	}
	return StatusStopped
}

// isEnding reports whether the session is ending or has ended.
func (sess *Session) isEnding() bool {
	st := sess.sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	return !sess.liveLocked()
}

// hasFailed reports whether the session's machine has died.
func (sess *Session) hasFailed() bool {
	st := sess.sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	return sess.failed
}

// endedLocked reports whether the session has ended.
func (sess *Session) endedLocked() bool {
	switch sess.rec.Status {
	case StatusStopped, statusFailed, statusAborted:
		return true
	}
	return false
}

// timeoutStartLocked returns the time from which the timeout counts.
func (sess *Session) timeoutStartLocked() time.Time {
	if sess.rec.StartedAt.IsZero() {
		return sess.rec.RequestedAt
	}
	return sess.rec.StartedAt
}

// setStatusLocked changes the status and wakes the goroutines that wait for it.
func (sess *Session) setStatusLocked(status string) {
	sess.rec.Status = status
	if sess.sb.current == sess {
		sess.sb.rec.StatusUpdatedAt = sess.sb.st.Clock.Now()
	}
	sess.wakeLocked()
}

// wakeLocked wakes the goroutines that wait for a change of the session.
func (sess *Session) wakeLocked() {
	close(sess.changed)
	sess.changed = make(chan struct{})
}

func (sess *Session) describeLocked() wire.Session {
	w := wire.Session{
		ID: sess.rec.ID, Memory: sess.rec.VCPUs * wire.MemoryPerVCPU, VCPUs: sess.rec.VCPUs, Region: sess.rec.Region,
		Runtime: sess.rec.Runtime, Architecture: sess.sb.rec.Settings.Architecture, Timeout: wire.Duration(sess.rec.Timeout), Status: sess.rec.Status,
		RequestedAt: wire.At(sess.rec.RequestedAt), StartedAt: wire.At(sess.rec.StartedAt),
		RequestedStopAt: wire.At(sess.rec.RequestedStopAt), StoppedAt: wire.At(sess.rec.StoppedAt),
		AbortedAt: wire.At(sess.rec.AbortedAt), SourceSnapshotID: sess.rec.SourceSnapshot,
		SnapshottedAt: wire.At(sess.rec.SnapshottedAt), CreatedAt: wire.At(sess.rec.RequestedAt),
		Cwd: sess.rec.Cwd, UpdatedAt: wire.At(sess.rec.UpdatedAt), InteractivePort: terminalPort,
		NetworkPolicy: sess.rec.Policy, SourceSandboxName: sess.sb.rec.Key.Name, ProjectID: sess.sb.rec.Key.Project,
	}
	if sess.endedLocked() {
		w.Duration = new(wholeMillis(sess.rec.Used.Duration))
		w.ActiveCPUDurationMs = new(wholeMillis(sess.rec.Used.CPU))
		w.NetworkTransfer = &wire.NetworkTransfer{Ingress: sess.rec.Used.Ingress, Egress: sess.rec.Used.Egress}
	}
	return w
}

// measureLocked returns what a session with a machine has used so far.
func (sess *Session) measureLocked() usage {
	u := sess.machine.Usage()
	in, out := sess.traffic.load()
	return usage{
		CPU:      u.CPU,
		Duration: sess.sb.st.Clock.Now().Sub(sess.timeoutStartLocked()),
		Ingress:  max(u.NetworkIn, in), Egress: max(u.NetworkOut, out),
	}
}

// Use returns the session's machine. It waits for a session that is starting. If the
// session is ending or has ended, Use returns the API's error.
func (sess *Session) Use(ctx context.Context) (*box.Box, error) {
	st := sess.sb.st
	for {
		st.mu.Lock()
		status, changed, machine := sess.rec.Status, sess.changed, sess.machine
		st.mu.Unlock()
		switch status {
		case StatusRunning:
			return machine, nil
		case statusPending:
		case StatusStopping:
			return nil, reply.ErrStopping
		case statusSnapshotting:
			return nil, reply.ErrSnapshotting
		default:
			return nil, reply.ErrStopped
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// MachineError returns the API's error for an error of a machine. If the machine was
// stopped in the meantime, the API's error says that.
func (sess *Session) MachineError(ctx context.Context, err error) error {
	if errors.Is(err, backend.ErrStopped) {
		if _, err := sess.Use(ctx); err != nil {
			return err
		}
		return reply.ErrStopping
	}
	return err
}

// Project returns the project of the session's sandbox.
func (sess *Session) Project() string { return sess.sb.rec.Key.Project }

// Environ returns the variables that the sandbox has set, as KEY=value.
func (sess *Session) Environ() []string {
	sess.sb.st.mu.Lock()
	defer sess.sb.st.mu.Unlock()
	return environ(sess.sb.rec.Settings.Env)
}

// Describe returns the session with the routes of its sandbox.
func (sess *Session) Describe() wire.SessionResponse {
	sess.sb.st.mu.Lock()
	defer sess.sb.st.mu.Unlock()
	return wire.SessionResponse{Session: sess.describeLocked(), Routes: sess.sb.describeRoutesLocked()}
}

// ListSessions returns the sessions of a project and of a sandbox. An empty argument
// means all.
func (st *Store) ListSessions(project, name string) []wire.Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	items := []wire.Session{}
	for _, sess := range st.sessions {
		key := sess.sb.rec.Key
		if (project == "" || key.Project == project) && (name == "" || key.Name == name) && !sess.sb.deleted {
			items = append(items, sess.describeLocked())
		}
	}
	return items
}

// StopAndAwait stops the session, unless it is already stopping, and waits until the
// response to the stop is due.
func (sess *Session) StopAndAwait(ctx context.Context) (resp wire.StopResponse, err error) {
	if err := sess.awaitStop(ctx, sess.stop(nil)); err != nil {
		return resp, err
	}
	st := sess.sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if sess.notSavedLocked() {
		return resp, errNotSaved(sess.saveErr)
	}
	if sess.rec.RequestedStopAt.IsZero() { // something else has ended it
		sess.rec.RequestedStopAt = st.Clock.Now()
	}
	resp.Session = sess.describeLocked()
	if !sess.sb.deleted {
		resp.Sandbox = new(sess.sb.describeLocked())
	}
	if sess.endedLocked() {
		if sess.taken != nil && sess.taken.rec.Method == methodAutomatic { // this stop has made it
			resp.Snapshot = new(sess.taken.describeLocked())
		}
	}
	return resp, nil
}

// Extend extends a running session.
func (sess *Session) Extend(ctx context.Context, d time.Duration) error {
	if _, err := sess.Use(ctx); err != nil {
		return err
	}
	st := sess.sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if d > wire.MaxTimeout-sess.rec.Timeout {
		return reply.Fail(http.StatusBadRequest, "sandbox_timeout_invalid", "Failed to extend timeout: extension would exceed maximum execution timeout")
	}
	if sess.liveLocked() {
		sess.rec.Timeout += d
		sess.scheduleExpiryLocked()
		st.changedLocked()
	}
	return nil
}

// SetPolicy sets a policy for this session and for later ones. raw is the policy in the
// request.
func (sess *Session) SetPolicy(ctx context.Context, policy *wire.NetworkPolicy, raw []byte) error {
	machine, err := sess.Use(ctx)
	if err != nil {
		return err
	}
	if err := sess.enforce(machine, raw); err != nil {
		return sess.MachineError(ctx, err)
	}
	st := sess.sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	sess.rec.Policy, sess.sb.rec.Settings.Policy, sess.sb.rec.Settings.PolicyRequest = policy, policy, raw
	st.changedLocked()
	return nil
}
