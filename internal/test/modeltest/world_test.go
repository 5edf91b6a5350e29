package modeltest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/sandboxtest"
)

const (
	// stepTime limits a step. One that takes longer is considered to hang.
	stepTime = time.Minute
	boxName  = "model"
	journal  = "journal"
	// longer is more than a session lasts.
	longer = 6 * time.Minute
)

// world is an emulator with a sandbox, a client behind faults, and a client without, which
// also plays all other clients.
type world struct {
	srv    *sandboxtest.Server
	net    *network
	faulty *sandbox.Client
	sane   *sandbox.Client
	box    *sandbox.Sandbox // by the faulty client, with an OnResume hook
	same   *sandbox.Sandbox // by the sane one

	n      int             // the step
	active *activeFault    // its fault
	ctx    context.Context // without faults, for what the model does itself
	cancel func()          // of the step's context, for a caller that gives up

	mu       sync.Mutex
	hook     error // what OnResume fails with, once
	happened bool  // the event of the step's fault took place
	eventErr error // of the model's own doing in it
	seen     map[string]map[string]bool
	files    history
	saved    history                        // in the snapshot that a crash leaves
	pending  map[string]func(string) string // what the step is about to do to files
	rivals   func() error                   // what a rival of the step does
}

// history lists the contents that each file may have.
type history map[string][]string

// missing is the content of a file that does not exist.
const missing = "\x00missing"

func (h history) of(name string) []string {
	if c, ok := h[name]; ok {
		return c
	}
	return []string{missing}
}

// change applies f to the contents that a file may have. Unless the change is known to have
// happened, the file may also be unchanged.
func (h history) change(name string, f func(string) string, known bool) {
	var after []string
	for _, c := range h.of(name) {
		after = append(after, f(c))
		if !known {
			after = append(after, c)
		}
	}
	slices.Sort(after)
	h[name] = slices.Compact(after)
}

func newWorld(ctx context.Context) (*world, error) {
	srv, err := sandboxtest.NewServer(nil)
	if err != nil {
		return nil, err
	}
	c := srv.Credentials()
	w := &world{srv: srv, ctx: ctx, seen: map[string]map[string]bool{}, files: history{}, saved: history{}}
	w.net = &network{next: &http.Transport{}, creds: auth.Credentials{Token: c.Token, TeamID: c.TeamID, ProjectID: c.ProjectID}}
	client := func(rt http.RoundTripper, creds auth.Provider) *sandbox.Client {
		made, clientErr := sandbox.NewClient(&sandbox.ClientOptions{
			BaseURL: srv.URL, HTTPClient: &http.Client{Transport: rt}, Credentials: creds,
			RetryWait: time.Millisecond,
			Reattach:  &sandbox.ReattachOptions{Wait: time.Millisecond},
		})
		err = errors.Join(err, clientErr)
		return made
	}
	w.faulty = client(w.net, w.net)
	w.sane = client(&http.Transport{}, auth.Static(w.net.creds))
	if err == nil {
		err = w.rebuild()
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// rebuild creates the sandbox for the steps, and a snapshot that it returns to when its
// machine crashes.
func (w *world) rebuild() error {
	made, err := w.sane.Create(w.ctx, &sandbox.CreateOptions{Name: boxName})
	if err != nil {
		return err
	}
	if _, err := made.Stop(w.ctx, nil); err != nil {
		return err
	}
	w.same = made
	w.files, w.saved = history{}, history{}
	if err := made.Resume(w.ctx); err != nil {
		return err
	}
	w.box, err = w.faulty.Get(w.ctx, boxName, &sandbox.GetOptions{NoResume: true, OnResume: func(context.Context, *sandbox.Sandbox) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		failure := w.hook
		w.hook = nil
		return failure
	}})
	return err
}

func (w *world) close() {
	w.faulty.CloseIdleConnections()
	w.sane.CloseIdleConnections()
	_ = w.srv.Close()
}

// play runs the program. It returns the number of the step that failed, and why.
func play(ctx context.Context, steps []Step) (int, error) {
	w, err := newWorld(ctx)
	if err != nil {
		return 0, err
	}
	defer w.close()
	for i, s := range steps {
		w.n = i + 1
		if err := w.step(s); err != nil {
			return i + 1, fmt.Errorf("step %d, %s: %w", i+1, s, err)
		}
	}
	return 0, nil
}

var errHangs = fmt.Errorf("not done after %v", stepTime)

func (w *world) step(s Step) error {
	limited, stop := context.WithTimeoutCause(w.ctx, stepTime, errHangs)
	defer stop()
	ctx, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	w.cancel = func() { cancel(errGivenUp) }
	w.mu.Lock()
	w.happened, w.eventErr, w.hook, w.pending, w.rivals = false, nil, nil, nil, nil
	w.mu.Unlock()
	w.active = &activeFault{}
	err := w.perform(ctx, s)
	w.net.disarm()
	switch {
	case err != nil:
		return err
	case w.eventErr != nil: // nothing happens any more
		return fmt.Errorf("the model itself: %w", w.eventErr)
	case limited.Err() != nil:
		return errHangs
	}
	if w.hasHappened(Deleted) {
		return w.rebuild()
	}
	return w.verify(w.ctx)
}

var errGivenUp = errors.New("the caller has given up")

func (w *world) perform(ctx context.Context, s Step) error {
	switch s.Kind {
	case Run, Start, Fetch, Follow, Exec, Keep:
		return w.command(ctx, s)
	case Feed:
		return w.feed(ctx, s)
	case Talk:
		return w.talk(ctx, s)
	case Kill:
		return w.kill(ctx, s)
	case Cancel:
		return w.killed(ctx, s)
	case Shell:
		return w.shell(ctx, s)
	case Append, Upload, Appends, Write, Replace, Truncate, Remove, Rename, Copy, Sweep:
		return w.file(ctx, s)
	case Read:
		return w.read(ctx, s)
	case Mkdir:
		return w.lock(ctx, s)
	case Link:
		return w.link(ctx, s)
	case Tree:
		return w.tree(ctx, s)
	case Stop, Update, Extend, Policy, Save:
		return w.session(ctx, s)
	case Make:
		return w.make(ctx, s)
	case Remake:
		return w.remake(ctx, s)
	case Resume:
		return w.resume(ctx, s)
	case Fork:
		return w.fork(ctx, s)
	case Drive:
		return w.drive(ctx, s)
	case Discard, Drop:
		return w.discard(ctx, s)
	}
	return fmt.Errorf("no such step: %s", s.Kind)
}

// arm puts the step's fault into effect.
func (w *world) arm(s Step) {
	w.active = w.net.arm(s.Fault, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.eventErr = w.event(s.Fault.What)
		w.happened = w.eventErr == nil
	})
}

// event causes a fault of the sandbox or of the caller, as opposed to one of a request.
func (w *world) event(what What) error {
	switch what {
	case GiveUp:
		w.cancel()
	case Rival:
		if w.rivals != nil {
			return w.rivals()
		}
	case Cleaned:
		_, err := w.same.RunCommand(w.ctx, "sh", []string{"-c", "rm -rf /tmp/.piece-*"}, nil)
		return err
	case Stopped, Hooked:
		if what == Hooked {
			w.hook = errHook
		}
		w.save()
		_, err := w.same.Stop(w.ctx, nil)
		return err
	case Expired:
		w.save()
		w.srv.Advance(longer)
	case Crashed:
		if err := w.collect(w.ctx); err != nil {
			return err
		}
		w.srv.Crash(boxName)
		w.files = maps.Clone(w.saved)
	case Deleted:
		if err := w.collect(w.ctx); err != nil {
			return err
		}
		return w.sane.Delete(w.ctx, boxName, nil)
	}
	return nil
}

// save records what a snapshot contains that is taken now. It may contain the effect of the
// current step.
func (w *world) save() {
	w.saved = maps.Clone(w.files)
	for name, f := range w.pending {
		w.saved.change(name, f, false)
	}
}

// collect adds the runs in the journal to the known ones, because a crash reverts the
// journal.
func (w *world) collect(ctx context.Context) error {
	data, err := w.same.FS().ReadFile(ctx, journal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		if w.seen[name] == nil {
			w.seen[name] = map[string]bool{}
		}
		w.seen[name][id] = true
	}
	return err
}

// runs counts the runs of a command. The journal of a deleted sandbox was read
// before it was deleted.
func (w *world) runs(name string) (int, error) {
	if !w.hasHappened(Deleted) {
		if err := w.collect(w.ctx); err != nil {
			return 0, err
		}
	}
	return len(w.seen[name]), nil
}

// hasHappened reports whether the step's fault is one of these and has happened.
func (w *world) hasHappened(whats ...What) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.happened && slices.Contains(whats, w.active.What)
}

// permits reports whether, by the docs, a call may fail with err under the step's fault.
// If the session ends before the request and a resume repairs that, no error is permitted.
func (w *world) permits(err error) bool {
	s := w.active
	switch s.What {
	case Odd:
		// If a proxy refuses a lookup or a log once, that costs an attempt.
		e, ok := errors.AsType[*sandbox.APIError](err)
		return w.net.hasHit(s, Any) && !w.net.hasHit(s, Look) && !strings.HasSuffix(s.req.URL.Path, "/logs") && ok && e.Status == http.StatusForbidden
	case Lost, Gateway, Cut, Clean, Page, Held, Double, Crossed:
		// No lookup can find the outcome.
		if !w.net.hasHit(s, Any) || !errors.Is(err, sandbox.ErrOutcomeUnknown) {
			return false
		}
		if s.real == http.StatusGone {
			return true // it was refused, but an ended session can't say so
		}
		path := s.req.URL.Path
		if s.What == Page && s.When == Before && Cmd.fits(s.req) {
			return true // it may still be on its way
		}
		for _, unsettled := range []string{"/kill", "/fs/mkdir", "/extend-timeout", "/snapshot", "/fork", "/sandboxes"} {
			if s.req.Method == http.MethodPost && strings.HasSuffix(path, unsettled) {
				return true
			}
		}
		return false
	case Missing:
		return errors.Is(err, errMissing)
	case GiveUp:
		return w.hasHappened(GiveUp) && errors.Is(err, context.Canceled) && errors.Is(err, errGivenUp)
	case Hooked:
		return w.hasHappened(Hooked) && (errors.Is(err, errHook) || !w.resumeRepairs())
	case Stopped, Expired, Crashed:
		return w.hasHappened(s.What) && !w.resumeRepairs()
	case Deleted:
		return w.hasHappened(Deleted)
	}
	return false
}

// resumeRepairs reports whether a resume repairs the end of the session: the session ended
// before a request whose refusal proves that nothing has begun, and the client has not
// repeated the call yet, which it does once.
func (w *world) resumeRepairs() bool {
	if w.active.When != Before || w.active.gone {
		return false
	}
	return slices.ContainsFunc([]Class{Cmd, Put, Fetched, Box}, func(c Class) bool { return w.net.hasHit(w.active, c) })
}

// mustNotFail returns the finding about the error of a call that must not fail.
func mustNotFail(err error) error { return fmt.Errorf("it failed: %w", err) }

// verify compares every file with its history.
func (w *world) verify(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(w.files))
	if len(names) == 0 {
		return nil
	}
	const script = `for f; do if [ -e "$f" ]; then sha256sum < "$f"; else echo missing; fi; done`
	done, err := w.same.RunCommand(ctx, "sh", append([]string{"-c", script, "sh"}, names...), nil)
	if err != nil {
		return err
	}
	out, err := done.Stdout(ctx)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(names) {
		return fmt.Errorf("looking at the files: %q", out)
	}
	for i, name := range names {
		have := strings.Fields(lines[i])[0]
		at := slices.IndexFunc(w.files[name], func(c string) bool { return digest(c) == have })
		if at < 0 {
			data, err := w.same.FS().ReadFile(ctx, name)
			return fmt.Errorf("%s has %d bytes that it can't have (%s), and should have %s", name, len(data), fmt.Sprint(err), lengths(w.files[name]))
		}
		w.files[name] = w.files[name][at : at+1]
	}
	return nil
}

func digest(content string) string {
	if content == missing {
		return "missing"
	}
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// lengths describes the contents that a file may have.
func lengths(contents []string) string {
	var all []string
	for _, c := range contents {
		if c == missing {
			all = append(all, "none")
		} else {
			all = append(all, fmt.Sprint(len(c)))
		}
	}
	return strings.Join(all, " or ")
}
