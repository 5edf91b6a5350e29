package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-vercel/sandbox"
)

// change is what happened to a sandbox since the last call or during this one. A result tells
// the model about it.
type change int

const (
	noChange      change = iota
	newSandbox           // it is new
	restarted            // it was stopped, and was resumed
	machineDied          // its machine died
	filesLost            // its machine died before its files were saved, and it was replaced
	tooOld               // it was deleted because of its age, and replaced
	stoppedInCall        // it stopped during the call
	diedInCall           // its machine died during the call
)

// changeTexts are the messages for the model about a change, and the values of Data["lost"] for
// the program.
var changeTexts = map[change]struct {
	text string
	lost []string
}{
	newSandbox: {"This sandbox is new: it contains nothing from an earlier one.", nil},
	restarted: {"The sandbox was stopped since the last call and was started again: its files are there, commands in the background and Python's variables are gone.",
		[]string{"commands", "variables"}},
	machineDied: {"The machine of the sandbox died since the last call, and another one is started: files are as they were when it was last stopped or saved; " +
		"what was written since, commands in the background and Python's variables are gone.", []string{"files", "commands", "variables"}},
	filesLost: {"Not done: the machine of the sandbox died before its files were saved. All of them are gone, with commands and variables. The next call works in a new, empty sandbox.",
		[]string{"files", "commands", "variables"}},
	tooOld: {"Not done: the sandbox had not been used for so long that it was deleted, with all of its files. The next call works in a new, empty sandbox.",
		[]string{"files", "commands", "variables"}},
	stoppedInCall: {"", []string{"commands", "variables"}},
	diedInCall:    {"", []string{"files", "commands", "variables"}},
}

// inCallTexts begin the result of a call during which the session ended.
var inCallTexts = map[change]string{
	stoppedInCall: "The sandbox stopped before this call was done: what was asked for was done in part, or not at all. Its files are saved. " +
		"Commands in the background and Python's variables are gone. It starts again with the next command or file that is used.",
	diedInCall: "The machine of the sandbox died before this call was done: what was asked for was done in part, or not at all. Files are as they were when it was last stopped or saved. " +
		"What was written since, commands in the background and Python's variables are gone. Another machine starts with the next command or file that is used.",
}

// preventsCall reports whether the tool must not run after a change. It could do harm if the
// model expects files that no longer exist.
func (ch change) preventsCall() bool { return ch == filesLost || ch == tooOld }

// checkChange sets the change that a call has to report, before the tool runs. It returns an
// error if the tool must not run.
func (t *Toolset) checkChange(c *call) error {
	s, kept := t.sessions.(interface{ takeChange(string) change })
	if kept {
		c.change = s.takeChange(c.Conversation)
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if kept && c.state.lastSession == nil {
		c.state.lastSession = c.sb.CurrentSession() // an earlier Toolset of this conversation used it
	}
	if last := c.state.lastSession; (c.change == restarted || c.change == machineDied) && last != nil && last.ID() == c.state.reportedEnd {
		c.change = noChange // the call during which the session ended has reported it
	}
	if c.change != noChange {
		c.state.lastSession = c.sb.CurrentSession()
		c.state.variablesKnownLost = true
	}
	if c.change.preventsCall() {
		return modelErrorf("%s", changeTexts[c.change].text)
	}
	return nil
}

// checkEnd is called after the tool has run. It checks whether a session has ended during
// the call, or between the previous call and this one. The end of a session is not an error,
// because the model can repeat the call. If the sandbox is gone, checkEnd forgets it, so that
// the next call opens another one.
func (t *Toolset) checkEnd(ctx context.Context, c *call, r Result, err error) (Result, error) {
	endedInCall := ctx.Err() == nil && errors.Is(err, sandbox.ErrStopped)
	if cur := c.sb.CurrentSession(); err != nil && ctx.Err() == nil && cur != nil {
		if text, _ := textForModel(err); text == unreachable && cur.Refresh(ctx) == nil {
			endedInCall = hasStopped(c.sb)
		}
	}
	c.state.mu.Lock()
	last, cur, reported := c.state.lastSession, c.sb.CurrentSession(), c.state.reportedEnd
	c.state.lastSession = cur
	if endedInCall && cur != nil {
		c.state.reportedEnd = cur.ID()
	}
	c.state.mu.Unlock()
	if last != nil && cur != nil && last.ID() != cur.ID() && last.ID() != reported {
		c.change = howEnded(ctx, last, restarted, machineDied)
	}
	if endedInCall {
		n := howEnded(ctx, cur, stoppedInCall, diedInCall)
		if (cur == nil || cur.ID() != reported) && len(changeTexts[c.change].lost) < len(changeTexts[n].lost) {
			c.change = n
		}
		r.Text, r.Failed = inCallTexts[n]+r.Text, true
		return r, nil
	}
	p, ok := t.sessions.(interface {
		discard(conversation string, sb *sandbox.Sandbox, reported bool)
	})
	switch {
	case !ok || err == nil:
	case errors.Is(err, sandbox.ErrSnapshotNotFound):
		p.discard(c.Conversation, c.sb, true)
		c.change = filesLost
		return Result{}, modelErrorf("%s", changeTexts[filesLost].text)
	case errors.Is(err, sandbox.ErrNotFound), errors.Is(err, sandbox.ErrDeleted):
		p.discard(c.Conversation, c.sb, false) // the next call reports it
	}
	return r, err
}

// howEnded returns byDeath if the machine of a session has died, and byStop otherwise.
func howEnded(ctx context.Context, s *sandbox.Session, byStop, byDeath change) change {
	if s == nil || s.Refresh(ctx) != nil {
		return byStop
	}
	switch s.Info().Status {
	case sandbox.StatusFailed, sandbox.StatusAborted:
		return byDeath
	}
	return byStop
}

// reportChange adds the call's change to the result's text for the model and to its Data for the
// program. It also adds the remaining time of a session that can't be extended further.
func (c *call) reportChange(r Result) Result {
	n := changeTexts[c.change]
	notes := []string{n.text}
	if c.change.preventsCall() { // r.Text is the same text
		notes = nil
	}
	if left, ok := c.unreportedTimeLeft(); ok {
		notes = append(notes, fmt.Sprintf("The sandbox can't be kept running for longer: it stops in %v, with its commands; its files are kept, and the next call after that starts it again.", left))
		r = r.withData("stops_in", left)
	}
	if n.lost != nil {
		r = r.withData("lost", n.lost)
	}
	for _, note := range slices.Backward(notes) {
		if note != "" {
			r.Text = note + "\n" + r.Text
		}
	}
	return r
}

// withData adds a value to Data.
func (r Result) withData(name string, value any) Result {
	if r.Data == nil {
		r.Data = map[string]any{}
	}
	r.Data[name] = value
	return r
}

// minTimeAfterCall is how long a sandbox keeps running after a call, unless the Sessions have
// an idle time.
const minTimeAfterCall = 5 * time.Minute

// keeper extends the session of a sandbox while calls use it.
type keeper struct {
	uses     int
	cancel   context.CancelFunc
	finalID  string // the ID of a session that can't be extended further
	reported bool   // a result has told the model how much time that session has left
}

// keepRunning keeps a call's sandbox running until the caller calls release. After that the
// sandbox runs for the idle time of the Sessions or, with Options.KeepRunning, until Close.
func (t *Toolset) keepRunning(ctx context.Context, c *call) (release func()) {
	margin := minTimeAfterCall + time.Minute
	if p, ok := t.sessions.(interface{ idle() time.Duration }); ok {
		margin = p.idle() + time.Minute
	}
	k := &c.state.keeper
	c.state.mu.Lock()
	final := k.finalTimeLeft(c.sb) > 0 // an earlier call may have found out
	c.state.mu.Unlock()
	if !final {
		c.state.recordRefusal(c.sb, c.sb.EnsureTimeLeft(ctx, margin, 2*margin))
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	k.uses++
	if k.cancel != nil {
		k.cancel() // the earlier KeepAlive may use an older handle
	}
	keeping, cancel := context.WithCancel(t.ctx)
	k.cancel = cancel
	if !final {
		t.wg.Go(func() {
			c.state.recordRefusal(c.sb, c.sb.KeepAlive(keeping, &sandbox.KeepAliveOptions{Margin: margin, Step: margin}))
		})
	}
	return func() {
		c.state.mu.Lock()
		defer c.state.mu.Unlock()
		if k.uses--; k.uses == 0 && !t.opts.KeepRunning {
			k.cancel()
		}
	}
}

// finalTimeLeft returns the time left of a session that can't be extended further, and zero
// for any other session.
func (k *keeper) finalTimeLeft(sb *sandbox.Sandbox) time.Duration {
	if cur := sb.CurrentSession(); cur != nil && cur.ID() == k.finalID {
		return max(0, cur.TimeLeft())
	}
	return 0
}

// recordRefusal remembers that a session can't be extended further, if err says so. It ignores
// other errors, because the calls fail with them too.
func (b *sandboxState) recordRefusal(sb *sandbox.Sandbox, err error) {
	if !errors.Is(err, sandbox.ErrNoMoreTime) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if id := sessionID(sb); b.keeper.finalID != id {
		b.keeper.finalID, b.keeper.reported = id, false
	}
}

// unreportedTimeLeft returns the time left of a session that can't be extended further. It
// returns false for any other session, and if a result has reported it.
func (c *call) unreportedTimeLeft() (left time.Duration, ok bool) {
	if c.state == nil || c.sb == nil {
		return 0, false
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	k := &c.state.keeper
	if left = k.finalTimeLeft(c.sb).Round(time.Second); left <= 0 || k.reported {
		return 0, false
	}
	k.reported = true
	return left, true
}
