package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
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
	// ErrNoSession matches if the session does not exist, or no longer, or if the ID is
	// that of a workflow of another kind.
	ErrNoSession = errors.New("session: no session has that ID")
	// ErrDestroyed matches when the session was destroyed or has failed.
	ErrDestroyed = errors.New("session: it is destroyed")
	// ErrQueueFull matches when too many commands wait for their turn.
	ErrQueueFull = errors.New("session: its queue is full")
)

// errNothing says that the command of an interrupt is over.
var errNothing = errors.New("session: there is nothing to interrupt")

// Options configures a [Client].
type Options struct {
	// TaskQueue is that of the workers that have the session registered. Empty
	// means "sandbox".
	TaskQueue string
	// Sandbox reads the output of commands that run. Nil means that none is
	// shown before its command has ended.
	Sandbox *sandbox.Client
	// Output is the store of the workers, where secret commands go, too.
	// Nil means that of output of commands that have ended no more than its end is
	// shown.
	Output durable.OutputStore
	// Hold is for how long [Client.Hold] keeps a machine whose process has died; it
	// renews that while it lives. Zero means 30 seconds, and 10 minutes are the most.
	Hold time.Duration
	// Policy and Defaults are for sessions that this client starts.
	Policy   Policy
	Defaults durable.Options
}

// Client starts sessions, sends them commands and reads their events. It is safe
// for concurrent use.
type Client struct {
	temporal client.Client
	opts     Options
	archive  archive

	mu      sync.Mutex
	watches map[string]*watch
	logs    map[string]*liveLog // by the command's handle
	cost    time.Duration       // of a query, on the average
	known   map[string]struct{} // IDs of sessions
}

// New returns a client of the sessions in the namespace of c. It makes no
// request. opts may be nil.
func New(c client.Client, opts *Options) *Client {
	s := &Client{temporal: c, watches: map[string]*watch{}, logs: map[string]*liveLog{}, known: map[string]struct{}{}}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.TaskQueue == "" {
		s.opts.TaskQueue = "sandbox"
	}
	if s.opts.Hold == 0 {
		s.opts.Hold = 30 * time.Second
	}
	s.archive.store = s.opts.Output
	return s
}

// Format prints the client without what it was given, for every verb.
func (c *Client) Format(f fmt.State, verb rune) {
	if c == nil {
		redact.String(f, verb, "client of sessions <nil>")
		return
	}
	redact.String(f, verb, "client of the sessions of task queue "+c.opts.TaskQueue)
}

var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// NewID returns an ID for a session: 128 random bits. Whoever knows it can use
// the session, unless HandlerOptions.Authorize says otherwise.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return "ses-" + hex.EncodeToString(b[:])
}

// StartOptions is for [Client.Start].
type StartOptions struct {
	// ID is the session's. Starting one that exists does nothing, which makes a
	// start idempotent. Empty means [NewID]. It has letters, digits, "-" and
	// "_", at most 100.
	ID string
	// Title is shown by Temporal's lists of workflows, in the memo. It has at most 200
	// bytes. Empty means none.
	Title string
	// Sandbox and Policy replace the client's where they are not nil.
	Sandbox *durable.Options
	Policy  *Policy
}

const maxTitle = 200

// Start starts a session and returns its ID. Its sandbox is made in the
// background; the events tell when it is there. opts may be nil.
func (c *Client) Start(ctx context.Context, opts *StartOptions) (id string, err error) {
	if err := c.check(ctx); err != nil {
		return "", err
	}
	return c.start(ctx, opts, enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE)
}

func (c *Client) check(ctx context.Context) error {
	return entry.Check(ctx, c != nil && c.watches != nil, "session", "the Client")
}

// start is Start; again says whether a session that is over is started anew.
func (c *Client) start(ctx context.Context, opts *StartOptions, again enums.WorkflowIdReusePolicy) (id string, err error) {
	in := input{Options: c.opts.Defaults, Policy: c.opts.Policy}
	title := ""
	if opts != nil {
		id, title = opts.ID, opts.Title
		if opts.Sandbox != nil {
			in.Options = *opts.Sandbox
		}
		if opts.Policy != nil {
			in.Policy = *opts.Policy
		}
	}
	if id == "" {
		id = NewID()
	}
	if !validID.MatchString(id) {
		return "", fmt.Errorf("%w: %.100q is not a session's ID: it may have letters, digits, - and _, at most 100", sandbox.ErrInvalid, id)
	}
	if err := in.check(); err != nil {
		return "", err
	}
	if len(title) > maxTitle {
		return "", fmt.Errorf("%w: a title of %d bytes; at most %d are taken", sandbox.ErrInvalid, len(title), maxTitle)
	}
	memo := map[string]any{memoSandbox: cmp.Or(in.Options.Name, durable.DefaultName(id))}
	if title != "" {
		memo[memoTitle] = title
	}
	_, err = c.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: c.opts.TaskQueue, Memo: memo,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    again,
	}, workflowName, in)
	if _, ok := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); ok {
		return id, fmt.Errorf("%w (%s)", ErrDestroyed, id)
	}
	if err != nil {
		return id, err
	}
	if opts == nil || opts.ID == "" {
		c.remember(id)
		return id, nil
	}
	return id, c.checkSession(ctx, id) // it may be that of another workflow, which runs
}

// MaxCommand is how many bytes a command may have. Larger scripts go to the sandbox as
// files.
const MaxCommand = 64 << 10

// Command is what [Client.Command] sends.
type Command struct {
	// Command is a script for bash.
	Command string
	// Key makes it idempotent: of all commands of a session with one key, the
	// first runs. The last 1,000 keys are remembered. Empty means none.
	Key string
	// Secret keeps the text out of Temporal's history: it goes into the client's
	// Options.Output, and the history has its SHA-256, from which a text that can be
	// guessed is found. Viewers see it.
	Secret bool
}

// Format prints the command, without its text if that is secret, for every verb.
func (c Command) Format(f fmt.State, verb rune) {
	if c.Secret {
		c.Command = redact.Mark
	}
	redact.Struct(f, verb, c)
}

// Command puts a command into the session's queue and returns the ID that its
// events have. It does not wait for it to run.
func (c *Client) Command(ctx context.Context, id string, cmd Command) (commandID string, err error) {
	if err := c.check(ctx); err != nil {
		return "", err
	}
	if err := checkID(id); err != nil {
		return "", err
	}
	if len(cmd.Command) > MaxCommand {
		return "", fmt.Errorf("%w: a command of %d bytes; at most %d are taken", sandbox.ErrInvalid, len(cmd.Command), MaxCommand)
	}
	if len(cmd.Key) > 200 {
		return "", fmt.Errorf("%w: a key of %d bytes; at most 200 are taken", sandbox.ErrInvalid, len(cmd.Key))
	}
	up := commandUpdate{Key: cmd.Key, Command: cmd.Command}
	if cmd.Secret && c.opts.Output == nil {
		return "", fmt.Errorf("%w: a secret command needs Options.Output, which is nil", sandbox.ErrInvalid)
	}
	if cmd.Secret {
		up.Command = ""
		if up.Text, err = c.store(ctx, id, cmd.Command); err != nil {
			return "", err
		}
	}
	err = c.update(ctx, id, updateCommand, up, &commandID)
	return commandID, err
}

// store stores the text of a command, of a session that may take it. One that is
// refused leaves nothing; one that was taken before, with the same key, is stored.
func (c *Client) store(ctx context.Context, id, command string) (text string, err error) {
	s, err := c.state(ctx, id)
	text = textOf(command)
	switch {
	case err != nil:
		return "", err
	case s.State.State == StateDestroyed, s.State.State == StateTerminated:
		return "", ErrDestroyed
	case s.Full:
		r, err := c.archive.store.Open(ctx, textKey(id, text))
		if errors.Is(err, fs.ErrNotExist) {
			err = ErrQueueFull
		}
		if err != nil {
			return "", err
		}
		return text, r.Close()
	}
	return text, c.archive.putText(ctx, id, text, command)
}

// update sends a message to a session and waits for its answer.
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
			return c.missing(ctx, id)
		case app == nil:
			return err
		case app.Type() == errDestroyedType:
			return ErrDestroyed
		case app.Type() == errQueueFullType:
			return ErrQueueFull
		case app.Type() == errNothingType:
			return errNothing
		case app.Type() == errNoCommandType, app.Type() == errInvalidType:
			return fmt.Errorf("%w: %s", sandbox.ErrInvalid, app.Message())
		case app.Type() != errRollingType:
			return err
		}
		// It continues as new in a moment.
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

// checkSession refuses IDs that are no session's, but those of other workflows of the
// namespace: who may use a session reaches nothing else by it.
func (c *Client) checkSession(ctx context.Context, id string) error {
	c.mu.Lock()
	_, known := c.known[id]
	c.mu.Unlock()
	if known {
		return nil
	}
	_, err := c.describe(ctx, id)
	return err
}

// knownIDs is how many IDs of sessions are remembered, so that Temporal is asked once
// for each.
const knownIDs = 10_000

// remember remembers that an ID is a session's. Should it become another workflow's, that
// has no message of a session's.
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

// missing tells a session that has ended from one that there never was.
func (c *Client) missing(ctx context.Context, id string) error {
	if _, err := c.describe(ctx, id); err != nil {
		return err
	}
	return ErrDestroyed
}

// Interrupt sends a signal to a command, or to the one that runs when commandID
// is empty; one that waits for its turn never begins. One that is over is no
// error, and none that the session ever had matches sandbox.ErrInvalid. It needs
// a worker to be up.
func (c *Client) Interrupt(ctx context.Context, id, commandID string, sig sandbox.Signal) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	_, err := c.interrupt(ctx, id, commandID, sig)
	return err
}

// interrupt is Interrupt, and reports whether there was a command that was not
// over.
func (c *Client) interrupt(ctx context.Context, id, commandID string, sig sandbox.Signal) (taken bool, err error) {
	if sig <= 0 || sig > 64 {
		return false, fmt.Errorf("%w: %d is not a signal", sandbox.ErrInvalid, int(sig))
	}
	err = c.update(ctx, id, updateInterrupt, interrupt{commandID, int(sig)}, &taken)
	if errors.Is(err, errNothing) {
		return false, nil
	}
	return taken, err
}

// Touch counts as a use: the machine does not hibernate before IdleAfter from
// now. It does not wake one that has. It needs a worker to be up.
func (c *Client) Touch(ctx context.Context, id string) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	err := c.update(ctx, id, updateTouch, struct{}{}, nil)
	if errors.Is(err, errNothing) {
		return nil
	}
	return err
}

// Destroy ends a session: the command that runs is killed, those that wait never
// begin, the machine is stopped. opts may be nil, which keeps the sandbox and the
// stored output. It returns once the session has taken note of it, which needs a
// worker to be up.
func (c *Client) Destroy(ctx context.Context, id string, opts *DestroyOptions) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	if opts == nil {
		opts = &DestroyOptions{}
	}
	return c.update(ctx, id, updateDestroy, *opts, nil)
}

// State returns what the session is at the moment, as Temporal has committed it. It
// needs a worker to be up.
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
	if cut(info.GetStatus()) != "" { // its code doesn't know that
		s.State.State = StateTerminated
		return s, nil
	}
	err = c.query(ctx, id, info.GetExecution().GetRunId(), &s, queryState)
	s = s.when(info.GetHistoryLength())
	for _, a := range d.GetPendingActivities() {
		if s.Error == "" && a.GetAttempt() > 1 {
			s.Error = a.GetLastFailure().GetMessage()
		}
	}
	return s, err
}

// engineTimeout is how long the engine may take for one answer of a route.
const engineTimeout = 10 * time.Second

// A query that the history has outgrown is repeated: so often, and after such
// a pause.
const (
	queryAttempts = 5
	queryPause    = 200 * time.Millisecond
)

// historyGrew reports whether a query failed as it does when the history that the
// worker reads has grown since it was asked, which Temporal's SDK takes for a
// workflow that is not deterministic. A query changes nothing.
func historyGrew(err error) bool {
	failed, ok := errors.AsType[*serviceerror.QueryFailed](err)
	return ok && strings.Contains(failed.Error(), "[TMPRL1100]")
}

// query asks a run of a session, the last one if it is not named.
func (c *Client) query(ctx context.Context, id, run string, out any, name string, args ...any) error {
	req := &client.QueryWorkflowWithOptionsRequest{WorkflowID: id, RunID: run, QueryType: name, Args: args}
	resp, err := c.temporal.QueryWorkflowWithOptions(ctx, req)
	for again := 1; again < queryAttempts && historyGrew(err); again++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(queryPause):
		}
		resp, err = c.temporal.QueryWorkflowWithOptions(ctx, req)
	}
	if err != nil {
		return noSession(id, err)
	}
	return resp.QueryResult.Get(out)
}

// noSession is err, or that there is no such session.
func noSession(id string, err error) error {
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return fmt.Errorf("%w (%s)", ErrNoSession, id)
	}
	return err
}
