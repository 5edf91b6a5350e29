package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Nullable is a field that can be left alone, cleared or set. The zero value
// leaves it alone.
type Nullable[T any] struct {
	value T
	state nullableState
}

type nullableState uint8

const (
	leave nullableState = iota
	clearIt
	setIt
)

// Set returns a Nullable that sets the field to v.
func Set[T any](v T) Nullable[T] { return Nullable[T]{value: v, state: setIt} }

// Clear returns a Nullable that clears the field.
func Clear[T any]() Nullable[T] { return Nullable[T]{state: clearIt} }

// IsZero reports whether the field is left alone.
func (n Nullable[T]) IsZero() bool { return n.state == leave }

// Get returns the value and whether there is one.
func (n Nullable[T]) Get() (T, bool) { return n.value, n.state == setIt }

// MarshalJSON writes null or the value.
func (n Nullable[T]) MarshalJSON() ([]byte, error) {
	if n.state != setIt {
		return []byte("null"), nil
	}
	return json.Marshal(n.value)
}

// UpdateOptions names the fields to change. Those that are zero or nil are left
// as they are.
type UpdateOptions struct {
	// Persistent says whether the files outlive a session.
	Persistent *bool
	// VCPUs is the size from the next session on, with 2048 MB of memory each.
	VCPUs int
	// Timeout is how long sessions run. A longer one also extends the running
	// session.
	Timeout time.Duration
	// NetworkPolicy restricts what the sandbox can reach, at once and from now
	// on.
	NetworkPolicy *NetworkPolicy
	// Tags replaces the tags; an empty map that is not nil clears them.
	Tags map[string]string
	// Ports replaces the exposed ports; an empty list that is not nil exposes
	// none.
	Ports []int
	// SnapshotExpiration is how long snapshots are kept from now on; zero means
	// for ever.
	SnapshotExpiration *time.Duration
	// KeepLastSnapshots sets, or with [Clear] removes, the retention policy.
	KeepLastSnapshots Nullable[KeepLastSnapshots]
	// CurrentSnapshotID is the snapshot that the next session starts from: an
	// older one rolls the sandbox back.
	CurrentSnapshotID string
}

type updateBody struct {
	Persistent         *bool                            `json:"persistent,omitempty"`
	Resources          *resources                       `json:"resources,omitempty"`
	Timeout            wire.Duration                    `json:"timeout,omitzero"`
	NetworkPolicy      any                              `json:"networkPolicy,omitempty"`
	Tags               map[string]string                `json:"tags,omitzero"`
	Ports              []int                            `json:"ports,omitzero"`
	SnapshotExpiration *wire.Duration                   `json:"snapshotExpiration,omitempty"`
	KeepLastSnapshots  Nullable[wire.KeepLastSnapshots] `json:"keepLastSnapshots,omitzero"`
	CurrentSnapshotID  string                           `json:"currentSnapshotId,omitempty"`
}

func (o *UpdateOptions) body() (*updateBody, error) {
	if o.VCPUs < 0 {
		return nil, invalid("VCPUs", "%d is negative", o.VCPUs)
	}
	keep, haveKeep := o.KeepLastSnapshots.Get()
	if haveKeep {
		if err := keep.check("KeepLastSnapshots"); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(
		checkPorts("Ports", o.Ports), checkDuration("Timeout", o.Timeout),
		checkOptionalDuration("SnapshotExpiration", o.SnapshotExpiration),
	); err != nil {
		return nil, err
	}
	b := &updateBody{
		Persistent: o.Persistent, Timeout: wire.Duration(o.Timeout), Tags: o.Tags, Ports: o.Ports,
		SnapshotExpiration: wire.DurationPtr(o.SnapshotExpiration), CurrentSnapshotID: o.CurrentSnapshotID,
	}
	if o.VCPUs > 0 {
		b.Resources = &resources{VCPUs: o.VCPUs, Memory: 2048 * o.VCPUs}
	}
	switch {
	case haveKeep:
		b.KeepLastSnapshots = Set(*keep.toWire())
	case !o.KeepLastSnapshots.IsZero():
		b.KeepLastSnapshots = Clear[wire.KeepLastSnapshots]()
	}
	if o.NetworkPolicy != nil {
		var err error
		if b.NetworkPolicy, err = o.NetworkPolicy.toWire(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Update changes the sandbox's settings. It does not start a stopped sandbox.
// Where the running session is concerned too (a longer timeout, a network
// policy), the change is made there as well, unless the session is on its way
// out.
func (s *Sandbox) Update(ctx context.Context, opts *UpdateOptions) error {
	var o UpdateOptions
	if opts != nil {
		o = *opts
	}
	body, err := o.body()
	if err != nil {
		return err
	}
	c, err := s.client()
	if err != nil {
		return err
	}
	var answer wire.UpdateAnswer
	if err := c.do(ctx, &api.Request{
		Op: api.UpdateSandbox, Path: []string{s.Name()}, Query: projectQuery(s.st.project), Body: body,
	}, &answer); err != nil {
		return err
	}
	s.st.mu.Lock()
	s.st.setInfo(answer.Sandbox)
	s.st.mu.Unlock()
	cur := s.CurrentSession()
	if cur == nil {
		return nil
	}
	if o.Ports != nil && answer.Routes != nil {
		cur.setRoutes(answer.Routes)
	}
	if info := cur.wire(); o.Timeout > 0 && Status(info.Status) == StatusRunning {
		if more := o.Timeout - time.Duration(info.Timeout); more > 0 {
			if err := unlessStopped(cur.ExtendTimeout(ctx, more)); err != nil {
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

// unlessStopped tolerates that a session is on its way out: the sandbox's own
// settings hold from the next one on.
func unlessStopped(err error) error {
	if errors.Is(err, ErrStopped) {
		return nil
	}
	return err
}

// UpdateNetworkPolicy replaces the policy that is in force in the running
// session, resuming the sandbox if it is stopped, and returns it as the API
// understood it, with the values of headers redacted. [Sandbox.Update] also
// changes the policy of later sessions.
func (s *Sandbox) UpdateNetworkPolicy(ctx context.Context, policy *NetworkPolicy) (*NetworkPolicy, error) {
	return withResume(ctx, s, func(cur *Session) (*NetworkPolicy, error) { return cur.UpdateNetworkPolicy(ctx, policy) })
}

// ExtendTimeout moves the end of the running session by d, resuming the sandbox
// if it is stopped. How far it can be moved is the plan's to say.
func (s *Sandbox) ExtendTimeout(ctx context.Context, d time.Duration) error {
	return withResumeDo(ctx, s, func(cur *Session) error { return cur.ExtendTimeout(ctx, d) })
}

// Snapshot saves the sandbox's files, resuming it if it is stopped. The running
// session is stopped by it. A nil opts takes the sandbox's default expiration.
func (s *Sandbox) Snapshot(ctx context.Context, opts *SnapshotOptions) (*Snapshot, error) {
	return withResume(ctx, s, func(cur *Session) (*Snapshot, error) { return cur.Snapshot(ctx, opts) })
}

// OpenInteractive opens a terminal service, resuming the sandbox if it is
// stopped, and returns where it is reached. [Sandbox.Shell] gives a ready
// terminal.
func (s *Sandbox) OpenInteractive(ctx context.Context) (*Interactive, error) {
	return withResume(ctx, s, func(cur *Session) (*Interactive, error) { return cur.OpenInteractive(ctx) })
}
