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

// ForkOptions are what a fork has otherwise than its source. What is zero or nil
// is copied; a slice or map that is empty but not nil clears what the source has.
// The limits are those of [CreateOptions].
type ForkOptions struct {
	// Name identifies the fork. If empty, the API chooses one.
	Name string
	// Ports are exposed, each at its own address.
	Ports []int
	// Timeout is how long a session runs before it is stopped.
	Timeout time.Duration
	// VCPUs is the number of virtual CPUs, with 2048 MB of memory each.
	VCPUs int
	// Image is the image of the fork, if not that of the source.
	Image string
	// WaitForImage retries, for as long as the context allows, while the image
	// has been pushed but not prepared, as in [CreateOptions].
	WaitForImage bool
	// Region is where sessions are started, and has to be that of the source's
	// snapshot. FailoverRegions are used when that is not possible.
	Region          string
	FailoverRegions []string
	// NetworkID is the ID of the Secure Compute network that the fork joins.
	NetworkID string
	// Mounts maps directories of the fork to drives. The source's are not copied.
	Mounts map[string]Mount
	// NetworkPolicy restricts what the fork can reach.
	NetworkPolicy *NetworkPolicy
	// Env is the environment of every command. Values are never shown in errors
	// or logs.
	Env Env
	// Tags are key-value pairs that [List] can filter by.
	Tags map[string]string
	// Persistent sets whether the files outlive a session.
	Persistent *bool
	// SnapshotExpiration is how long snapshots are kept: at least a day, or
	// [Forever].
	SnapshotExpiration time.Duration
	// KeepLastSnapshots is the retention policy of snapshots.
	KeepLastSnapshots *KeepLastSnapshots
	// OnResume is called for each session but the first, before it is used; see
	// [GetOptions].
	OnResume Hook
	// AllowEmpty returns a fork that has none of the source's files, because the
	// source was never saved. Otherwise Fork deletes it and returns an error that
	// matches [ErrNotSaved].
	AllowEmpty bool
	// Extra holds parameters of the API that this version has no field for; see
	// [CreateOptions].
	Extra map[string]any `secret:"names"`
}

// Format prints the options without values that may be secret, for every verb.
func (o ForkOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// Fork creates a sandbox with the files of another's current snapshot, which must
// be in the fork's region, and starts its first session. Stop a running source
// first: changes since the snapshot are not included. If the source was never
// saved, Fork deletes the fork, which has none of its files, and the error matches
// [ErrNotSaved], unless [ForkOptions].AllowEmpty or Image is set. The deletion may
// go on for ten seconds after ctx has ended.
//
// Drives are not copied, and one that a running source has mounted read-write can
// only be mounted as a snapshot.
//
// The error matches [ErrNotFound] if the source does not exist, [ErrConflict] if
// the fork's name is taken, and [ErrOutcomeUnknown] if the response was lost
// and the fork may exist.
func (c *Client) Fork(ctx context.Context, source string, opts *ForkOptions) (*Sandbox, error) {
	var o ForkOptions
	if opts != nil {
		o = *opts
	}
	if _, err := enter(ctx, c); err != nil {
		return nil, err
	}
	if err := checkName("source", source); err != nil {
		return nil, err
	}
	body, err := o.body()
	if err != nil {
		return nil, err
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, err
	}
	var resp wire.SandboxResponse
	req := &api.Request{Op: api.ForkSandbox, Path: []string{source}, New: o.Name, Query: projectQuery(project), Body: body, Extra: o.Extra}
	if err := c.doWithImage(ctx, o.WaitForImage, req, &resp); err != nil {
		return nil, err
	}
	fork := newSandbox(c, project, &resp, o.OnResume)
	if resp.Session.SourceSnapshotID == "" && o.Image == "" && !o.AllowEmpty {
		return nil, fork.notSaved(ctx, source)
	}
	return fork, nil
}

// notSaved deletes a fork that has none of its source's files, and returns the error
// of Fork.
func (s *Sandbox) notSaved(ctx context.Context, source string) error {
	err := fmt.Errorf("sandbox: %w: %q has no snapshot, so a fork would have none of its files: call Stop or Snapshot first, or set AllowEmpty", ErrNotSaved, source)
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeAwayTime)
	defer cancel()
	if deleteErr := s.Delete(late, nil); deleteErr != nil && !errors.Is(deleteErr, ErrNotFound) {
		err = fmt.Errorf("%w; the empty fork %q remains, since deleting it failed: %w", err, s.Name(), deleteErr)
	}
	return err
}
