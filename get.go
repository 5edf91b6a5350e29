package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/observe"
)

// GetOptions are the options of [Client.Get].
type GetOptions struct {
	// NoResume returns a stopped sandbox without starting it. By default it is
	// started, so that a sandbox whose files are gone is noticed at once.
	NoResume bool
	// OnResume is called when this call, or a later one on the returned handle,
	// starts a session of a stopped sandbox, before that call continues. Use it to
	// start what does not outlive a session, such as servers. See [Hook].
	OnResume Hook
	// Extra holds parameters of the API that this version has no field for, by
	// their names in the query. The values are never shown.
	Extra map[string]any `secret:"names"`
}

// Format prints the options without values that may be secret, for every verb.
func (o GetOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// Get returns the sandbox with the given name and starts it if it is stopped,
// unless [GetOptions].NoResume is set, as whatever only looks should set it. It
// makes one request, and starts a machine if it resumes the sandbox.
//
// If the sandbox does not exist, the error matches [ErrNotFound]. If it would have
// to be started but its files are gone, the error matches
// [ErrSnapshotNotFound]. A sandbox that is listed but reported as "has no
// latest sandbox" also matches ErrNotFound: it never started, and must be
// deleted before its name can be used again.
func (c *Client) Get(ctx context.Context, name string, opts *GetOptions) (*Sandbox, error) {
	sb, err := c.lookUp(ctx, name, opts)
	if err != nil || opts != nil && opts.NoResume {
		return sb, err
	}
	if err := sb.runResumeHook(ctx); err != nil {
		return nil, err
	}
	return sb, nil
}

// lookUp is Get without the hooks.
func (c *Client) lookUp(ctx context.Context, name string, opts *GetOptions) (*Sandbox, error) {
	var o GetOptions
	if opts != nil {
		o = *opts
	}
	if _, err := enter(ctx, c); err != nil {
		return nil, err
	}
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	if err := checkExtra("Extra", o.Extra, map[string]string{"resume": "NoResume", "projectId": "the client", "teamId": "the client"}); err != nil {
		return nil, err
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	resp, err := c.getSandbox(ctx, name, project, !o.NoResume, o.Extra)
	if err != nil {
		return nil, err
	}
	sb := newSandbox(c, project, resp, o.OnResume)
	if resp.Resumed {
		c.tell(ctx, observe.Event{Kind: observe.Resume, Sandbox: sb.Name(), Session: resp.Session.ID, Cause: causeGet, Start: start})
	}
	return sb, nil
}
