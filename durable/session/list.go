package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	workflows "go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/internal/entry"
)

// Names of a session's search attributes, see [Options].SearchAttributes, and, but for the
// state, of the fields of its memo. All are keywords.
const (
	AttributeOwner   = "SandboxOwner"
	AttributeSandbox = "SandboxName"
	AttributeState   = "SandboxState"
)

var validOwner = regexp.MustCompile(`^[^'"\\\x00-\x1f]{0,200}$`)

// noteState has the cluster's lists show a state, if they can.
func (s *run) noteState(ctx workflows.Context, state string) {
	if !s.in.SearchAttributes || state == s.listed {
		return
	}
	s.listed = state
	if err := workflows.UpsertTypedSearchAttributes(ctx, temporal.NewSearchAttributeKeyKeyword(AttributeState).ValueSet(state)); err != nil {
		workflows.GetLogger(ctx).Error("session: its state is not listed", "error", err)
	}
}

// Listed is a session as Temporal lists it.
type Listed struct {
	ID string
	// Owner is that of the StartOptions, Sandbox the name of its sandbox. Where a data
	// converter hides memos, they are known from search attributes alone.
	Owner, Sandbox string
	// State is known with [Options].SearchAttributes.
	State string
	// StartedAt is when its present history began, and EndedAt when it ended: zero if it
	// has not.
	StartedAt, EndedAt time.Time
}

// ListOptions says which sessions [Client.List] gives.
type ListOptions struct {
	// Ended gives those that have ended, as long as the cluster retains them, instead of
	// those that live.
	Ended bool
	// Owner and State, if not empty, give those of one owner and in one state alone. They
	// need [Options].SearchAttributes.
	Owner, State string
}

// List iterates over the sessions of the namespace, in no order. What a cluster lists is
// some time behind. opts may be nil.
func (c *Client) List(ctx context.Context, opts *ListOptions) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		query, err := c.listQuery(ctx, opts)
		if err != nil {
			yield(Listed{}, err)
			return
		}
		for req := (&workflowservice.ListWorkflowExecutionsRequest{Query: query}); ; {
			page, err := c.temporal.ListWorkflow(ctx, req)
			if err != nil {
				yield(Listed{}, err)
				return
			}
			for _, info := range page.GetExecutions() {
				if !yield(listed(info), nil) {
					return
				}
			}
			if req.NextPageToken = page.GetNextPageToken(); len(req.NextPageToken) == 0 {
				return
			}
		}
	}
}

func (c *Client) listQuery(ctx context.Context, opts *ListOptions) (string, error) {
	if err := c.check(ctx); err != nil {
		return "", err
	}
	var o ListOptions
	if opts != nil {
		o = *opts
	}
	status := "= 'Running'"
	if o.Ended {
		status = "NOT IN ('Running', 'ContinuedAsNew')"
	}
	terms := []string{"WorkflowType = '" + workflowName + "'", "ExecutionStatus " + status}
	for _, attribute := range [][2]string{{AttributeOwner, o.Owner}, {AttributeState, o.State}} {
		switch name, value := attribute[0], attribute[1]; {
		case value == "":
			continue
		case !c.opts.SearchAttributes:
			return "", fmt.Errorf("%w: ListOptions: %s is no search attribute, as Options.SearchAttributes says", sandbox.ErrInvalid, name)
		case !validOwner.MatchString(value):
			return "", fmt.Errorf("%w: ListOptions: %.40q has quotes or control characters, or is too long", sandbox.ErrInvalid, value)
		}
		terms = append(terms, fmt.Sprintf("%s = '%s'", attribute[0], attribute[1]))
	}
	return strings.Join(terms, " AND "), nil
}

func listed(info *workflow.WorkflowExecutionInfo) Listed {
	text := func(name string) (value string) {
		for _, fields := range []map[string]*common.Payload{info.GetSearchAttributes().GetIndexedFields(), info.GetMemo().GetFields()} {
			if value == "" && fields[name] != nil {
				_ = converter.GetDefaultDataConverter().FromPayload(fields[name], &value) // or another has hidden it
			}
		}
		return value
	}
	l := Listed{
		ID: info.GetExecution().GetWorkflowId(), Owner: text(AttributeOwner), Sandbox: text(AttributeSandbox), State: text(AttributeState),
		StartedAt: info.GetStartTime().AsTime(),
	}
	if info.GetCloseTime() != nil {
		l.EndedAt = info.GetCloseTime().AsTime()
	}
	return l
}

// Remove deletes what a session has left that has ended, as by a destroy that keeps it: its
// sandbox, and what the store has of it. Temporal need not know the session any more: whoever
// may call this may do so for any ID. It needs Options.Sandbox.
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
	sb, err := c.opts.Sandbox.Get(ctx, cmp.Or(listed(info).Sandbox, durable.DefaultName(id)), &sandbox.GetOptions{NoResume: true})
	if err == nil && durable.WorkflowOf(sb.Info()) == id {
		err = sb.Delete(ctx, nil)
	}
	if gone(err) {
		err = nil
	}
	return errors.Join(err, c.archive.clear(ctx, id))
}
