package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-vercel/sandbox"
)

// news is what has happened to a sandbox since the last call.
type news int

const (
	nothing news = iota
	made         // it is new
	woken        // it was stopped, and is started again
	crashed      // its machine died
	lost         // its machine died before its files were saved, and it was replaced
	expired      // it was deleted for its age, and replaced
	stopped      // it stopped under the call
	died         // its machine died under the call
)

// texts are the messages about news for the model, and the names of what was lost for the
// program.
var texts = map[news]struct {
	text string
	lost []string
}{
	made: {"This sandbox is new: nothing of an earlier one is in it.", nil},
	woken: {"The sandbox was stopped since the last call, and is started again: its files are there, commands in the background and Python's variables are gone.",
		[]string{"commands", "variables"}},
	crashed: {"The machine of the sandbox died since the last call, and another one is started: files are as they were when it was last stopped or saved; " +
		"what was written since, commands in the background and Python's variables are gone.", []string{"files", "commands", "variables"}},
	lost: {"Not done: the machine of the sandbox died before its files were saved. All of them are gone, with commands and variables. The next call works in a new, empty sandbox.",
		[]string{"files", "commands", "variables"}},
	expired: {"Not done: the sandbox had not been used for so long that it was deleted, with all of its files. The next call works in a new, empty sandbox.",
		[]string{"files", "commands", "variables"}},
	stopped: {"", []string{"commands", "variables"}},
	died:    {"", []string{"files", "commands", "variables"}},
}

// endTexts are what the model reads of a call under which the session ended. The
// result then begins with them.
var endTexts = map[news]string{
	stopped: "The sandbox stopped before this call was done: what was asked for was done in part, or not at all. Its files are saved. " +
		"Commands in the background and Python's variables are gone. It starts again with the next command or file that is used.",
	died: "The machine of the sandbox died before this call was done: what was asked for was done in part, or not at all. Files are as they were when it was last stopped or saved. " +
		"What was written since, commands in the background and Python's variables are gone. Another machine starts with the next command or file that is used.",
}

// preventsCall reports whether the news prevents the call. A call that was meant for the
// model's files may do harm where there are none.
func (n news) preventsCall() bool { return n == lost || n == expired }

// checkNews sets the news of a call before it is made. The error says why it must not be
// made.
func (t *Toolset) checkNews(c *call) error {
	s, kept := t.sessions.(interface{ news(string) news })
	if kept {
		c.news = s.news(c.Conversation)
	}
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	if kept && c.box.last == nil {
		c.box.last = c.sb.CurrentSession() // of a Toolset before this one
	}
	if last := c.box.last; (c.news == woken || c.news == crashed) && last != nil && last.ID() == c.box.ended {
		c.news = nothing // the call under which it ended said so
	}
	if c.news != nothing {
		c.box.last = c.sb.CurrentSession()
		c.box.begun = true
	}
	if c.news.preventsCall() {
		return mistake("%s", texts[c.news].text)
	}
	return nil
}

// checkEnd finds out, after a call, whether sessions have ended between the last call and
// this one, or during this one. It forgets a sandbox that is gone. The end of the
// session is no error: the model can make the call again.
func (t *Toolset) checkEnd(ctx context.Context, c *call, r Result, err error) (Result, error) {
	under := ctx.Err() == nil && errors.Is(err, sandbox.ErrStopped)
	if cur := c.sb.CurrentSession(); err != nil && ctx.Err() == nil && cur != nil {
		if text, _ := told(err); text == unreachable && cur.Refresh(ctx) == nil {
			under = hasStopped(c.sb) // which is why
		}
	}
	c.box.mu.Lock()
	last, cur, known := c.box.last, c.sb.CurrentSession(), c.box.ended
	c.box.last = cur
	if under && cur != nil {
		c.box.ended = cur.ID()
	}
	c.box.mu.Unlock()
	if last != nil && cur != nil && last.ID() != cur.ID() && last.ID() != known {
		c.news = howEnded(ctx, last, woken, crashed)
	}
	if under {
		n := howEnded(ctx, cur, stopped, died)
		if (cur == nil || cur.ID() != known) && len(texts[c.news].lost) < len(texts[n].lost) {
			c.news = n
		}
		r.Text, r.Failed = endTexts[n]+r.Text, true
		return r, nil
	}
	p, ok := t.sessions.(interface {
		discard(conversation string, sb *sandbox.Sandbox, told bool)
	})
	switch {
	case !ok || err == nil:
	case errors.Is(err, sandbox.ErrSnapshotNotFound):
		p.discard(c.Conversation, c.sb, true)
		c.news = lost
		return Result{}, mistake("%s", texts[lost].text)
	case errors.Is(err, sandbox.ErrNotFound), errors.Is(err, sandbox.ErrDeleted):
		p.discard(c.Conversation, c.sb, false) // the next call finds out
	}
	return r, err
}

// howEnded returns one of two news about a session that has ended: it was stopped, or
// its machine died.
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

// tell puts the news before what the model reads, and among the facts for the
// program.
func (c *call) tell(r Result) Result {
	n := texts[c.news]
	notes := []string{n.text}
	if c.news.preventsCall() { // which is all that is said
		notes = nil
	}
	if left, refused := c.shortened(); refused {
		notes = append(notes, fmt.Sprintf("The sandbox can't be kept running for longer: it stops in %v, with its commands; its files are kept, and the next call after that starts it again.", left))
		r = r.with("stops_in", left)
	}
	if n.lost != nil {
		r = r.with("lost", n.lost)
	}
	for _, note := range slices.Backward(notes) {
		if note != "" {
			r.Text = note + "\n" + r.Text
		}
	}
	return r
}

// with adds a value to Data.
func (r Result) with(name string, value any) Result {
	if r.Data == nil {
		r.Data = map[string]any{}
	}
	r.Data[name] = value
	return r
}

// afterCall is the minimum time that a sandbox runs after a call.
const afterCall = 5 * time.Minute

// keeper extends the session of a sandbox while calls use it.
type keeper struct {
	uses   int
	cancel context.CancelFunc
	// refused is the session that can't be extended any further.
	refused string
	told    bool // the model was told that it can't
}

// keep keeps a call's sandbox running until the returned function is called, and after
// that for the idle time of the sessions, or until Close.
func (t *Toolset) keep(ctx context.Context, c *call) (release func()) {
	margin := afterCall + time.Minute
	if p, ok := t.sessions.(interface{ idle() time.Duration }); ok {
		margin = p.idle() + time.Minute
	}
	k := &c.box.keeper
	c.box.mu.Lock()
	refused := k.ends(c.sb) > 0 // by this handle, or one before
	c.box.mu.Unlock()
	if !refused {
		c.box.refuse(c.sb, c.sb.EnsureTimeLeft(ctx, margin, 2*margin))
	}
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	k.uses++
	if k.cancel != nil {
		k.cancel() // of a handle that may know less than this one
	}
	keeping, cancel := context.WithCancel(t.ctx)
	k.cancel = cancel
	if !refused {
		t.wg.Go(func() {
			c.box.refuse(c.sb, c.sb.KeepAlive(keeping, &sandbox.KeepAliveOptions{Margin: margin, Step: margin}))
		})
	}
	return func() {
		c.box.mu.Lock()
		defer c.box.mu.Unlock()
		if k.uses--; k.uses == 0 && !t.opts.KeepRunning {
			k.cancel()
		}
	}
}

// ends returns how long a session has that can't be extended any further, and zero for
// any other one.
func (k *keeper) ends(sb *sandbox.Sandbox) time.Duration {
	if cur := sb.CurrentSession(); cur != nil && cur.ID() == k.refused {
		return max(0, cur.TimeLeft())
	}
	return 0
}

// refuse remembers that a session can't be extended any further, if that is the error.
// Others are those of the calls as well.
func (b *box) refuse(sb *sandbox.Sandbox, err error) {
	if !errors.Is(err, sandbox.ErrNoMoreTime) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if id := sessionID(sb); b.keeper.refused != id {
		b.keeper.refused, b.keeper.told = id, false
	}
}

// shortened returns the session's time left if the session can't be extended any further.
// It reports that once.
func (c *call) shortened() (left time.Duration, refused bool) {
	if c.box == nil || c.sb == nil {
		return 0, false
	}
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	k := &c.box.keeper
	if left = k.ends(c.sb).Round(time.Second); left <= 0 || k.told {
		return 0, false
	}
	k.told = true
	return left, true
}
