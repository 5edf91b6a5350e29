package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-vercel/sandbox"
)

// news tells what has happened to a sandbox since the last call.
type news int

const (
	noNews        news = iota
	newSandbox         // it is new
	restarted          // it was stopped, and was resumed
	machineDied        // its machine died
	filesLost          // its machine died before its files were saved, and it was replaced
	tooOld             // it was deleted because of its age, and replaced
	stoppedInCall      // it stopped during the call
	diedInCall         // its machine died during the call
)

// newsTexts are the messages about news for the model, and the names of what was lost for the
// program.
var newsTexts = map[news]struct {
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
var inCallTexts = map[news]string{
	stoppedInCall: "The sandbox stopped before this call was done: what was asked for was done in part, or not at all. Its files are saved. " +
		"Commands in the background and Python's variables are gone. It starts again with the next command or file that is used.",
	diedInCall: "The machine of the sandbox died before this call was done: what was asked for was done in part, or not at all. Files are as they were when it was last stopped or saved. " +
		"What was written since, commands in the background and Python's variables are gone. Another machine starts with the next command or file that is used.",
}

// preventsCall reports whether the news prevents the call. A call may do harm if the model
// expects files that no longer exist.
func (n news) preventsCall() bool { return n == filesLost || n == tooOld }

// checkNews sets the news of a call before the tool runs. It returns an error if the news
// prevents the call.
func (t *Toolset) checkNews(c *call) error {
	s, kept := t.sessions.(interface{ news(string) news })
	if kept {
		c.news = s.news(c.Conversation)
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if kept && c.state.last == nil {
		c.state.last = c.sb.CurrentSession() // an earlier Toolset of this conversation used it
	}
	if last := c.state.last; (c.news == restarted || c.news == machineDied) && last != nil && last.ID() == c.state.ended {
		c.news = noNews // the call during which it ended said so
	}
	if c.news != noNews {
		c.state.last = c.sb.CurrentSession()
		c.state.variablesKnownLost = true
	}
	if c.news.preventsCall() {
		return modelErrorf("%s", newsTexts[c.news].text)
	}
	return nil
}

// checkEnd is called after the tool has run. It checks whether a session has ended during
// the call, or between the previous call and this one. It forgets a sandbox that is gone. The
// end of a session is not an error, because the model can repeat the call.
func (t *Toolset) checkEnd(ctx context.Context, c *call, r Result, err error) (Result, error) {
	under := ctx.Err() == nil && errors.Is(err, sandbox.ErrStopped)
	if cur := c.sb.CurrentSession(); err != nil && ctx.Err() == nil && cur != nil {
		if text, _ := textForModel(err); text == unreachable && cur.Refresh(ctx) == nil {
			under = hasStopped(c.sb)
		}
	}
	c.state.mu.Lock()
	last, cur, known := c.state.last, c.sb.CurrentSession(), c.state.ended
	c.state.last = cur
	if under && cur != nil {
		c.state.ended = cur.ID()
	}
	c.state.mu.Unlock()
	if last != nil && cur != nil && last.ID() != cur.ID() && last.ID() != known {
		c.news = howEnded(ctx, last, restarted, machineDied)
	}
	if under {
		n := howEnded(ctx, cur, stoppedInCall, diedInCall)
		if (cur == nil || cur.ID() != known) && len(newsTexts[c.news].lost) < len(newsTexts[n].lost) {
			c.news = n
		}
		r.Text, r.Failed = inCallTexts[n]+r.Text, true
		return r, nil
	}
	p, ok := t.sessions.(interface {
		discard(conversation string, sb *sandbox.Sandbox, told bool)
	})
	switch {
	case !ok || err == nil:
	case errors.Is(err, sandbox.ErrSnapshotNotFound):
		p.discard(c.Conversation, c.sb, true)
		c.news = filesLost
		return Result{}, modelErrorf("%s", newsTexts[filesLost].text)
	case errors.Is(err, sandbox.ErrNotFound), errors.Is(err, sandbox.ErrDeleted):
		p.discard(c.Conversation, c.sb, false) // the next call reports it
	}
	return r, err
}

// howEnded returns byDeath if the machine of a session has died, and byStop otherwise.
func howEnded(ctx context.Context, s *sandbox.Session, byStop, byDeath news) news {
	if s == nil || s.Refresh(ctx) != nil {
		return byStop
	}
	switch s.Info().Status {
	case sandbox.StatusFailed, sandbox.StatusAborted:
		return byDeath
	}
	return byStop
}

// addNews adds the news to the result's text for the model and to its Data for the program.
func (c *call) addNews(r Result) Result {
	n := newsTexts[c.news]
	notes := []string{n.text}
	if c.news.preventsCall() { // the text already consists of them
		notes = nil
	}
	if left, refused := c.finalTimeLeft(); refused {
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

// minTimeAfterCall is how long a sandbox keeps running after a call, at least.
const minTimeAfterCall = 5 * time.Minute

// keeper extends the session of a sandbox while calls use it.
type keeper struct {
	uses    int
	cancel  context.CancelFunc
	refused string // the ID of a session that can't be extended further
	told    bool   // the model was told so
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
	refused := k.finalTimeLeft(c.sb) > 0 // perhaps with an earlier handle
	c.state.mu.Unlock()
	if !refused {
		c.state.recordRefusal(c.sb, c.sb.EnsureTimeLeft(ctx, margin, 2*margin))
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	k.uses++
	if k.cancel != nil {
		k.cancel() // its handle may be older than this one
	}
	keeping, cancel := context.WithCancel(t.ctx)
	k.cancel = cancel
	if !refused {
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
	if cur := sb.CurrentSession(); cur != nil && cur.ID() == k.refused {
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
	if id := sessionID(sb); b.keeper.refused != id {
		b.keeper.refused, b.keeper.told = id, false
	}
}

// finalTimeLeft returns the time left of the session if it can't be extended further, and
// whether the model has yet to be told.
func (c *call) finalTimeLeft() (left time.Duration, refused bool) {
	if c.state == nil || c.sb == nil {
		return 0, false
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	k := &c.state.keeper
	if left = k.finalTimeLeft(c.sb).Round(time.Second); left <= 0 || k.told {
		return 0, false
	}
	k.told = true
	return left, true
}
