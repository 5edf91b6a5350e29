package durable

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/go-vercel/sandbox"
)

// machine is one run of a sandbox's virtual machine. Its ID is empty after the run has
// ended.
type machine struct {
	ID                              string
	StartedAt, ExpiresAt, CreatedAt time.Time
	Runtime                         string
	// SavedAt is zero unless the machine that the workflow knew before has crashed. Then it
	// is when the files were saved that the crashed machine began with.
	SavedAt time.Time `json:",omitzero"`
	// Now is the service's time. It is zero if the machine does not run.
	Now time.Time `json:",omitzero"`
}

// Tags by which Sweep finds sandboxes.
const (
	tagFleet    = "durable"
	tagWorkflow = "durable-workflow"
)

// open creates or starts the sandbox; its name makes that idempotent. epoch identifies
// the workflow's opening. ended is the previous session if that ended by itself, and began
// its start.
func (w *Worker) open(ctx context.Context, o Options, epoch, ended string, began time.Time) (machine, error) {
	ctx, stop := heartbeat(ctx)
	defer stop()
	create, err := w.createOptions(ctx, o, epoch)
	if err != nil {
		return machine{}, classify(ctx, err)
	}
	sb, err := w.Client.GetOrCreate(ctx, o.Name, create)
	if err != nil {
		return machine{}, classify(ctx, err)
	}
	if sb.Status() != sandbox.StatusRunning {
		// Resume waits for a session that is stopping.
		if err := sb.Resume(ctx); err != nil {
			return machine{}, classify(ctx, err)
		}
	}
	m := machineOf(sb)
	m.SavedAt, err = w.lostSince(ctx, sb, ended, began)
	return m, classify(ctx, err)
}

// lostSince finds out whether an earlier session has crashed, whose ID is in ended and whose
// start is in began. If so, it returns when the files were saved that this session began with,
// because later changes are lost. Otherwise it returns the zero time.
func (w *Worker) lostSince(ctx context.Context, sb *sandbox.Sandbox, ended string, began time.Time) (time.Time, error) {
	var saved time.Time
	if ended == "" || ended == sb.CurrentSession().ID() {
		return saved, nil
	}
	// Others may have replaced the machine several times since, so look for a snapshot of the
	// session ended among the ancestors.
	for id := sb.CurrentSession().Info().SourceSnapshotID; id != ""; {
		snap, err := w.Client.GetSnapshot(ctx, id)
		switch {
		case errors.Is(err, sandbox.ErrSnapshotNotFound), errors.Is(err, sandbox.ErrNotFound):
			return saved, nil // the snapshot was deleted, so the last one found is what remains
		case err != nil:
			return time.Time{}, err
		case snap.Info().SourceSessionID == ended:
			return time.Time{}, nil
		}
		if saved, id = snap.Info().CreatedAt, snap.Info().ParentID; !saved.After(began) {
			break // earlier snapshots are not of that session
		}
	}
	return saved, nil // zero if the sandbox is new, which the workflow sees by CreatedAt
}

// createOptions returns the options of a new sandbox.
func (w *Worker) createOptions(ctx context.Context, o Options, epoch string) (*sandbox.CreateOptions, error) {
	create := &sandbox.CreateOptions{
		Runtime: o.Runtime, Image: o.Image, Ports: o.Ports, VCPUs: o.VCPUs, Timeout: o.lease(), Region: o.Region, FailoverRegions: o.FailoverRegions,
		Mounts: o.Mounts, NetworkPolicy: o.NetworkPolicy, KeepLastSnapshots: &sandbox.KeepLastSnapshots{Count: 1},
		SnapshotExpiration: sandbox.Forever, // a workflow may sleep for months
		Tags:               map[string]string{},
	}
	maps.Copy(create.Tags, o.Tags)
	switch {
	case o.SnapshotID != "" && o.Git != nil:
		return nil, fmt.Errorf("%w: Options has both SnapshotID and Git", sandbox.ErrInvalid)
	case o.SnapshotID != "":
		create.Source = sandbox.SnapshotSource{SnapshotID: o.SnapshotID}
	case o.Git != nil:
		create.Source = sandbox.GitSource{URL: o.Git.URL, Revision: o.Git.Revision, Depth: o.Git.Depth}
	}
	if w.Prepare != nil {
		if err := w.Prepare(ctx, o, create); err != nil {
			return nil, err
		}
	}
	fleet, err := w.fleet(ctx)
	if err != nil {
		return nil, err
	}
	create.Tags[tagFleet], create.Tags[tagWorkflow] = fleet, workflowTag(ctx, epoch)
	return create, nil
}

// workflowTag returns the tag of a sandbox that an opening creates: the workflow's ID,
// a dot and the epoch.
func workflowTag(ctx context.Context, epoch string) string {
	return activity.GetInfo(ctx).WorkflowExecution.ID + "." + epoch
}

// workflowOf returns the workflow's ID in a workflowTag, or "".
func workflowOf(tag string) string { return tag[:max(strings.LastIndexByte(tag, '.'), 0)] }

// machineOf describes the running session.
func machineOf(sb *sandbox.Sandbox) machine {
	cur := sb.CurrentSession()
	info := cur.Info()
	return machine{
		ID: cur.ID(), StartedAt: info.StartedAt, ExpiresAt: expiry(cur), CreatedAt: sb.Info().CreatedAt,
		Runtime: cmp.Or(sb.Info().Image, sb.Info().Runtime), Now: now(cur),
	}
}

func expiry(s *sandbox.Session) time.Time {
	info := s.Info()
	return info.StartedAt.Add(info.Timeout)
}

// now returns the service's time, or the zero time if the session does not run.
func now(s *sandbox.Session) time.Time {
	left := s.TimeLeft()
	if left <= 0 {
		return time.Time{}
	}
	return expiry(s).Add(-left)
}

// get finds a sandbox without resuming it.
func (w *Worker) get(ctx context.Context, name string) (*sandbox.Sandbox, error) {
	return w.Client.Get(ctx, name, &sandbox.GetOptions{NoResume: true})
}

// currentSession returns the session with the ID, without resuming anything. The error
// matches sandbox.ErrStopped if another session, or none, runs.
func (w *Worker) currentSession(ctx context.Context, name, id string) (*sandbox.Session, error) {
	sb, err := w.get(ctx, name)
	if err != nil {
		return nil, err
	}
	cur := sb.CurrentSession()
	if cur == nil || cur.ID() != id {
		return nil, fmt.Errorf("session %s is not the current one: %w", id, sandbox.ErrStopped)
	}
	switch cur.Info().Status {
	case sandbox.StatusRunning, sandbox.StatusPending:
		return cur, nil
	}
	return nil, fmt.Errorf("session %s is %s: %w", id, cur.Info().Status, sandbox.ErrStopped)
}

// knownSession returns the handle of a session that the workflow knows, without a request.
// The session may have ended or been extended since.
func (w *Worker) knownSession(name, id string, expires time.Time) (*sandbox.Session, error) {
	const timeout = 7 * 24 * time.Hour // longer than any real timeout, because Session.TimeLeft never exceeds it
	text, err := json.Marshal(map[string]any{"routes": []any{}, "session": map[string]any{
		"id": id, "sourceSandboxName": name, "status": sandbox.StatusRunning,
		"startedAt": expires.Add(-timeout).UnixMilli(), "timeout": timeout.Milliseconds(),
	}})
	if err != nil {
		return nil, err
	}
	cur := new(sandbox.Session)
	if err := json.Unmarshal(text, cur); err != nil {
		return nil, err
	}
	w.Client.Bind(cur)
	return cur, nil
}

// hasEnded reports whether err means that a machine has ended.
func hasEnded(err error) bool {
	return errors.Is(err, sandbox.ErrStopped) || errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrDeleted)
}

// renew renews the lease of the running machine, if there is one. last is the machine
// that the workflow knows, and began its start.
func (w *Worker) renew(ctx context.Context, o Options, last string, began time.Time) (machine, error) {
	ctx, stop := heartbeat(ctx)
	defer stop()
	sb, err := w.get(ctx, o.Name)
	if hasEnded(err) || err == nil && sb.Status() != sandbox.StatusRunning {
		return machine{}, nil
	}
	if err != nil {
		return machine{}, classify(ctx, err)
	}
	m := machineOf(sb)
	m.ExpiresAt = extend(ctx, sb.CurrentSession(), o.lease())
	m.SavedAt, err = w.lostSince(ctx, sb, last, began)
	return m, classify(ctx, err)
}

// extend makes a session last for about d from now, or for as long as the platform
// allows, and returns when it ends. It makes no request for a small difference, because
// many short commands would each make one. A lost response is not an error: at worst, the
// machine runs longer than necessary.
func extend(ctx context.Context, s *sandbox.Session, d time.Duration) time.Time {
	if need := d - s.TimeLeft(); need > min(d/10, time.Minute) {
		if err := s.ExtendTimeout(ctx, need); err != nil {
			activity.GetLogger(ctx).Warn("could not renew the machine's lease", "session", s.ID(), "error", err)
			_ = s.Refresh(ctx)
		}
	}
	return expiry(s)
}

// abandon undoes an opening: it deletes the sandbox if the opening created it, and stops it
// otherwise. The request that creates or starts the sandbox may still be in flight, so
// abandon repeats this for some seconds.
func (w *Worker) abandon(ctx context.Context, name, epoch string) error {
	ctx, stop := heartbeat(ctx)
	defer stop()
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		undone, err := w.undo(ctx, name, epoch)
		if err != nil || undone || pause > 3*time.Second {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// undo deletes or stops the sandbox, and reports whether there was anything to undo.
func (w *Worker) undo(ctx context.Context, name, epoch string) (bool, error) {
	sb, err := w.get(ctx, name)
	if hasEnded(err) {
		return false, nil
	}
	if err != nil {
		return false, classify(ctx, err)
	}
	if sb.Info().Tags[tagWorkflow] == workflowTag(ctx, epoch) {
		return true, w.delete(ctx, name)
	}
	return w.stop(ctx, name, "")
}

// stop stops the session vm, or the current one if vm is empty. ran reports whether it was
// running.
func (w *Worker) stop(ctx context.Context, name, vm string) (ran bool, err error) {
	ctx, end := heartbeat(ctx)
	defer end()
	if vm == "" {
		sb, err := w.get(ctx, name)
		if hasEnded(err) || err == nil && sb.CurrentSession() == nil {
			return false, nil
		}
		if err != nil {
			return false, classify(ctx, err)
		}
		vm = sb.CurrentSession().ID()
	}
	cur, err := w.currentSession(ctx, name, vm)
	if err == nil {
		_, err = cur.Stop(ctx, nil)
	}
	if hasEnded(err) {
		return false, nil
	}
	return err == nil, classify(ctx, err)
}

func (w *Worker) snapshot(ctx context.Context, name, vm string) (string, error) {
	ctx, stop := heartbeat(ctx)
	defer stop()
	if cur, err := w.currentSession(ctx, name, vm); err == nil {
		snap, err := cur.Snapshot(ctx, nil)
		if err == nil {
			return snap.ID(), nil
		}
		if !hasEnded(err) && !errors.Is(err, sandbox.ErrOutcomeUnknown) {
			return "", classify(ctx, err)
		}
	} else if !hasEnded(err) {
		return "", classify(ctx, err)
	}
	// An earlier attempt took the snapshot, or the machine ended with one.
	sb, err := w.get(ctx, name)
	if err != nil {
		return "", classify(ctx, err)
	}
	if id := sb.Info().CurrentSnapshotID; id != "" && sb.Status() == sandbox.StatusStopped {
		return id, nil
	}
	return "", classify(ctx, errors.New("the snapshot is not available yet"))
}

func (w *Worker) delete(ctx context.Context, name string) error {
	ctx, stop := heartbeat(ctx)
	defer stop()
	if err := w.Client.Delete(ctx, name, nil); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return classify(ctx, err)
	}
	return nil
}

func (w *Worker) kill(ctx context.Context, c Command, sig int) error {
	ctx, stop := heartbeat(ctx)
	defer stop()
	cmd, err := w.command(c)
	if err != nil {
		return classify(ctx, err)
	}
	send := cmd.SignalTree
	if s := sandbox.Signal(sig); s == sandbox.SIGSTOP || s == sandbox.SIGCONT {
		send = cmd.Signal
	}
	err = send(ctx, sandbox.Signal(sig))
	switch {
	case hasEnded(err), errors.Is(err, os.ErrProcessDone):
		return nil // the command has ended
	case errors.Is(err, sandbox.ErrChildren):
		activity.GetLogger(ctx).Warn("the signal reached the command but not its children", "command", c.ID, "error", err)
		return nil
	}
	return classify(ctx, err)
}
