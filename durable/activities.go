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

// machine is one run of a sandbox's virtual machine. The ID is empty when it has
// ended.
type machine struct {
	ID                              string
	StartedAt, ExpiresAt, CreatedAt time.Time
	Runtime                         string
	// SavedAt is when the files were saved that it began with, if that was not at
	// the end of the machine before.
	SavedAt time.Time `json:",omitzero"`
	// Now is the service's time; zero if the machine does not run.
	Now time.Time `json:",omitzero"`
}

// Tags by which Sweep finds sandboxes.
const (
	tagFleet    = "durable"
	tagWorkflow = "durable-workflow"
)

// open makes or starts the sandbox; the name makes it idempotent. epoch is the
// workflow's opening of it, and ended the session that ended by itself before, if one
// has.
func (w *Worker) open(ctx context.Context, o Options, epoch, ended string) (machine, error) {
	ctx, stop := alive(ctx)
	defer stop()
	create, err := w.create(ctx, o, epoch)
	if err != nil {
		return machine{}, classify(ctx, err)
	}
	client, err := w.client(ctx)
	if err != nil {
		return machine{}, classify(ctx, err)
	}
	sb, err := client.GetOrCreate(ctx, o.Name, create)
	if err != nil {
		return machine{}, classify(ctx, err)
	}
	if sb.Status() != sandbox.StatusRunning {
		// One that is on its way out is waited for.
		if err := sb.Resume(ctx); err != nil {
			return machine{}, classify(ctx, err)
		}
	}
	m := runs(sb)
	m.SavedAt, err = w.rolledBack(ctx, sb, ended)
	return m, classify(ctx, err)
}

// rolledBack returns when the files were saved that the session of a sandbox began
// with, and the zero time if that was at the end of the session that ended before
// it: one that crashes saves nothing.
func (w *Worker) rolledBack(ctx context.Context, sb *sandbox.Sandbox, ended string) (time.Time, error) {
	if ended == "" || ended == sb.CurrentSession().ID() {
		return time.Time{}, nil
	}
	id := sb.CurrentSession().Info().SourceSnapshotID
	if id == "" {
		return time.Time{}, nil // that it was made anew shows by CreatedAt
	}
	client, err := w.client(ctx)
	if err != nil {
		return time.Time{}, err
	}
	snap, err := client.GetSnapshot(ctx, id)
	switch {
	case errors.Is(err, sandbox.ErrSnapshotNotFound), errors.Is(err, sandbox.ErrNotFound):
		return time.Time{}, nil // deleted since: nothing is known
	case err != nil:
		return time.Time{}, err
	case snap.Info().SourceSessionID == ended:
		return time.Time{}, nil
	}
	return snap.Info().CreatedAt, nil
}

// create returns what a sandbox is made with.
func (w *Worker) create(ctx context.Context, o Options, epoch string) (*sandbox.CreateOptions, error) {
	create := &sandbox.CreateOptions{
		Runtime: o.Runtime, Image: o.Image, Ports: o.Ports, VCPUs: o.VCPUs, Timeout: o.lease(), Region: o.Region, FailoverRegions: o.FailoverRegions,
		Mounts: o.Mounts, NetworkPolicy: o.NetworkPolicy, KeepLastSnapshots: &sandbox.KeepLastSnapshots{Count: 1},
		SnapshotExpiration: sandbox.Forever, // a workflow may sleep for months
		Tags:               map[string]string{},
	}
	maps.Copy(create.Tags, o.Tags)
	switch {
	case o.SnapshotID != "" && o.Git != nil:
		return nil, fmt.Errorf("%w: Options has a SnapshotID and Git", sandbox.ErrInvalid)
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
	create.Tags[tagFleet], create.Tags[tagWorkflow] = fleet, madeBy(ctx, epoch)
	return create, nil
}

// madeBy is the tag of a sandbox that an opening has made. The workflow's ID is before
// the last dot.
func madeBy(ctx context.Context, epoch string) string {
	return activity.GetInfo(ctx).WorkflowExecution.ID + "." + epoch
}

// WorkflowOf returns the ID of the workflow that has made a sandbox, empty if none has.
func WorkflowOf(info sandbox.Info) string {
	id, _ := madeIn(info.Tags[tagWorkflow])
	return id
}

// madeIn returns the ID of the workflow that has made a sandbox with the tag, and the
// epoch of its opening.
func madeIn(tag string) (workflow, epoch string) {
	if i := strings.LastIndexByte(tag, '.'); i >= 0 {
		return tag[:i], tag[i+1:]
	}
	return "", ""
}

// runs describes the session that runs.
func runs(sb *sandbox.Sandbox) machine {
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

// now is the service's time, or zero if the session does not run.
func now(s *sandbox.Session) time.Time {
	left := s.TimeLeft()
	if left <= 0 {
		return time.Time{}
	}
	return expiry(s).Add(-left)
}

// client is that of an activity.
func (w *Worker) client(ctx context.Context) (*sandbox.Client, error) {
	if w.ClientFor == nil {
		return w.Client, nil
	}
	return w.ClientFor(ctx)
}

// get finds a sandbox, and resumes nothing.
func (w *Worker) get(ctx context.Context, name string) (*sandbox.Sandbox, error) {
	client, err := w.client(ctx)
	if err != nil {
		return nil, err
	}
	return client.Get(ctx, name, &sandbox.GetOptions{NoResume: true})
}

// session gives the handle of one session, and resumes nothing. It matches
// sandbox.ErrStopped when another one, or none, runs.
func (w *Worker) session(ctx context.Context, name, id string) (*sandbox.Session, error) {
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

// known gives the handle of a session from what the workflow knows of it, without
// a request: other clients may have moved its end to a later time, and only the
// next request tells whether it still runs.
func (w *Worker) known(ctx context.Context, name, id string, expires time.Time) (*sandbox.Session, error) {
	client, err := w.client(ctx)
	if err != nil {
		return nil, err
	}
	const timeout = 7 * 24 * time.Hour // more than any, as Session.TimeLeft is never more
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
	client.Bind(cur)
	return cur, nil
}

// gone reports whether err says that a machine has ended.
func gone(err error) bool {
	return errors.Is(err, sandbox.ErrStopped) || errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrDeleted)
}

func (w *Worker) renew(ctx context.Context, o Options, vm string) (machine, error) {
	ctx, stop := alive(ctx)
	defer stop()
	cur, err := w.session(ctx, o.Name, vm)
	if gone(err) {
		return machine{}, nil
	}
	if err != nil {
		return machine{}, classify(ctx, err)
	}
	return machine{ID: vm, ExpiresAt: extend(ctx, cur, o.lease()), Now: now(cur)}, nil
}

// adopt renews the lease of the machine that runs, if one does. last is the one that
// the workflow knows.
func (w *Worker) adopt(ctx context.Context, o Options, last string) (machine, error) {
	ctx, stop := alive(ctx)
	defer stop()
	sb, err := w.get(ctx, o.Name)
	if gone(err) || err == nil && sb.Status() != sandbox.StatusRunning {
		return machine{}, nil
	}
	if err != nil {
		return machine{}, classify(ctx, err)
	}
	m := runs(sb)
	m.ExpiresAt = extend(ctx, sb.CurrentSession(), o.lease())
	m.SavedAt, err = w.rolledBack(ctx, sb, last)
	return m, classify(ctx, err)
}

// extend makes a session last for about d more, or for as long as the platform
// allows, and returns when it ends. What little is missing is not worth a request
// for each of many short commands. A lost response is not an error: at worst, the
// machine runs longer than it has to.
func extend(ctx context.Context, s *sandbox.Session, d time.Duration) time.Time {
	if need := d - s.TimeLeft(); need > min(d/10, time.Minute) {
		if err := s.ExtendTimeout(ctx, need); err != nil {
			activity.GetLogger(ctx).Warn("could not renew the machine's lease", "session", s.ID(), "error", err)
			_ = s.Refresh(ctx)
		}
	}
	return expiry(s)
}

// abandon deletes a sandbox that an opening has made, and stops one that was there
// before. The request that makes or starts it may be on its way still: what is not
// there is looked for again, some seconds.
func (w *Worker) abandon(ctx context.Context, name, epoch string) error {
	ctx, stop := alive(ctx)
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

// undo reports whether there was something that an opening may have done.
func (w *Worker) undo(ctx context.Context, name, epoch string) (bool, error) {
	sb, err := w.get(ctx, name)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, classify(ctx, err)
	}
	if sb.Info().Tags[tagWorkflow] == madeBy(ctx, epoch) {
		return true, w.delete(ctx, name)
	}
	return w.stop(ctx, name, "")
}

// stop stops that session and no other, whichever runs if it is empty, and reports whether it had not ended before.
func (w *Worker) stop(ctx context.Context, name, vm string) (ran bool, err error) {
	ctx, end := alive(ctx)
	defer end()
	if vm == "" {
		sb, err := w.get(ctx, name)
		if gone(err) || err == nil && sb.CurrentSession() == nil {
			return false, nil
		}
		if err != nil {
			return false, classify(ctx, err)
		}
		vm = sb.CurrentSession().ID()
	}
	cur, err := w.session(ctx, name, vm)
	if err == nil {
		_, err = cur.Stop(ctx, nil)
	}
	if gone(err) {
		return false, nil
	}
	return err == nil, classify(ctx, err)
}

func (w *Worker) snapshot(ctx context.Context, name, vm string) (string, error) {
	ctx, stop := alive(ctx)
	defer stop()
	if cur, err := w.session(ctx, name, vm); err == nil {
		snap, err := cur.Snapshot(ctx, nil)
		if err == nil {
			return snap.ID(), nil
		}
		if !gone(err) && !errors.Is(err, sandbox.ErrOutcomeUnknown) {
			return "", classify(ctx, err)
		}
	} else if !gone(err) {
		return "", classify(ctx, err)
	}
	// An earlier attempt made it, or the machine ended with one of its own.
	sb, err := w.get(ctx, name)
	if err != nil {
		return "", classify(ctx, err)
	}
	if id := sb.Info().CurrentSnapshotID; id != "" && sb.Status() == sandbox.StatusStopped {
		return id, nil
	}
	return "", classify(ctx, errors.New("the snapshot is not there yet"))
}

func (w *Worker) delete(ctx context.Context, name string) error {
	ctx, stop := alive(ctx)
	defer stop()
	client, err := w.client(ctx)
	if err != nil {
		return classify(ctx, err)
	}
	if err := client.Delete(ctx, name, nil); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return classify(ctx, err)
	}
	return nil
}

func (w *Worker) kill(ctx context.Context, c Command, sig int) error {
	ctx, stop := alive(ctx)
	defer stop()
	cmd, err := w.command(ctx, c)
	if err != nil {
		return classify(ctx, err)
	}
	send := cmd.SignalTree
	if s := sandbox.Signal(sig); s == sandbox.SIGSTOP || s == sandbox.SIGCONT {
		send = cmd.Signal
	}
	err = send(ctx, sandbox.Signal(sig))
	switch {
	case gone(err), errors.Is(err, os.ErrProcessDone):
		return nil // it is over
	case errors.Is(err, sandbox.ErrChildren):
		activity.GetLogger(ctx).Warn("the signal has reached the command alone", "command", c.ID, "error", err)
		return nil
	}
	return classify(ctx, err)
}
