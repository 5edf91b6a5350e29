package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/observe"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// CreateOptions describes a new sandbox. The zero value leaves the name, size
// and timeout to the platform and uses its universal image. Values that the API
// accepts on no plan are refused with [ErrInvalid] before any request.
type CreateOptions struct {
	// Name identifies the sandbox within the project: at most 128 letters,
	// digits, - and _. If empty, the API chooses one. Choosing a name is safer:
	// if the response is lost, [GetOrCreate] finds the sandbox by its name.
	Name string
	// Source is where the files come from: a [GitSource], [TarballSource] or
	// [SnapshotSource]. Nil means the image's own files.
	Source Source
	// Ports are exposed, each at its own address; see [Sandbox.URL]. At most
	// 15 ports from 1024 up are allowed, of which the service has been observed
	// to accept 14.
	Ports []int
	// Timeout is how long a session runs before it is stopped: at least a
	// second, at most a day or less, depending on the plan. Zero means the
	// platform's default of five minutes.
	Timeout time.Duration
	// VCPUs is the number of virtual CPUs, 1 or an even number up to the plan's
	// limit, with 2048 MB of memory each. Zero means the platform's default of
	// 2.
	VCPUs int
	// Image is the image of the sandbox: one of the platform's, which are
	// vercel/sandbox/ and universal, node:26, node:24, node:22, python:3.14,
	// ubuntu or arch, or one in the project's registry. In the platform's the
	// user is ubuntu, with sudo, and the working directory is /vercel. Empty
	// means universal, or that of the Source.
	Image string
	// Runtime, such as "node24", is the predecessor of Image, deprecated
	// by the platform. It can't be combined with Image.
	Runtime string
	// WaitForImage retries, for as long as the context allows, while the image
	// has been pushed but not prepared, which takes minutes. Otherwise the
	// error matches [ErrImageNotReady].
	WaitForImage bool
	// Region is where sessions are started; empty means the platform's default,
	// "iad1". FailoverRegions are used when that is not
	// possible. Not every plan supports them.
	Region          string
	FailoverRegions []string
	// NetworkID is the ID of the Secure Compute network that the sandbox joins.
	NetworkID string
	// Mounts maps directories of the sandbox to drives, at most 4; see [Drive].
	// Paths must be absolute and must not overlap. The drives must be in the
	// sandbox's region.
	Mounts map[string]Mount
	// Credentials are those of the team that the sandbox may use without seeing
	// them. They can be requested only when a sandbox is created:
	// [Client.Fork] refuses them, and so does [Client.GetOrCreate] with a name,
	// since an existing sandbox may have been created without.
	Credentials *Credentials
	// NetworkPolicy restricts what the sandbox can reach. Nil allows
	// everything.
	NetworkPolicy *NetworkPolicy
	// Env is the environment of every command, at most 4,096 bytes in total.
	// Values are never shown in errors or logs.
	Env Env
	// Tags are at most 5 key-value pairs that [List] can filter by.
	Tags map[string]string
	// Ephemeral is set for a sandbox whose files need not outlive a session.
	// Otherwise they are saved when a session ends.
	Ephemeral bool
	// SnapshotExpiration is how long snapshots are kept: at least a day, or
	// [Forever]. Zero means the platform's default of 30 days after the last
	// use.
	SnapshotExpiration time.Duration
	// KeepLastSnapshots is the retention policy of snapshots. Nil keeps all.
	KeepLastSnapshots *KeepLastSnapshots
	// OnCreate is called by [Client.Create] and [Client.GetOrCreate] to set up
	// a sandbox that was just created. If it fails, the sandbox is deleted and
	// the error returned, so that the next call starts over. It is called again
	// for the same name if the sandbox's files were lost. See [Hook].
	OnCreate Hook
	// OnResume is called for each session but the first, before it is used; see
	// [GetOptions].
	OnResume Hook
	// NoResume lets [Client.GetOrCreate] return an existing sandbox that is
	// stopped without starting it. The other methods ignore it.
	NoResume bool
	// RequireSaved lets [Client.Fork] look at the source first, which costs a
	// request, and fail with an error that matches [ErrNotSaved] unless the source
	// has stopped with its files saved. The other methods ignore it.
	RequireSaved bool
	// Private holds parameters that are not part of the documented API. Their
	// names begin with two underscores, and they are sent as they are.
	Private map[string]any `secret:"names"`
}

// Format prints the options without values that may be secret, for every verb.
func (o CreateOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// createBody is the request body of create and fork. It contains Env, so it is
// never logged or put into an error.
type createBody struct {
	ProjectID          string                  `json:"projectId,omitempty"`
	Ports              []int                   `json:"ports,omitzero"`
	Source             any                     `json:"source,omitempty"`
	Timeout            wire.Duration           `json:"timeout,omitzero"`
	Resources          *resources              `json:"resources,omitempty"`
	Runtime            string                  `json:"runtime,omitempty"`
	Image              string                  `json:"image,omitempty"`
	Name               string                  `json:"name,omitempty"`
	Persistent         *bool                   `json:"persistent,omitempty"`
	NetworkPolicy      json.RawMessage         `json:"networkPolicy,omitempty"`
	Env                map[string]string       `json:"env,omitzero"`
	Tags               map[string]string       `json:"tags,omitzero"`
	SnapshotExpiration *wire.Duration          `json:"snapshotExpiration,omitempty"`
	KeepLastSnapshots  *wire.KeepLastSnapshots `json:"keepLastSnapshots,omitempty"`
	Region             string                  `json:"region,omitempty"`
	FailoverRegions    []string                `json:"failoverRegions,omitzero"`
	NetworkID          string                  `json:"networkId,omitempty"`
	Mounts             map[string]wire.Mount   `json:"mounts,omitzero"`
	Credentials        any                     `json:"credentials,omitempty"`
}

type resources struct {
	VCPUs  int `json:"vcpus"`
	Memory int `json:"memory,omitempty"`
}

func (o *CreateOptions) body() (*createBody, error) {
	if o.Name != "" {
		if err := checkNewName("Name", o.Name); err != nil {
			return nil, err
		}
	}
	if o.Runtime != "" && o.Image != "" {
		return nil, invalid("Image", "can't be combined with Runtime")
	}
	if err := errors.Join(
		checkVCPUs("VCPUs", o.VCPUs), checkPorts("Ports", o.Ports), checkTimeout("Timeout", o.Timeout),
		checkSandboxEnv("Env", o.Env), checkTags("Tags", o.Tags), checkRegions(o.Region, o.FailoverRegions),
		checkExpiration("SnapshotExpiration", o.SnapshotExpiration), o.KeepLastSnapshots.check("KeepLastSnapshots"),
		checkPrivate(o.Private),
	); err != nil {
		return nil, err
	}
	b := &createBody{
		Ports: o.Ports, Timeout: wire.Duration(o.Timeout), Runtime: o.Runtime, Image: o.Image, Name: o.Name,
		Env: o.Env, Tags: o.Tags, SnapshotExpiration: expirationToWire(o.SnapshotExpiration),
		KeepLastSnapshots: o.KeepLastSnapshots.toWire(), Region: o.Region, FailoverRegions: o.FailoverRegions, NetworkID: o.NetworkID,
	}
	if o.VCPUs > 0 {
		b.Resources = &resources{VCPUs: o.VCPUs}
	}
	if o.Ephemeral {
		b.Persistent = new(false)
	}
	var err error
	if b.Mounts, err = mountsToWire(o.Mounts, o.Region); err != nil {
		return nil, err
	}
	if o.Credentials != nil {
		if b.Credentials, err = o.Credentials.toWire(); err != nil {
			return nil, err
		}
	}
	if o.Source != nil {
		if v := reflect.ValueOf(o.Source); v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, invalid("Source", "is a nil pointer")
		}
		if b.Source, err = o.Source.source(); err != nil {
			return nil, err
		}
	}
	if o.NetworkPolicy != nil {
		if b.NetworkPolicy, err = o.NetworkPolicy.toWire(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Create creates a sandbox and starts its first session. A nil opts means the
// platform's defaults. It makes one request and starts a machine, which runs,
// and is billed, until it is stopped or times out.
//
// If the response is lost, the error matches [ErrOutcomeUnknown]: the sandbox
// may exist. If it was given a name, [Client.GetOrCreate] finds out.
func (c *Client) Create(ctx context.Context, opts *CreateOptions) (*Sandbox, error) {
	var o CreateOptions
	if opts != nil {
		o = *opts
	}
	o = c.withHooks(o)
	sb, err := c.create(ctx, &o)
	if err != nil {
		return nil, err
	}
	return sb.setUp(ctx, o.OnCreate)
}

// withHooks returns options with the hooks of the client where they have none.
func (c *Client) withHooks(o CreateOptions) CreateOptions {
	if c == nil || c.hooks == nil || o.OnCreate != nil && o.OnResume != nil {
		return o
	}
	onCreate, onResume := c.hooks(Info{Name: o.Name, Tags: o.Tags})
	if o.OnCreate == nil {
		o.OnCreate = onCreate
	}
	if o.OnResume == nil {
		o.OnResume = onResume
	}
	return o
}

// create creates a sandbox and calls no hook.
func (c *Client) create(ctx context.Context, o *CreateOptions) (*Sandbox, error) {
	body, err := o.body()
	if err != nil {
		return nil, err
	}
	if body.Ports == nil {
		body.Ports = []int{}
	}
	if body.ProjectID, err = c.projectID(ctx); err != nil {
		return nil, err
	}
	project := body.ProjectID
	full, err := withPrivate(body, o.Private)
	if err != nil {
		return nil, err
	}
	op := api.CreateSandbox
	if o.Runtime != "" {
		op = api.CreateRuntime
	}
	if s, ok := o.Source.(interface{ secrets() []string }); ok {
		for _, secret := range s.secrets() {
			c.secrets.Add(secret) // since the error of a failed clone may quote it
		}
	}
	var resp wire.SandboxResponse
	if err := c.doWithImage(ctx, o.WaitForImage, &api.Request{Op: op, Body: full, New: o.Name}, &resp); err != nil {
		return nil, o.missing(err)
	}
	return newSandbox(c, project, &resp, o.OnResume), nil
}

// missing adds to the error of a create what of the options there is not.
func (o *CreateOptions) missing(err error) error {
	e, ok := errors.AsType[*APIError](err)
	if !ok || !errors.Is(e, ErrNotFound) {
		return err
	}
	if from, ok := o.Source.(SnapshotSource); ok {
		e.hint = fmt.Sprintf("the source is the snapshot %q", from.SnapshotID)
	} else if o.Image != "" {
		e.hint = fmt.Sprintf("the image is %q; the platform's own begin with vercel/sandbox/, such as %s", o.Image, defaultImage)
	}
	return err
}

// Fork creates a sandbox with the files of another's current snapshot, which must
// be in the fork's region, and starts its first session. Stop a running source
// first: changes since the snapshot are not included. If the source was never
// saved, the fork has its image or runtime but none of its files, and a warning is
// logged. [CreateOptions].RequireSaved makes both an error.
//
// Options that are nil or zero are copied from the source; a non-nil empty slice
// or map clears what the source has. Drives are not copied, and one that a running
// source has mounted read-write can only be mounted as a snapshot. Source, Runtime,
// Credentials and OnCreate can't be set.
//
// The error matches [ErrNotFound] if the source does not exist, [ErrConflict] if
// the fork's name is taken, and [ErrOutcomeUnknown] if the response was lost
// and the fork may exist.
func (c *Client) Fork(ctx context.Context, source string, opts *CreateOptions) (*Sandbox, error) {
	var o CreateOptions
	if opts != nil {
		o = *opts
	}
	if err := checkName("source", source); err != nil {
		return nil, err
	}
	switch {
	case o.Source != nil:
		return nil, invalid("Source", "a fork has the files of its source")
	case o.Runtime != "":
		return nil, invalid("Runtime", "a fork can be given another Image only")
	case o.Credentials != nil:
		return nil, invalid("Credentials", "can only be requested for a new sandbox, not for a fork")
	case o.OnCreate != nil:
		return nil, invalid("OnCreate", "a fork has been set up with its source")
	}
	body, err := o.body()
	if err != nil {
		return nil, err
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, err
	}
	full, err := withPrivate(body, o.Private)
	if err != nil {
		return nil, err
	}
	if o.RequireSaved {
		if err := c.checkSaved(ctx, source); err != nil {
			return nil, err
		}
	}
	var resp wire.SandboxResponse
	req := &api.Request{Op: api.ForkSandbox, Path: []string{source}, New: o.Name, Query: projectQuery(project), Body: full}
	if err := c.doWithImage(ctx, o.WaitForImage, req, &resp); err != nil {
		return nil, err
	}
	fork := newSandbox(c, project, &resp, o.OnResume)
	if resp.Session.SourceSnapshotID == "" && o.Image == "" {
		ctx, e := c.seam().Begin(ctx, observe.Event{
			Kind: observe.EmptyFork, Operation: api.ForkSandbox.Name, Sandbox: fork.Name(), Session: resp.Session.ID,
			Cause: "never saved", CauseErr: fmt.Errorf("the source %q was never saved", source),
		})
		c.endEvent(ctx, e, nil)
	}
	return fork, nil
}

// checkSaved looks whether a sandbox has stopped with its files saved.
func (c *Client) checkSaved(ctx context.Context, name string) error {
	sb, err := c.Get(ctx, name, &GetOptions{NoResume: true})
	if err != nil {
		return err
	}
	switch status := sb.Status(); {
	case sb.Info().CurrentSnapshotID == "":
		return fmt.Errorf("sandbox: %w: %q has no snapshot, so that a fork would have none of its files: call Stop or Snapshot first", ErrNotSaved, name)
	case status != StatusStopped:
		return fmt.Errorf("sandbox: %w: %q is %s, and a fork would lack what it has changed since its last snapshot: call Stop first", ErrNotSaved, name, status)
	}
	return nil
}
