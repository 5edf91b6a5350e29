package modeltest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-vercel/sandbox"
)

// session performs the step's operation on the current session.
func (w *world) session(ctx context.Context, s Step) error {
	switch s.Kind {
	case Stop:
		if err := w.box.Resume(w.ctx); err != nil { // a failed session can't be stopped
			return err
		}
		w.arm(s)
		_, err := w.box.Stop(ctx, nil)
		w.net.disarm()
		if err != nil && !w.permits(err) {
			return mustNotFail(err)
		}
		if err != nil { // there may be a snapshot, or none
			for name := range w.files {
				w.saved[name] = append(slices.Clone(w.saved.of(name)), w.files.of(name)...)
			}
			return nil
		}
		w.save()
		if err := w.same.Refresh(w.ctx); err != nil {
			return err
		}
		return onlyIf(w.same.Status() != sandbox.StatusRunning, "no error, but the sandbox is %s", w.same.Status())
	case Update:
		if err := w.same.Refresh(w.ctx); err != nil {
			return err
		}
		before, want := w.same.Info().Tags, map[string]string{"step": fmt.Sprint(w.n)}
		w.arm(s)
		err := w.box.Update(ctx, &sandbox.UpdateOptions{Tags: want})
		w.net.disarm()
		if err != nil && !w.permits(err) {
			return mustNotFail(err)
		}
		if err := w.same.Refresh(w.ctx); err != nil {
			return err
		}
		now := w.same.Info().Tags
		return onlyIf(maps.Equal(now, want) || err != nil && maps.Equal(now, before), "the tags are %v, the error is %v", now, err)
	}
	if s.Kind == Policy || s.Kind == Save {
		return w.sessionOnce(ctx, s)
	}
	// For Extend, a session must run, and only the call may change its end.
	if _, err := w.same.RunCommand(w.ctx, "true", nil, nil); err != nil {
		return err
	}
	end := func() (time.Time, error) {
		err := w.same.Refresh(w.ctx)
		return w.same.ExpiresAt(), err
	}
	before, err := end()
	if err != nil {
		return err
	}
	const more = time.Minute
	w.arm(s)
	extendErr := w.box.ExtendTimeout(ctx, more)
	w.net.disarm()
	if extendErr != nil && !w.permits(extendErr) {
		return mustNotFail(extendErr)
	}
	after, err := end()
	if err != nil {
		return err
	}
	moved := after.Sub(before).Round(time.Second)
	return onlyIf(moved == more || extendErr != nil && moved == 0, "the session ends %v later, the error is %v", moved, extendErr)
}

// sessionOnce changes the policy of the session, or makes a snapshot, which ends it.
func (w *world) sessionOnce(ctx context.Context, s Step) error {
	if _, err := w.same.RunCommand(w.ctx, "true", nil, nil); err != nil { // makes sure that a session is running
		return err
	}
	if s.Kind == Policy {
		before, want := w.same.CurrentSession().Info().NetworkPolicy, []sandbox.PolicyMode{sandbox.PolicyAllowAll, sandbox.PolicyDenyAll}[s.File%2]
		w.arm(s)
		_, err := w.box.UpdateNetworkPolicy(ctx, &sandbox.NetworkPolicy{Mode: want})
		w.net.disarm()
		if err != nil && !w.permits(err) {
			return mustNotFail(err)
		}
		if err := w.same.Refresh(w.ctx); err != nil {
			return err
		}
		now := w.same.CurrentSession().Info().NetworkPolicy
		return onlyIf(now != nil && now.Mode == want || err != nil && fmt.Sprint(now) == fmt.Sprint(before), "the policy is %v, the error is %v", now, err)
	}
	w.arm(s)
	snapshot, err := w.box.Snapshot(ctx, nil)
	w.net.disarm()
	if err != nil && !w.permits(err) {
		return mustNotFail(err)
	}
	if err != nil { // there may be a snapshot, or none
		for name := range w.files {
			w.saved[name] = append(slices.Clone(w.saved.of(name)), w.files.of(name)...)
		}
		return nil
	}
	w.save()
	_, err = w.sane.GetSnapshot(w.ctx, snapshot.ID())
	return err
}

// make creates a sandbox. Another client may create it at the same time.
func (w *world) make(ctx context.Context, s Step) error {
	name, runs := fmt.Sprintf("made%d", w.n), 0
	opts := func() *sandbox.CreateOptions {
		return &sandbox.CreateOptions{OnCreate: func(context.Context, *sandbox.Sandbox) error {
			runs++
			return nil
		}}
	}
	var rival *sandbox.Sandbox
	w.rivals = func() (err error) {
		rival, err = w.sane.GetOrCreate(w.ctx, name, opts())
		return err
	}
	w.arm(s)
	got, err := w.faulty.GetOrCreate(ctx, name, opts())
	w.net.disarm()
	switch {
	case err != nil && !w.permits(err):
		return mustNotFail(err)
	case runs > 1:
		return fmt.Errorf("OnCreate ran %d times", runs)
	case err != nil:
		return nil
	case runs == 0:
		return errors.New("no error, but OnCreate did not run")
	case rival != nil && !rival.Info().CreatedAt.Equal(got.Info().CreatedAt):
		return errors.New("the rival got another sandbox")
	}
	return w.sane.Delete(w.ctx, name, nil)
}

// remake replaces a sandbox whose files are gone. Another client may do the same at the same
// time.
func (w *world) remake(ctx context.Context, s Step) error {
	name, runs := fmt.Sprintf("lost%d", w.n), 0
	if err := w.createLost(name); err != nil {
		return err
	}
	var rival *sandbox.Sandbox
	w.rivals = func() (err error) {
		if rival, err = w.sane.GetOrCreate(w.ctx, name, nil); err != nil {
			return err
		}
		return rival.FS().WriteFile(w.ctx, "work", []byte("an hour of it"), 0o644)
	}
	w.arm(s)
	got, err := w.faulty.GetOrCreate(ctx, name, &sandbox.CreateOptions{OnCreate: func(context.Context, *sandbox.Sandbox) error {
		runs++
		return nil
	}})
	w.net.disarm()
	if errors.Is(err, sandbox.ErrReplaced) {
		// The API deletes by name alone. So this may happen if the rival replaces the
		// sandbox between the client's last lookup and its delete.
		return onlyIf(w.hasHappened(Rival) && w.active.boxes >= 2, "a rival's sandbox was deleted, although the client could have noticed the replacement: %v", err)
	}
	if err != nil {
		return onlyIf(w.permits(err), "the call must not fail: %v", err)
	}
	if rival == nil {
		return onlyIf(runs == 1, "OnCreate ran %d times", runs)
	}
	if !got.Info().CreatedAt.Equal(rival.Info().CreatedAt) {
		return errors.New("no error, but the rival's sandbox was replaced")
	}
	data, err := got.FS().ReadFile(w.ctx, "work")
	return onlyIf(err == nil && string(data) == "an hour of it", "the rival's file holds %q: %v", data, err)
}

// createLost creates a sandbox whose files are gone.
func (w *world) createLost(name string) error {
	box, err := w.sane.Create(w.ctx, &sandbox.CreateOptions{Name: name})
	if err != nil {
		return err
	}
	stopped, err := box.Stop(w.ctx, nil)
	if err != nil {
		return err
	}
	snapshot, err := w.sane.GetSnapshot(w.ctx, stopped.Snapshot.ID)
	if err != nil {
		return err
	}
	return snapshot.Delete(w.ctx)
}

// hookErrors are errors of a hook that look like errors of the API.
var hookErrors = []error{
	&sandbox.APIError{Operation: "get sandbox", Status: 410, Code: "snapshot_not_found", SandboxName: "another"},
	&sandbox.APIError{Operation: "get sandbox", Status: 404, Code: "not_found", SandboxName: "another"},
	&sandbox.APIError{Operation: "run command", Status: 410, Code: "sandbox_stopped", SessionID: "another"},
}

// resume gets a stopped sandbox, with a hook that fails the first time.
func (w *world) resume(ctx context.Context, s Step) error {
	name := fmt.Sprintf("hooked%d", w.n)
	box, err := w.sane.Create(w.ctx, &sandbox.CreateOptions{Name: name})
	if err != nil {
		return err
	}
	if err := box.FS().WriteFile(w.ctx, "kept", []byte("kept"), 0o644); err != nil {
		return err
	}
	if _, err := box.Stop(w.ctx, nil); err != nil {
		return err
	}
	runs, failure := 0, error(nil)
	if s.Fault.What == Hooked {
		failure = hookErrors[s.File%len(hookErrors)]
	}
	opts := &sandbox.CreateOptions{OnResume: func(context.Context, *sandbox.Sandbox) error {
		if runs++; runs == 1 {
			return failure
		}
		return nil
	}}
	if failure == nil {
		w.arm(s)
	}
	got, err := w.faulty.GetOrCreate(ctx, name, opts)
	w.net.disarm()
	first := err == nil || failure != nil
	switch {
	case failure != nil && !errors.Is(err, failure):
		return fmt.Errorf("the hook failed, but GetOrCreate returned %s", describeError(err))
	case failure == nil && err != nil && !w.permits(err):
		return mustNotFail(err)
	case err != nil:
		if got, err = w.faulty.GetOrCreate(w.ctx, name, opts); err != nil {
			return err
		}
	}
	if data, err := got.FS().ReadFile(w.ctx, "kept"); err != nil || string(data) != "kept" {
		return fmt.Errorf("the file is gone: %q, %s", data, describeError(err))
	}
	// If the failed call has resumed the sandbox, the next call does not run the hook.
	return onlyIf(runs == 1 || runs == 0 && !first, "the hook ran %d times", runs)
}

// fork forks a sandbox. The call must not create two forks.
func (w *world) fork(ctx context.Context, s Step) error {
	source, name := fmt.Sprintf("source%d", w.n), fmt.Sprintf("fork%d", w.n)
	box, err := w.sane.Create(w.ctx, &sandbox.CreateOptions{Name: source})
	if err != nil {
		return err
	}
	if err := box.FS().WriteFile(w.ctx, "kept", []byte("kept"), 0o644); err != nil {
		return err
	}
	if _, err := box.Stop(w.ctx, nil); err != nil {
		return err
	}
	w.arm(s)
	_, err = w.faulty.Fork(ctx, source, &sandbox.ForkOptions{Name: name})
	w.net.disarm()
	if err != nil {
		return onlyIf(w.permits(err), "the call must not fail: %v", err)
	}
	fork, err := w.sane.Get(w.ctx, name, nil)
	if err != nil {
		return err
	}
	data, err := fork.FS().ReadFile(w.ctx, "kept")
	return onlyIf(err == nil && string(data) == "kept", "the fork's file holds %q: %v", data, err)
}

// drive creates a drive and deletes it.
func (w *world) drive(ctx context.Context, s Step) error {
	name := fmt.Sprintf("drive%d", w.n)
	w.arm(s)
	drive, err := w.faulty.GetOrCreateDrive(ctx, name, nil)
	if err == nil {
		drive, err = w.faulty.GetDrive(ctx, name)
	}
	if err == nil {
		err = drive.Delete(ctx)
	}
	w.net.disarm()
	if err != nil {
		// The client knows the drive only by its name, so it may be a drive that another
		// client has just created.
		tooNew := s.Size%2 == 1 && errors.Is(err, sandbox.ErrOutcomeUnknown) && w.net.hasHit(w.active, Gone)
		return onlyIf(w.permits(err) || tooNew, "the call must not fail: %v", err)
	}
	_, err = w.sane.GetDrive(w.ctx, name)
	return onlyIf(errors.Is(err, sandbox.ErrNotFound), "no error, but the drive still exists: %v", err)
}

// discard deletes a sandbox. Another client may take its name.
func (w *world) discard(ctx context.Context, s Step) error {
	name := fmt.Sprintf("gone%d", w.n)
	if _, err := w.sane.Create(w.ctx, &sandbox.CreateOptions{Name: name}); err != nil {
		return err
	}
	box, err := w.faulty.Get(w.ctx, name, nil)
	if err != nil {
		return err
	}
	w.rivals = func() error {
		_, err := w.sane.Create(w.ctx, &sandbox.CreateOptions{Name: name})
		return err
	}
	w.arm(s)
	if s.Kind == Drop {
		err = w.faulty.Delete(ctx, name, nil)
	} else {
		err = box.Delete(ctx, nil)
	}
	w.net.disarm()
	if err != nil {
		// The client knows the sandbox only by its name, so it may be a sandbox that
		// another client has just created.
		tooNew := s.Kind == Drop && errors.Is(err, sandbox.ErrOutcomeUnknown) && w.net.hasHit(w.active, Gone)
		return onlyIf(w.permits(err) || tooNew, "the call must not fail: %v", err)
	}
	_, err = w.sane.Get(w.ctx, name, nil)
	if w.hasHappened(Rival) {
		return onlyIf(err == nil, "the rival's new sandbox was deleted: %v", err)
	}
	return onlyIf(errors.Is(err, sandbox.ErrNotFound), "no error, but the sandbox still exists: %v", err)
}
