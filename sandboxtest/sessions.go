package sandboxtest

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

// The status values of a session.
const (
	statusPending      = "pending"
	statusRunning      = "running"
	statusStopping     = "stopping"
	statusSnapshotting = "snapshotting"
	statusStopped      = "stopped"
	statusFailed       = "failed"
	statusAborted      = "aborted"
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

	machine  *box.Box           // nil once it has ended
	firewall *firewall.Firewall // nil where the machine heeds none
	expiry   *timer
	next     *timer // of the transitional state
	plan     *snapshotPlan
	frozen   *frozen // nil until its files are a layer
	taken    *snapshot
	saveErr  error  // why taken has failed
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

func (sess *session) liveLocked() bool {
	return sess.status == statusPending || sess.status == statusRunning
}

// sandboxStatusLocked is the status of the session's sandbox, of which there are
// fewer.
func (sess *session) sandboxStatusLocked() string {
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
	return !sess.liveLocked()
}

// hasFailed reports whether the session's machine has died.
func (sess *session) hasFailed() bool {
	st := sess.sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	return sess.failed
}

// endedLocked says whether the session has come to its end.
func (sess *session) endedLocked() bool {
	switch sess.status {
	case statusStopped, statusFailed, statusAborted:
		return true
	}
	return false
}

// beganLocked is what the timeout counts from.
func (sess *session) beganLocked() time.Time {
	if sess.startedAt.IsZero() {
		return sess.requestedAt
	}
	return sess.startedAt
}

// setStatusLocked changes the status and wakes those that wait for it.
func (sess *session) setStatusLocked(status string) {
	sess.status = status
	if sess.sb.current == sess {
		sess.sb.statusUpdatedAt = sess.sb.s.clock.Now()
	}
	sess.wakeLocked()
}

// wakeLocked tells those who wait that something about the session has changed.
func (sess *session) wakeLocked() {
	sess.sb.s.store.touchedLocked(sess, sess.sb)
	sess.tellLocked()
}

// tellLocked is for what is not saved.
func (sess *session) tellLocked() {
	close(sess.changed)
	sess.changed = make(chan struct{})
}

func (sess *session) wireLocked() wire.Session {
	w := wire.Session{
		ID: sess.id, Memory: sess.vcpus * wire.MemoryPerVCPU, VCPUs: sess.vcpus, Region: sess.region,
		Runtime: sess.runtime, Architecture: cmp.Or(sess.sb.settings.Architecture, architecture), Timeout: wire.Duration(sess.timeout), Status: sess.status,
		RequestedAt: wire.At(sess.requestedAt), StartedAt: wire.At(sess.startedAt),
		RequestedStopAt: wire.At(sess.requestedStopAt), StoppedAt: wire.At(sess.stoppedAt),
		AbortedAt: wire.At(sess.abortedAt), SourceSnapshotID: sess.sourceSnapshot,
		SnapshottedAt: wire.At(sess.snapshottedAt), CreatedAt: wire.At(sess.requestedAt),
		Cwd: sess.cwd, UpdatedAt: wire.At(sess.updatedAt), InteractivePort: terminalPort,
		NetworkPolicy: sess.policy, SourceSandboxName: sess.sb.key.name, ProjectID: sess.sb.key.project,
	}
	if sess.endedLocked() {
		w.Duration = new(wholeMillis(sess.used.Duration))
		w.ActiveCPUDurationMs = new(wholeMillis(sess.used.CPU))
		w.NetworkTransfer = &wire.NetworkTransfer{Ingress: sess.used.Ingress, Egress: sess.used.Egress}
	}
	return w
}

// measureLocked is what a session with a machine has used so far.
func (sess *session) measureLocked() usage {
	u := sess.machine.Usage()
	in, out := sess.streams.load()
	return usage{
		CPU:      u.CPU,
		Duration: sess.sb.s.clock.Now().Sub(sess.beganLocked()),
		Ingress:  max(u.NetworkIn, in), Egress: max(u.NetworkOut, out),
	}
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

// session gives the session that the path names.
func (c *call) session() (*session, error) {
	sess, err := c.s.store.session(c.values[0])
	if err != nil {
		return nil, err
	}
	if failure := wrongTeam(c.r, sess.sb.key.project); failure != nil {
		return nil, failure
	}
	return sess, nil
}

func (c *call) respondSession(sess *session) error {
	c.s.store.mu.Lock()
	w := sess.wireLocked()
	c.s.store.mu.Unlock()
	writeJSON(c.w, http.StatusOK, wire.SessionResponse{Session: w})
	return nil
}

func (c *call) getSession() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	st := c.s.store
	st.mu.Lock()
	resp := wire.SessionResponse{Session: sess.wireLocked(), Routes: sess.sb.wireRoutesLocked()}
	st.mu.Unlock()
	writeJSON(c.w, http.StatusOK, resp)
	return nil
}

func (c *call) listSessions() error {
	q := c.r.URL.Query()
	page, err := parsePage(q, "sessions", wire.MaxPage)
	if err != nil {
		return err
	}
	project, name := q.Get("project"), q.Get("name")
	items := []wire.Session{}
	st := c.s.store
	st.mu.Lock()
	for _, sess := range st.sessions {
		key := sess.sb.key
		if (project == "" || key.project == project) && (name == "" || key.name == name) && !sess.sb.deleted {
			items = append(items, sess.wireLocked())
		}
	}
	st.mu.Unlock()
	items, pagination := cut(page, "sessions", items, func(s wire.Session) sortKey { return sortKey{timeKey(s.CreatedAt), s.ID} })
	writeJSON(c.w, http.StatusOK, wire.SessionsPage{Sessions: items, Pagination: pagination})
	return nil
}

// stopSession handles POST …/stop. Stopping a stopped session is not an error.
func (c *call) stopSession() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	if err := c.decode(&struct{}{}); err != nil {
		return err
	}
	st := c.s.store
	if err := c.awaitStop(sess, sess.stop(nil)); err != nil {
		return err
	}
	st.mu.Lock()
	if sess.notSavedLocked() {
		err := sess.saveErr
		st.mu.Unlock()
		return errNotSaved(err)
	}
	if sess.requestedStopAt.IsZero() { // something else has ended it
		sess.requestedStopAt = c.s.clock.Now()
	}
	resp := wire.StopResponse{Session: sess.wireLocked()}
	if !sess.sb.deleted {
		resp.Sandbox = new(sess.sb.wireLocked())
	}
	if sess.endedLocked() {
		if sess.taken != nil && sess.taken.method == methodAutomatic { // which this stop has made
			resp.Snapshot = new(sess.taken.wireLocked())
		}
	}
	st.mu.Unlock()
	writeJSON(c.w, http.StatusOK, resp)
	return nil
}

type extendParams struct {
	Duration *wire.Duration `json:"duration"`
}

func (c *call) extendTimeout() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	var p extendParams
	if err := c.decode(&p); err != nil {
		return err
	}
	if p.Duration == nil {
		return invalid("missing required property `duration`.")
	}
	d := time.Duration(*p.Duration)
	if d < wire.MinTimeout {
		return invalid("`duration` should be >= %d.", wire.MinTimeout.Milliseconds())
	}
	if _, err := sess.use(c.ctx); err != nil {
		return err
	}
	st := c.s.store
	st.mu.Lock()
	if d > wire.MaxTimeout-sess.timeout {
		st.mu.Unlock()
		return fail(http.StatusBadRequest, "sandbox_timeout_invalid", "Failed to extend timeout: extension would exceed maximum execution timeout")
	}
	if sess.liveLocked() {
		sess.timeout += d
		sess.scheduleExpiryLocked()
		st.changedLocked(sess)
	}
	st.mu.Unlock()
	return c.respondSession(sess)
}

// setPolicy handles POST …/network-policy, which holds for this session and
// for those that come after it.
func (c *call) setPolicy() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	raw, err := c.object()
	if err != nil {
		return err
	}
	policy, err := parsePolicy(raw)
	if err != nil {
		return err
	}
	machine, err := sess.use(c.ctx)
	if err != nil {
		return err
	}
	if err := sess.enforce(machine, policy, raw); err != nil {
		return sess.machineError(c.ctx, err)
	}
	st := c.s.store
	st.mu.Lock()
	sess.policy, sess.sb.settings.Policy, sess.sb.settings.PolicyRequest = policy, policy, raw
	st.changedLocked(sess, sess.sb)
	st.mu.Unlock()
	return c.respondSession(sess)
}
