package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// UpdateOptions are the settings to change. Those that are zero or nil are not
// changed; a value that is empty but not nil clears its setting: Env{}, []int{},
// new(""), &KeepLastSnapshots{}. The limits are those of [CreateOptions].
type UpdateOptions struct {
	// Persistent sets whether the files outlive a session.
	Persistent *bool
	// VCPUs is the number of virtual CPUs from the next session on, with 2048
	// MB of memory each.
	VCPUs int
	// Timeout is how long sessions run. A longer timeout also extends the
	// running session.
	Timeout time.Duration
	// NetworkPolicy restricts what the sandbox can reach, in the running
	// session and later ones.
	NetworkPolicy *NetworkPolicy
	// Env replaces the environment of commands from the next session on; a
	// non-nil empty map clears it.
	Env Env
	// Tags replaces the tags; a non-nil empty map clears them.
	Tags map[string]string
	// Ports replaces the exposed ports; a non-nil empty slice exposes none.
	Ports []int
	// Region is where sessions are started from the next one on.
	// FailoverRegions are used when that is not possible; a non-nil empty slice
	// removes them.
	Region          string
	FailoverRegions []string
	// Mounts replaces the mounted drives from the next session on; a non-nil
	// empty map removes them.
	Mounts map[string]Mount
	// NetworkID moves the sandbox to a Secure Compute network from the next
	// session on; a pointer to "" removes it from its network.
	NetworkID *string
	// SnapshotExpiration is how long new snapshots are kept: at least a day, or
	// [Forever].
	SnapshotExpiration time.Duration
	// KeepLastSnapshots replaces the retention policy; a pointer to the zero
	// value removes it.
	KeepLastSnapshots *KeepLastSnapshots
	// CurrentSnapshotID is the snapshot that the next session starts from; an
	// older one rolls the sandbox back.
	CurrentSnapshotID string
	// Extra holds parameters of the API that this version has no field for; see
	// [CreateOptions].
	Extra map[string]any `json:"-" secret:"names"`
}

// Format prints the values that fields point to, but no value of Env.
func (o UpdateOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// Update changes the sandbox's settings, with two requests: the API updates by
// name, so the first one checks that the name still belongs to the handle's
// sandbox. If another one has it by now, nothing is changed and the error matches
// [ErrDeleted]. Update does not start a stopped sandbox.
//
// A longer timeout and a network policy are also applied to
// the running session, unless it is ending. That takes one more request for
// each, and another if the running session is not the one that the handle
// knows. All other settings take effect when the next session starts.
func (s *Sandbox) Update(ctx context.Context, opts *UpdateOptions) error {
	var o UpdateOptions
	if opts != nil {
		o = *opts
	}
	c, err := enter(ctx, s)
	if err != nil {
		return err
	}
	body, err := o.body()
	if err != nil {
		return err
	}
	if err := s.checkIdentity(ctx, c); err != nil {
		return err
	}
	if o.Tags != nil && s.mark() != "" { // OnCreate is running
		body["tags"] = withMark(o.Tags, s.mark())
	}
	resp, err := s.update(ctx, c, body, o.Extra)
	if err != nil {
		return err
	}
	cur := s.CurrentSession()
	if cur == nil {
		return nil
	}
	if id := resp.Sandbox.CurrentSessionID; id != "" && id != cur.ID() && (o.NetworkPolicy != nil || o.Timeout > 0) {
		// Another client has started a session since. The settings must reach
		// the machine that actually runs.
		if err := s.Refresh(ctx); err != nil {
			return err
		}
		cur = s.CurrentSession()
	}
	if o.Ports != nil && resp.Routes != nil {
		cur.setRoutes(resp.Routes)
	}
	if info := cur.wire(); o.Timeout > 0 && Status(info.Status) == StatusRunning {
		if more := o.Timeout - time.Duration(info.Timeout); more > 0 {
			if err := unlessStopped(cur.ExtendTimeout(ctx, max(more, minExtension))); err != nil {
				return err
			}
		}
	}
	if o.NetworkPolicy != nil {
		_, err := cur.UpdateNetworkPolicy(ctx, o.NetworkPolicy)
		return unlessStopped(err)
	}
	return nil
}

// update sends one update and stores what the response says of the sandbox.
func (s *Sandbox) update(ctx context.Context, c *Client, b body, extra map[string]any) (*wire.UpdateResponse, error) {
	var resp wire.UpdateResponse
	if err := c.do(ctx, &api.Request{
		Op: api.UpdateSandbox, Path: []string{s.Name()}, Query: projectQuery(s.st.project), Body: b, Extra: extra,
	}, &resp); err != nil {
		return nil, err
	}
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	return &resp, s.st.setInfo(resp.Sandbox)
}

// unlessStopped ignores that a session is ending: the sandbox's own settings
// apply from the next one on.
func unlessStopped(err error) error {
	if errors.Is(err, ErrStopped) {
		return nil
	}
	return err
}

// UpdateNetworkPolicy replaces the policy in effect, resuming the sandbox if it
// is stopped, and returns it as the API understood it, with redacted header
// values. The platform keeps the policy for later sessions too: what is opened
// for one task stays open until it is closed. [Sandbox.Update] sets a policy
// without starting the sandbox.
func (s *Sandbox) UpdateNetworkPolicy(ctx context.Context, policy *NetworkPolicy) (*NetworkPolicy, error) {
	return withResume(ctx, s, func(cur *Session) (*NetworkPolicy, error) { return cur.UpdateNetworkPolicy(ctx, policy) })
}

// minExtension is the shortest extension that the API accepts.
const minExtension = time.Second

// ExtendTimeout moves the end of the running session by d, resuming the sandbox
// if it is stopped. The platform refuses less than a second, and the plan limits
// how far the end can be moved.
func (s *Sandbox) ExtendTimeout(ctx context.Context, d time.Duration) error {
	return withResumeDo(ctx, s, func(cur *Session) error { return cur.ExtendTimeout(ctx, d) })
}
