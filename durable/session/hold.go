package session

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
)

// hold keeps the machine for the direct calls of somebody, until a time.
type hold struct {
	ID    string
	Until time.Time
}

// holdUpdate asks for a hold, or for more time of one; held answers it.
type holdUpdate struct {
	ID  string
	For time.Duration
}

type held struct{ Sandbox string }

const (
	// maxHolds is how many there may be at the same time, with those that wait.
	maxHolds = 100
	// maxWaiting is how many updates wait for their hold: Temporal has 10 of a
	// workflow under way, and commands and interrupts need some.
	maxWaiting = 4
	maxHoldFor = 10 * time.Minute
)

var validHold = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func byHolder(id string) func(hold) bool { return func(h hold) bool { return h.ID == id } }

func byWaiting(id string) func(queued) bool {
	return func(q queued) bool { return q.Hold > 0 && q.ID == id }
}

// acceptHold is the validator of a hold.
func (s *run) acceptHold(_ workflow.Context, h holdUpdate) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	if !validHold.MatchString(h.ID) || h.For <= 0 || h.For > maxHoldFor {
		return temporal.NewApplicationError("this is no hold", errNoCommandType)
	}
	if err := s.checkCalls(); err != nil || slices.ContainsFunc(s.Holds, byHolder(h.ID)) {
		return err
	}
	waits := 0
	for _, q := range s.Queue {
		if q.Hold > 0 {
			waits++
		}
	}
	switch {
	case len(s.Holds)+waits >= maxHolds && !slices.ContainsFunc(s.Queue, byWaiting(h.ID)):
		return temporal.NewApplicationError("too many hold the session, or wait for that", errQueueFullType)
	case s.waitingHolds >= maxWaiting:
		return temporal.NewApplicationError("others wait to hold the session", errRollingType)
	}
	return nil
}

// hold waits, behind the commands that were sent before, until the machine runs for
// the holder. It is asked again to wait longer, or to hold longer.
func (s *run) hold(ctx workflow.Context, h holdUpdate) (held, error) {
	s.calls++
	if i := slices.IndexFunc(s.Holds, byHolder(h.ID)); i >= 0 {
		s.Holds[i].Until = workflow.Now(ctx).Add(h.For)
		return held{s.Sandbox.Options.Name}, nil
	}
	waits := func() bool { return slices.ContainsFunc(s.Queue, byWaiting(h.ID)) }
	if !waits() {
		s.Queue = append(s.Queue, queued{ID: h.ID, Hold: h.For})
		s.refused.hurry = true
	}
	s.waitingHolds++
	defer func() { s.waitingHolds-- }()
	err := workflow.Await(ctx, func() bool { return !waits() || s.rolling || s.destroy != nil })
	switch {
	case err != nil:
		return held{}, err
	case slices.ContainsFunc(s.Holds, byHolder(h.ID)):
		return held{s.Sandbox.Options.Name}, nil
	case s.destroy == nil && !s.rolling:
		return held{}, temporal.NewApplicationError("it was released", errNothingType)
	}
	return held{}, s.checkOpen()
}

// acceptRelease is the validator of a release.
func (s *run) acceptRelease(_ workflow.Context, id string) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	if !slices.ContainsFunc(s.Holds, byHolder(id)) && !slices.ContainsFunc(s.Queue, byWaiting(id)) {
		return temporal.NewApplicationError("nobody of that name holds the session", errNothingType)
	}
	return nil
}

func (s *run) release(_ workflow.Context, id string) error {
	s.calls++
	s.Holds = slices.DeleteFunc(s.Holds, byHolder(id))
	s.Queue = slices.DeleteFunc(s.Queue, byWaiting(id))
	return nil
}

// isHeld reports whether somebody holds the machine. It drops those whose time is up:
// their process has died, or has lost its way to here.
func (s *run) isHeld(ctx workflow.Context) bool {
	now := workflow.Now(ctx)
	s.Holds = slices.DeleteFunc(s.Holds, func(h hold) bool { return !now.Before(h.Until) })
	return len(s.Holds) > 0
}

// waitsForHold reports whether the next in the queue is a hold.
func (s *run) waitsForHold() bool { return len(s.Queue) > 0 && s.Queue[0].Hold > 0 }

// grant gives the machine to the one who waits for it next.
func (s *run) grant(ctx workflow.Context) error {
	next := s.Queue[0]
	s.ran = true
	if s.Sandbox.VM == "" {
		if err := s.wake(ctx); err != nil {
			return err
		}
	}
	if i := slices.IndexFunc(s.Queue, byWaiting(next.ID)); i >= 0 { // it may have left
		s.Queue = slices.Delete(s.Queue, i, i+1)
		s.Holds = append(s.Holds, hold{next.ID, workflow.Now(ctx).Add(next.Hold)})
		s.Lent = true
		s.Unsaved++
	}
	return nil
}

// keepHeld renews the machine's lease while it is held, until something else is due.
func (s *run) keepHeld(ctx workflow.Context) error {
	var deadlines []time.Time
	for _, h := range s.Holds {
		deadlines = append(deadlines, h.Until)
	}
	renew := s.Sandbox.ExpiresAt.Add(s.Sandbox.Ahead - s.in.Options.Lease/2)
	if renew.Before(s.adoptAfter) {
		renew = s.adoptAfter
	}
	if s.Sandbox.VM != "" {
		deadlines = append(deadlines, renew)
	}
	_, err := awaitUntil(ctx, func() bool {
		return s.destroy != nil || len(s.Holds) == 0 || s.waitsForHold()
	}, deadlines...)
	if err == nil && s.Sandbox.VM != "" && !workflow.Now(ctx).Before(renew) {
		return s.adopt(ctx)
	}
	return err
}

// takeBack follows a hold: the machine may be another one by now, or none.
func (s *run) takeBack(ctx workflow.Context) error {
	s.Lent = false
	s.noteUse(ctx)
	return s.adopt(ctx)
}

func (s *run) adopt(ctx workflow.Context) error {
	vm, before := s.Sandbox.VM, s.losses()
	s.adoptAfter = workflow.Now(ctx).Add(s.in.Options.Lease / 5) // the platform's cap may allow no more
	runs, err := s.Sandbox.Adopt(ctx)
	switch {
	case err != nil:
		return err
	case !runs && vm != "":
		s.status(ctx, StateHibernated)
	case runs && s.Sandbox.VM != vm:
		s.noteAwake(ctx, before)
	}
	return nil
}

// Hold wakes a session's machine and keeps it for direct calls with the SDK, such as
// those of files and ports: until release is called, the session runs no command,
// and the machine is neither stopped nor replaced. It waits for the commands that
// were sent before; several may hold a session at the same time. If the process ends
// without a release, the hold ends after Options.Hold. The caller calls release,
// which is nil if there is an error. It needs a worker to be up.
func (c *Client) Hold(ctx context.Context, id string) (sb *sandbox.Sandbox, release func(), err error) {
	if err := c.check(ctx); err != nil {
		return nil, nil, err
	}
	if c.opts.Sandbox == nil {
		return nil, nil, fmt.Errorf("%w: Options.Sandbox is nil", sandbox.ErrInvalid)
	}
	h := holdUpdate{rand.Text(), c.opts.Hold}
	var got held
	leave := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineTimeout)
		defer cancel()
		_ = c.update(ctx, id, updateRelease, h.ID, nil) // its time ends it otherwise
	}
	if err = c.update(ctx, id, updateHold, h, &got); err == nil {
		sb, err = c.opts.Sandbox.Get(ctx, got.Sandbox, &sandbox.GetOptions{NoResume: true})
	}
	if err != nil {
		if !errors.Is(err, ErrNoSession) && !errors.Is(err, ErrDestroyed) {
			leave()
		}
		return nil, nil, err
	}
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(h.For / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				ctx, cancel := context.WithTimeout(renewing, h.For)
				_ = c.update(ctx, id, updateHold, h, nil) // the next one comes
				cancel()
			case <-renewing.Done():
				return
			}
		}
	}()
	return sb, sync.OnceFunc(func() {
		stop()
		<-done
		leave()
	}), nil
}

// Conversations finds the sandbox of an agent's conversation in a session of its own:
// it is an agent.Sessions of package agent, for conversations that outlive the
// processes of the agent. The sessions' Policy says when a machine is stopped
// (IdleAfter) and when a conversation begins anew (MaxAge).
type Conversations struct {
	// Client has the sessions, and an Options.Sandbox.
	Client *Client
	// Prefix begins the IDs of the sessions. Empty means "agent-".
	Prefix string
	// Start, if not nil, says how the session of a conversation is started; its ID
	// is chosen here.
	Start func(conversation string) *StartOptions
}

// ID returns the ID of a conversation's session, which does not show that of the
// conversation.
func (c *Conversations) ID(conversation string) string {
	if c == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(conversation))
	prefix := c.Prefix
	if prefix == "" {
		prefix = "agent-"
	}
	return prefix + hex.EncodeToString(sum[:16])
}

// Acquire holds the session of a conversation, see [Client.Hold]. It starts one if
// there is none, or if that was destroyed.
func (c *Conversations) Acquire(ctx context.Context, conversation string) (*sandbox.Sandbox, func(), error) {
	if err := entry.Check(ctx, c != nil, "session", "the Conversations"); err != nil {
		return nil, nil, err
	}
	id := c.ID(conversation)
	for started := false; ; started = true {
		sb, release, err := c.Client.Hold(ctx, id)
		if err == nil || started || !errors.Is(err, ErrNoSession) && !errors.Is(err, ErrDestroyed) {
			return sb, release, err
		}
		if errors.Is(err, ErrDestroyed) { // it may still be about to stop its machine
			_ = c.Client.temporal.GetWorkflow(ctx, id, "").Get(ctx, nil)
		}
		var opts StartOptions
		if c.Start != nil {
			if o := c.Start(conversation); o != nil {
				opts = *o
			}
		}
		opts.ID = id
		if _, err := c.Client.start(ctx, &opts, enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE); err != nil {
			return nil, nil, err
		}
	}
}
