package session

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
)

// hold reserves the machine for somebody's direct calls until a time.
type hold struct {
	ID    string
	Until time.Time
}

// holdUpdate requests a hold, or extends one. held is the answer.
type holdUpdate struct {
	ID  string
	For time.Duration
}

type held struct{ Sandbox string }

const (
	// maxHolds limits the holds of a session, including those that wait.
	maxHolds = 100
	// maxWaiting is how many updates may wait for their hold. Temporal allows 10 updates of
	// a workflow in flight, and commands and interrupts need some.
	maxWaiting = 4
	// holdFor is how long a hold lasts after its process has died.
	holdFor = 30 * time.Second
)

func byHolder(id string) func(hold) bool { return func(h hold) bool { return h.ID == id } }

func byWaiting(id string) func(queued) bool {
	return func(q queued) bool { return q.Hold > 0 && q.ID == id }
}

// acceptHold is the validator of a hold.
func (s *run) acceptHold(_ workflow.Context, h holdUpdate) error {
	if err := s.checkOpen(); err != nil {
		return err
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
		return temporal.NewApplicationError("too many holds of the session", errQueueFullType)
	case s.waitingHolds >= maxWaiting:
		return temporal.NewApplicationError("too many callers wait to hold the session", errRollingType)
	}
	return nil
}

// hold waits, behind earlier commands, until the holder has the machine. The holder repeats
// the update to wait longer or to hold longer.
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
		return held{}, temporal.NewApplicationError("the hold was released", errNothingType)
	}
	return held{}, s.checkOpen()
}

// acceptRelease is the validator of a release.
func (s *run) acceptRelease(_ workflow.Context, id string) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	if !slices.ContainsFunc(s.Holds, byHolder(id)) && !slices.ContainsFunc(s.Queue, byWaiting(id)) {
		return temporal.NewApplicationError("there is no such hold", errNothingType)
	}
	return nil
}

func (s *run) release(_ workflow.Context, id string) error {
	s.calls++
	s.Holds = slices.DeleteFunc(s.Holds, byHolder(id))
	s.Queue = slices.DeleteFunc(s.Queue, byWaiting(id))
	return nil
}

// isHeld reports whether somebody holds the machine. It drops expired holds, whose process
// has died or is disconnected.
func (s *run) isHeld(ctx workflow.Context) bool {
	now := workflow.Now(ctx)
	s.Holds = slices.DeleteFunc(s.Holds, func(h hold) bool { return !now.Before(h.Until) })
	return len(s.Holds) > 0
}

// waitsForHold reports whether a hold is next in the queue.
func (s *run) waitsForHold() bool { return len(s.Queue) > 0 && s.Queue[0].Hold > 0 }

// grantHold gives the machine to the next hold in the queue.
func (s *run) grantHold(ctx workflow.Context) error {
	next := s.Queue[0]
	s.ran = true
	if s.Sandbox.VM == "" {
		if err := s.wake(ctx); err != nil {
			return err
		}
	}
	if i := slices.IndexFunc(s.Queue, byWaiting(next.ID)); i >= 0 { // it may have been released
		s.Queue = slices.Delete(s.Queue, i, i+1)
		s.Holds = append(s.Holds, hold{next.ID, workflow.Now(ctx).Add(next.Hold)})
		s.Lent = true
		s.Unsaved++
	}
	return nil
}

// keepHeld renews the machine's lease while somebody holds it. It returns when something
// else is due.
func (s *run) keepHeld(ctx workflow.Context) error {
	var deadlines []time.Time
	for _, h := range s.Holds {
		deadlines = append(deadlines, h.Until)
	}
	renew := s.Sandbox.ExpiresAt.Add(s.Sandbox.Ahead - s.in.Options.Lease/2)
	if renew.Before(s.renewAfter) {
		renew = s.renewAfter
	}
	if s.Sandbox.VM != "" {
		deadlines = append(deadlines, renew)
	}
	_, err := awaitUntil(ctx, func() bool {
		return s.destroy != nil || len(s.Holds) == 0 || s.waitsForHold()
	}, deadlines...)
	if err == nil && s.Sandbox.VM != "" && !workflow.Now(ctx).Before(renew) {
		return s.renew(ctx)
	}
	return err
}

// endHold is called when the last hold has ended. Its holder may have replaced or stopped
// the machine.
func (s *run) endHold(ctx workflow.Context) error {
	s.Lent = false
	s.noteUse(ctx)
	return s.renew(ctx)
}

// renew renews the machine's lease, and notes whether the machine was replaced or has stopped.
func (s *run) renew(ctx workflow.Context) error {
	vm, before := s.Sandbox.VM, s.losses()
	s.renewAfter = workflow.Now(ctx).Add(s.in.Options.Lease / 5) // the platform may not allow a longer lease
	runs, err := s.Sandbox.Renew(ctx)
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

// Hold wakes a session's machine and reserves it for direct calls with the SDK, for example
// of files and ports. Until release is called, the session runs no command, and does not
// stop or replace the machine. Hold waits for commands that were sent before. Several
// callers may hold a session at the same time.
//
// The caller must call release, which is nil if there is an error. If the process dies
// before, the hold ends after 30 seconds. Hold needs a running worker.
func (c *Client) Hold(ctx context.Context, id string) (sb *sandbox.Sandbox, release func(), err error) {
	if err := c.check(ctx); err != nil {
		return nil, nil, err
	}
	if c.opts.Sandbox == nil {
		return nil, nil, fmt.Errorf("%w: Options.Sandbox is nil", sandbox.ErrInvalid)
	}
	h := holdUpdate{rand.Text(), holdFor}
	var got held
	leave := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineTimeout)
		defer cancel()
		_ = c.update(ctx, id, updateRelease, h.ID, nil) // best effort: otherwise the hold expires
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
				_ = c.update(ctx, id, updateHold, h, nil) // the next tick retries
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

// Conversations gives each conversation of an agent its own session. It implements
// agent.Sessions of package agent, for conversations that outlive the agent's processes.
// The sessions' Policy says when to stop a machine (IdleAfter) and when a conversation
// starts over (MaxAge).
type Conversations struct {
	// Client is the client of the sessions. It needs Options.Sandbox.
	Client *Client
}

// ID returns the ID of a conversation's session. It does not reveal the conversation's ID.
func (c *Conversations) ID(conversation string) string {
	if c == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(conversation))
	return "agent-" + hex.EncodeToString(sum[:16])
}

// Acquire holds the session of a conversation; see [Client.Hold]. It starts the session if
// there is none, or if it was destroyed.
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
		if errors.Is(err, ErrDestroyed) { // wait: the workflow may still be stopping its machine
			_ = c.Client.temporal.GetWorkflow(ctx, id, "").Get(ctx, nil)
		}
		if _, err := c.Client.start(ctx, &StartOptions{ID: id}, enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE); err != nil {
			return nil, nil, err
		}
	}
}
