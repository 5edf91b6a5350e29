package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/internal/entry"
)

// Fields of a session's memo, which Temporal's lists show.
const (
	memoTitle   = "SandboxTitle"
	memoSandbox = "SandboxName"
)

// sandboxOf returns the name of a session's sandbox. It is empty if another data converter hides
// the memo.
func sandboxOf(info *workflow.WorkflowExecutionInfo) (name string) {
	if field := info.GetMemo().GetFields()[memoSandbox]; field != nil {
		_ = converter.GetDefaultDataConverter().FromPayload(field, &name)
	}
	return name
}

// Remove deletes the sandbox and the stored data that an ended session has kept. It works even if
// Temporal no longer has the session, so it can't check whether the ID belonged to one. Remove
// needs Options.Sandbox.
func (c *Client) Remove(ctx context.Context, id string) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	if c.opts.Sandbox == nil {
		return entry.Made(false, "session", "Options.Sandbox")
	}
	if err := checkID(id); err != nil {
		return err
	}
	d, err := c.temporal.DescribeWorkflowExecution(ctx, id, "")
	info := d.GetWorkflowExecutionInfo()
	_, forgotten := errors.AsType[*serviceerror.NotFound](err)
	switch {
	case forgotten:
	case err != nil:
		return err
	case info.GetType().GetName() != workflowName:
		return fmt.Errorf("%w (%s)", ErrNoSession, id)
	case info.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return fmt.Errorf("%w: session %s has not ended: destroy it first", sandbox.ErrInvalid, id)
	}
	sb, err := c.opts.Sandbox.Get(ctx, cmp.Or(sandboxOf(info), durable.DefaultName(id)), &sandbox.GetOptions{NoResume: true})
	if err == nil && durable.WorkflowOf(sb.Info()) == id {
		err = sb.Delete(ctx, nil)
	}
	if hasEnded(err) {
		err = nil
	}
	return errors.Join(err, c.archive.clear(ctx, id))
}
