package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/internal/entry"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Errors of a [Client].
var (
	// ErrNoSession means that there is no session with the ID. Another workflow may have
	// it.
	ErrNoSession = errors.New("session: no session has that ID")
	// ErrDestroyed means that the session was destroyed or has failed.
	ErrDestroyed = errors.New("session: the session has ended")
	// ErrQueueFull means that too many commands wait for their turn.
	ErrQueueFull = errors.New("session: the session's queue is full")
)

// errNothingToInterrupt means that the command of an interrupt has ended.
var errNothingToInterrupt = errors.New("session: there is nothing to interrupt")

// Options configures a [Client].
type Options struct {
	// TaskQueue is the task queue of the workers that registered the session. Empty means
	// "sandbox".
	TaskQueue string
	// Sandbox reads the output of running commands. If it is nil, viewers see output only
	// after the command has ended.
	Sandbox *sandbox.Client
	// Output is the store of the workers. It also keeps secret commands. If it is nil,
	// viewers see only the last 2 KiB of the output of a command that has ended.
	Output durable.OutputStore
	// Policy and Defaults apply to sessions that this client starts.
	Policy   Policy
	Defaults durable.Options
}

// Client starts sessions, sends them commands and reads their events. It is safe
// for concurrent use.
type Client struct {
	temporal client.Client
	opts     Options
	archive  archive

	mu        sync.Mutex
	watches   map[string]*watch
	queryTime time.Duration       // mean duration of a query
	known     map[string]struct{} // IDs of sessions
}

// New returns a client of the sessions in the namespace of c. It makes no
// request. opts may be nil.
func New(c client.Client, opts *Options) *Client {
	s := &Client{
		temporal: c, opts: *cmp.Or(opts, new(Options)), watches: map[string]*watch{}, known: map[string]struct{}{},
	}
	s.opts.TaskQueue = cmp.Or(s.opts.TaskQueue, "sandbox")
	s.archive.store = s.opts.Output
	return s
}

// Format prints the client without its options, for every verb.
func (c *Client) Format(f fmt.State, verb rune) {
	if c == nil {
		redact.String(f, verb, "client of sessions <nil>")
		return
	}
	redact.String(f, verb, "client of the sessions of task queue "+c.opts.TaskQueue)
}

var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

func (c *Client) check(ctx context.Context) error {
	return entry.Check(ctx, c != nil && c.watches != nil, "session", "the Client")
}

// update sends a message to a session and waits for the answer.
func (c *Client) update(ctx context.Context, id, name string, arg, answer any) error {
	if err := c.checkSession(ctx, id); err != nil {
		return err
	}
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		up, err := c.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
			WorkflowID: id, UpdateName: name, WaitForStage: client.WorkflowUpdateStageCompleted, Args: []any{arg},
		})
		if err == nil {
			err = up.Get(ctx, answer)
		}
		app, _ := errors.AsType[*temporal.ApplicationError](err)
		_, missing := errors.AsType[*serviceerror.NotFound](err)
		switch {
		case err == nil:
			return nil
		case missing:
			return c.missingError(ctx, id)
		case app == nil:
			return err
		case app.Type() == errDestroyedType:
			return ErrDestroyed
		case app.Type() == errQueueFullType:
			return ErrQueueFull
		case app.Type() == errNothingType:
			return errNothingToInterrupt
		case app.Type() == errNoCommandType:
			return fmt.Errorf("%w: %s", sandbox.ErrInvalid, app.Message())
		case app.Type() != errRollingType:
			return err
		}
		// The session is continuing as new: send the message again.
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func checkID(id string) error {
	if !validID.MatchString(id) {
		return fmt.Errorf("%w (%.100q)", ErrNoSession, id)
	}
	return nil
}

// checkSession refuses the IDs of other workflows of the namespace: users of sessions must
// not reach them.
func (c *Client) checkSession(ctx context.Context, id string) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	_, known := c.known[id]
	c.mu.Unlock()
	if known {
		return nil
	}
	_, err := c.describe(ctx, id)
	return err
}

// knownIDs is how many IDs of sessions the client remembers, to ask Temporal only once for
// each.
const knownIDs = 10_000

// remember remembers that a session has the ID. This is safe even if another workflow gets
// the ID later, because that does not handle a session's messages.
func (c *Client) remember(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= knownIDs {
		clear(c.known)
	}
	c.known[id] = struct{}{}
}

// describe asks Temporal about a session.
func (c *Client) describe(ctx context.Context, id string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	d, err := c.temporal.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return nil, noSession(id, err)
	}
	if d.GetWorkflowExecutionInfo().GetType().GetName() != workflowName {
		return nil, fmt.Errorf("%w (%s)", ErrNoSession, id)
	}
	c.remember(id)
	return d, nil
}

// missingError returns ErrDestroyed for a session that has ended, and ErrNoSession for one
// that never existed.
func (c *Client) missingError(ctx context.Context, id string) error {
	if _, err := c.describe(ctx, id); err != nil {
		return err
	}
	return ErrDestroyed
}

// Interrupt sends a signal to a command, or to the running one if commandID is empty. A
// command that waits in the queue then never starts. It is not an error if the command has
// ended. The error for an unknown command matches sandbox.ErrInvalid. Interrupt needs a
// running worker.
func (c *Client) Interrupt(ctx context.Context, id, commandID string, sig sandbox.Signal) error {
	_, err := c.interrupt(ctx, id, commandID, sig)
	return err
}

// interrupt is Interrupt, and reports whether there was a command to interrupt.
func (c *Client) interrupt(ctx context.Context, id, commandID string, sig sandbox.Signal) (taken bool, err error) {
	if sig <= 0 || sig > 64 {
		return false, fmt.Errorf("%w: %d is not a signal", sandbox.ErrInvalid, int(sig))
	}
	err = c.update(ctx, id, updateInterrupt, interrupt{commandID, int(sig)}, &taken)
	if errors.Is(err, errNothingToInterrupt) {
		return false, nil
	}
	return taken, err
}

// Destroy ends a session: it kills the running command, drops queued commands and stops the
// machine. If opts is nil, the sandbox and the stored output stay. Destroy returns when the
// session has recorded it, which needs a running worker.
func (c *Client) Destroy(ctx context.Context, id string, opts *DestroyOptions) error {
	opts = cmp.Or(opts, &DestroyOptions{})
	return c.update(ctx, id, updateDestroy, *opts, nil)
}

// State returns the session's state that Temporal has committed. It needs a running worker.
func (c *Client) State(ctx context.Context, id string) (*State, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	s, err := c.state(ctx, id)
	return &s.State, err
}

func (c *Client) state(ctx context.Context, id string) (s decided, err error) {
	d, err := c.describe(ctx, id)
	if err != nil {
		return s, err
	}
	info := d.GetWorkflowExecutionInfo()
	if info.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_TERMINATED { // the workflow's code can't know that
		s.State.State = StateTerminated
		return s, nil
	}
	err = c.query(ctx, id, info.GetExecution().GetRunId(), &s, queryState)
	s = s.committed(info.GetHistoryLength())
	for _, a := range d.GetPendingActivities() {
		if s.Error == "" && a.GetAttempt() > 1 {
			s.Error = a.GetLastFailure().GetMessage()
		}
	}
	return s, err
}

// noSession returns ErrNoSession for Temporal's NotFound, and any other err unchanged.
func noSession(id string, err error) error {
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return fmt.Errorf("%w (%s)", ErrNoSession, id)
	}
	return err
}
