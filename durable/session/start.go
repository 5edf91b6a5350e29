package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
)

// StartOptions is for [Client.Start].
type StartOptions struct {
	// ID is the session's ID: at most 100 letters, digits, "-" and "_". It makes the start
	// idempotent: nothing happens if the session exists. Empty means 128 random bits.
	ID string
	// Title is part of the memo that Temporal's lists of workflows show. It has at most 200
	// bytes.
	Title string
	// Sandbox and Policy, if not nil, replace those of the client.
	Sandbox *durable.Options
	Policy  *Policy
}

const maxTitle = 200

// Start starts a session and returns its ID. The sandbox is created in the background; an
// event says when it is ready. opts may be nil.
func (c *Client) Start(ctx context.Context, opts *StartOptions) (id string, err error) {
	if err := c.check(ctx); err != nil {
		return "", err
	}
	return c.start(ctx, opts, enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE)
}

// start is Start. reuse says what to do with the ID of a session that has ended.
func (c *Client) start(ctx context.Context, opts *StartOptions, reuse enums.WorkflowIdReusePolicy) (id string, err error) {
	o := *cmp.Or(opts, new(StartOptions))
	in := input{Options: *cmp.Or(o.Sandbox, &c.opts.Defaults), Policy: *cmp.Or(o.Policy, &c.opts.Policy)}
	id = cmp.Or(o.ID, newID())
	if !validID.MatchString(id) {
		return "", fmt.Errorf("%w: %.100q is not a session's ID: use at most 100 letters, digits, - and _", sandbox.ErrInvalid, id)
	}
	if err := in.check(); err != nil {
		return "", err
	}
	if len(o.Title) > maxTitle {
		return "", fmt.Errorf("%w: the title has %d bytes; the limit is %d", sandbox.ErrInvalid, len(o.Title), maxTitle)
	}
	memo := map[string]any{memoSandbox: cmp.Or(in.Options.Name, durable.DefaultName(id))}
	if o.Title != "" {
		memo[memoTitle] = o.Title
	}
	_, err = c.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: c.opts.TaskQueue, Memo: memo,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    reuse,
	}, workflowName, in)
	if _, ok := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); ok {
		return id, fmt.Errorf("%w (%s)", ErrDestroyed, id)
	}
	if err != nil {
		return id, err
	}
	if o.ID == "" {
		c.remember(id)
		return id, nil
	}
	return id, c.checkSession(ctx, id) // another workflow may have the ID
}

// newID returns an ID of 128 random bits. Anyone who knows a session's ID can use the
// session, unless HandlerOptions.Authorize refuses.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return "ses-" + hex.EncodeToString(b[:])
}

// Fields of a session's memo, which Temporal's lists show.
const (
	memoTitle   = "SandboxTitle"
	memoSandbox = "SandboxName"
)
