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
	// stepTime is the time limit of a step. A step that takes longer hangs.
	stepTime = time.Minute
	boxName  = "model"
	journal  = "journal"
	// longer is a duration that exceeds the timeout of a session.
	longer = 6 * time.Minute
)

// world is an emulator with a sandbox and two clients. One client has faults. The sane one has
// none, and also makes the calls of rivals.
type world struct {
	srv    *sandboxtest.Server
	net    *network
	faulty *sandbox.Client
	sane   *sandbox.Client
	box    *sandbox.Sandbox // a handle of the client with faults, with an OnResume hook
	same   *sandbox.Sandbox // a handle of the same sandbox for the sane client

	n      int             // the number of the step
	active *activeFault    // the step's fault
	ctx    context.Context // for the calls of the model itself
	cancel func()          // ends the step's context

	mu       sync.Mutex
	hook     error // the error that OnResume returns next, once
	happened bool  // the event of the step's fault has occurred
	eventErr error // an error of the model itself during the event
	seen     map[string]map[string]bool
	files    history
	saved    history                        // the files in the snapshot to which a crash reverts
	pending  map[string]func(string) string // the changes to files that the step is making
	rivals   func() error                   // makes the rival's call of the step
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

// change applies f to the contents that a file may have. If it is not known whether the change
// has happened, the file may also have its old contents.
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

// rebuild creates the sandbox for the steps, and a snapshot to which a crash reverts it.
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

// play runs a program. It returns the number of the step that failed, and the reason.
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

var errHangs = fmt.Errorf("the step has not ended after %v", stepTime)

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
	case w.eventErr != nil: // disarm has been called, so no event is running
		return fmt.Errorf("the model itself failed: %w", w.eventErr)
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

// event causes a fault of the sandbox or of the caller.
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

// save records the contents of a snapshot that is made now. The snapshot may contain the
// changes of the current step.
func (w *world) save() {
	w.saved = maps.Clone(w.files)
	for name, f := range w.pending {
		w.saved.change(name, f, false)
	}
}

// collect reads the journal and records its runs, because a crash may revert the journal later.
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

// runs returns the number of runs of a command. If the sandbox is deleted, event has read the
// journal before.
func (w *world) runs(name string) (int, error) {
	if !w.hasHappened(Deleted) {
		if err := w.collect(w.ctx); err != nil {
			return 0, err
		}
	}
	return len(w.seen[name]), nil
}

// hasHappened reports whether the step's fault is one of the given ones and has happened.
func (w *world) hasHappened(whats ...What) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.happened && slices.Contains(whats, w.active.What)
}

// permits reports whether the documentation permits that a call returns err because of the
// step's fault. If the session ends before a request, and a resume repairs this, the call must
// succeed.
func (w *world) permits(err error) bool {
	s := w.active
	switch s.What {
	case Odd:
		// If a proxy refuses a lookup or a log once, the client tries again.
		e, ok := errors.AsType[*sandbox.APIError](err)
		return w.net.hasHit(s, Any) && !w.net.hasHit(s, Look) && !strings.HasSuffix(s.req.URL.Path, "/logs") && ok && e.Status == http.StatusForbidden
	case Lost, Gateway, Cut, Clean, Page, Held, Double, Crossed:
		// The client may return ErrOutcomeUnknown if no lookup can show the outcome.
		if !w.net.hasHit(s, Any) || !errors.Is(err, sandbox.ErrOutcomeUnknown) {
			return false
		}
		if s.real == http.StatusGone {
			return true // the session has ended, so the client can't look up the outcome
		}
		path := s.req.URL.Path
		if s.What == Page && s.When == Before && Cmd.fits(s.req) {
			return true // the request may still be in flight
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

// resumeRepairs reports whether a resume repairs the end of the session. It does if the API has
// refused a request that had no effect, and the client has not repeated the call yet. The client
// repeats a call only once.
func (w *world) resumeRepairs() bool {
	if w.active.When != Before || w.active.gone {
		return false
	}
	return slices.ContainsFunc([]Class{Cmd, Put, Fetched, Box}, func(c Class) bool { return w.net.hasHit(w.active, c) })
}

// mustNotFail describes the error of a call that must not fail.
func mustNotFail(err error) error { return fmt.Errorf("the call must not fail: %w", err) }

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
		return fmt.Errorf("unexpected output of the program that lists the files: %q", out)
	}
	for i, name := range names {
		have := strings.Fields(lines[i])[0]
		at := slices.IndexFunc(w.files[name], func(c string) bool { return digest(c) == have })
		if at < 0 {
			data, err := w.same.FS().ReadFile(ctx, name)
			return fmt.Errorf("%s has a wrong content of %d bytes (%s), and should have %s", name, len(data), fmt.Sprint(err), lengths(w.files[name]))
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
