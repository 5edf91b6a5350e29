package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// CreateOptions describes a new sandbox. The zero value leaves the name, size and timeout
// to the platform and uses its universal image. A value that the API would refuse on every
// plan is refused before any request, with [ErrInvalid].
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
	// Image is the image of the sandbox: one in the project's registry, or one of the
	// platform's, whose names are vercel/sandbox/ followed by universal, node:26, node:24,
	// node:22, python:3.14, ubuntu or arch. The platform's images have the user ubuntu, with
	// sudo, and the working directory /vercel. Empty means universal, or the image of the
	// Source.
	Image string
	// Runtime, such as "node24", is the predecessor of Image, deprecated
	// by the platform. It can't be combined with Image.
	Runtime string
	// Architecture is the CPU architecture, "amd64" or "arm64". It must be that
	// of the Source. Empty means that of the Source or of the Image, and amd64
	// if an image has both. Some plans, and every Runtime, lack arm64.
	Architecture string
	// WaitForImage waits until a pushed image is prepared, which takes minutes,
	// or until the context ends. Without it the error matches
	// [ErrImageNotReady].
	WaitForImage bool
	// Region is where sessions are started; empty means the project's default, or
	// else "iad1". FailoverRegions are used if a session can't start there. Not
	// every plan supports them.
	Region          string
	FailoverRegions []string
	// NetworkID is the ID of the Secure Compute network that the sandbox joins.
	NetworkID string
	// Mounts maps directories of the sandbox to drives, at most 4; see [Drive].
	// Paths must be absolute and must not overlap. The drives must be in the
	// sandbox's region.
	Mounts map[string]Mount
	// Credentials are the team's credentials that the sandbox may use without seeing
	// them. They take effect only when a sandbox is created: a sandbox that
	// [Client.GetOrCreate] finds keeps those of its creation.
	Credentials *Credentials
	// NetworkPolicy restricts what the sandbox can reach. Nil allows
	// everything.
	NetworkPolicy *NetworkPolicy
	// Env is the environment of every command, at most 4,096 bytes in total.
	// Values are never shown in errors or logs.
	Env Env
	// Tags are key-value pairs that [List] can filter by: at most 5, or 4 if
	// [Client.GetOrCreate] has an OnCreate, which takes a tag while it runs.
	Tags map[string]string
	// Ephemeral is set for a sandbox whose files need not outlive a session.
	// Otherwise they are saved when a session ends.
	Ephemeral bool
	// SnapshotExpiration is how long snapshots are kept: at least a day, or
	// [Forever]. Zero means the platform's default of 30 days after the last use.
	// Vercel's command line in Go uses another version of the API, which keeps one
	// snapshot for 7 days. For the same effect, set 7*24*time.Hour here and a Count
	// of 1 in KeepLastSnapshots.
	SnapshotExpiration time.Duration
	// KeepLastSnapshots is the retention policy of snapshots. Nil keeps all.
	KeepLastSnapshots *KeepLastSnapshots
	// OnCreate is called by [Client.Create] and [Client.GetOrCreate] to set up
	// a sandbox that was just created. If it fails, the sandbox is deleted and
	// the error returned, so that the next call starts over. It is called again
	// for the same name if the sandbox's files were lost. See [Hook].
	OnCreate Hook
	// OnResume is called when a call on the returned handle resumes the sandbox;
	// see [GetOptions].
	OnResume Hook
	// NoResume keeps [Client.GetOrCreate] from starting an existing sandbox
	// that is stopped. A sandbox that was just created runs.
	NoResume bool
	// Extra holds parameters of the API that this version has no field for, by
	// their names in the request. The values are sent as they are, and never
	// shown.
	Extra map[string]any `secret:"names"`
}

// Format prints the options without values that may be secret, for every verb.
func (o CreateOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// Create creates a sandbox and starts its first session. A nil opts means the
// platform's defaults. It makes one request and starts a machine, which runs,
// and is billed, until it is stopped or times out.
//
// If the response is lost, the error matches [ErrOutcomeUnknown]: the sandbox
// may exist. If it was given a name, [Client.GetOrCreate] finds out.
func (c *Client) Create(ctx context.Context, opts *CreateOptions) (*Sandbox, error) {
	o := orZero(opts)
	if _, err := enter(ctx, c); err != nil {
		return nil, err
	}
	o = c.withHooks(o)
	sb, err := c.create(ctx, &o)
	if err == nil && o.OnCreate != nil {
		err = (&setup{sb: sb, creator: true}).run(ctx, o.OnCreate)
	}
	if err != nil {
		return nil, err
	}
	return sb, nil
}

// withHooks returns the options. If they lack a hook, the client's is used.
func (c *Client) withHooks(o CreateOptions) CreateOptions {
	o.OnCreate, o.OnResume = c.hooksOr(o.OnCreate, o.OnResume, func() Info { return Info{Name: o.Name, Tags: o.Tags} })
	return o
}

// create creates a sandbox and calls no hook.
func (c *Client) create(ctx context.Context, o *CreateOptions) (*Sandbox, error) {
	body, err := o.body()
	if err != nil {
		return nil, err
	}
	if o.Ports == nil {
		body["ports"] = []int{}
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, err
	}
	if project != "" {
		body["projectId"] = project
	}
	op := api.CreateSandbox
	if o.Runtime != "" {
		op = api.CreateRuntime
	}
	var resp wire.SandboxResponse
	if err := c.doWithImage(ctx, o.WaitForImage, &api.Request{Op: op, Body: body, New: o.Name, Extra: o.Extra}, &resp); err != nil {
		return nil, o.withHint(err)
	}
	return newSandbox(c, project, &resp, o.OnResume), nil
}

// withHint adds the name of the snapshot or image in the options to an error that
// reports a missing object.
func (o *CreateOptions) withHint(err error) error {
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

// defaultImage is the platform's image for sandboxes that name neither an image
// nor a runtime.
const defaultImage = "vercel/sandbox/universal"

// imageInterval is the pause between checks whether an image is ready.
const imageInterval = 5 * time.Second

// doWithImage performs a create or a fork. If wait is set it retries while the
// image is not ready.
func (c *Client) doWithImage(ctx context.Context, wait bool, req *api.Request, out any) error {
	for {
		err := c.do(ctx, req, out)
		e, ok := errors.AsType[*APIError](err)
		if !wait || !ok || !errors.Is(err, ErrImageNotReady) {
			return err
		}
		if pauseErr := api.Pause(ctx, max(imageInterval, e.RetryAfter)); pauseErr != nil {
			return fmt.Errorf("%w; waiting for it: %w", err, pauseErr)
		}
	}
}

// Credentials names credentials of the team that a sandbox may use. They never enter the
// sandbox: the firewall adds them to outgoing requests, each only for its own hosts, so
// that the sandbox's programs can use but not read them. A network policy has to allow
// the hosts.
type Credentials struct {
	// NPM lets the sandbox install packages from the registries for which the
	// team has a shared environment variable NPM_TOKEN or NPM_RC.
	NPM bool
	// Extra are credentials that this version has no field for, by their names in
	// the request. The values are sent as they are, and never shown.
	Extra map[string]any `json:"-" secret:"names"`
}

// Format prints the credentials without the values of Extra, for every verb.
func (c Credentials) Format(f fmt.State, verb rune) { redact.Struct(f, verb, c) }

func credentialsToWire(field string, c *Credentials) (map[string]any, error) {
	if err := checkExtra(field+".Extra", c.Extra, map[string]string{"npm": "NPM"}); err != nil {
		return nil, err
	}
	all := maps.Clone(c.Extra)
	if all == nil {
		all = map[string]any{}
	}
	if c.NPM {
		all["npm"] = true
	}
	return all, nil
}

// Env holds environment variables. A map literal can be assigned to it. Its
// values are never printed, logged or marshaled, only the names.
type Env map[string]string

// Format prints the names, for every verb.
func (e Env) Format(f fmt.State, verb rune) {
	redact.String(f, verb, "["+strings.Join(slices.Sorted(maps.Keys(e)), " ")+"]")
}

// MarshalJSON encodes the names with redacted values.
func (e Env) MarshalJSON() ([]byte, error) {
	shown := make(map[string]string, len(e))
	for k := range e {
		shown[k] = redact.Mark
	}
	return json.Marshal(shown)
}

// checkExtra refuses parameters that can't be sent, and parameters that have a field of
// their own: known maps those to the names of the fields.
func checkExtra(at string, extra map[string]any, known map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if field, ok := known[name]; ok {
			return invalid(at, "%q is set by %s", name, field)
		}
		if _, err := json.Marshal(extra[name]); err != nil {
			return invalid(at, "%q: %v", name, err)
		}
	}
	return nil
}

// undocumented returns the parameters whose names begin with two underscores: they are not
// part of the documented API. Like the official client, GetOrCreate sends them with the
// request that looks for the sandbox, too.
func undocumented(extra map[string]any) map[string]any {
	extra = maps.Clone(extra)
	maps.DeleteFunc(extra, func(name string, _ any) bool { return !strings.HasPrefix(name, "__") })
	return extra
}

// queryTexts returns the values of an extra parameter in a query: one for each element of
// a list, and none for null.
func queryTexts(v any) ([]string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if json.Unmarshal(data, &list) != nil {
		list = []json.RawMessage{data}
	}
	var texts []string
	for _, raw := range list {
		var text *string
		if json.Unmarshal(raw, &text) != nil {
			text = new(string(raw))
		}
		if text != nil {
			texts = append(texts, *text)
		}
	}
	return texts, nil
}

// ForkOptions describes how a fork differs from its source. A field that is zero or nil
// is copied from the source. A slice or map that is empty but not nil clears the source's
// value. The limits are those of [CreateOptions].
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
	// WaitForImage waits until a pushed image is prepared, as in [CreateOptions].
	WaitForImage bool
	// Region is where sessions are started, and has to be that of the source's snapshot.
	// FailoverRegions are used if a session can't start there.
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
	// AllowEmpty accepts a fork that lacks the source's files because the source
	// was never saved. Otherwise Fork deletes it and returns an error that
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
// first: changes since the snapshot are not included. A fork lacks the files of a
// source that was never saved. Fork then deletes it, and the error matches
// [ErrNotSaved], unless [ForkOptions].AllowEmpty or Image is set. The deletion may
// continue for ten seconds after ctx has ended.
//
// Drives are not copied. A drive that a running source has mounted read-write can
// only be mounted as a snapshot.
//
// The error matches [ErrNotFound] if the source does not exist, [ErrConflict] if
// the fork's name is taken, and [ErrOutcomeUnknown] if the response was lost
// and the fork may exist.
func (c *Client) Fork(ctx context.Context, source string, opts *ForkOptions) (*Sandbox, error) {
	o := orZero(opts)
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
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTime)
	defer cancel()
	if deleteErr := s.Delete(late, nil); deleteErr != nil && !errors.Is(deleteErr, ErrNotFound) {
		err = fmt.Errorf("%w; the empty fork %q remains, since deleting it failed: %w", err, s.Name(), deleteErr)
	}
	return err
}

const (
	// creationLimit limits the wait for another caller's creation, for example from a large
	// source. The pauses between lookups grow to maxLookupPause.
	creationLimit  = 10 * time.Minute
	maxLookupPause = 5 * time.Second
	// maxCreates limits how often a creation is sent if no response arrives and the sandbox
	// can't be found. A second creation does no harm: the service uses a name only once, and
	// the tag creationMark shows which sandbox is ours.
	maxCreates = 3
	// maxRounds limits how often GetOrCreate starts over. It does not end a wait for another
	// caller's creation, which creationLimit limits.
	maxRounds = 20
)

// GetOrCreate returns the sandbox with the given name, and creates it if there
// is none or if its files are gone. An empty name always creates one. It makes
// one request for an existing sandbox and two for a new one, and starts a
// machine unless NoResume is set.
//
// The options describe a new sandbox; an existing one is returned as it is.
// [Sandbox.Info] shows its settings, and [Sandbox.Update] changes them.
//
// The call that creates the sandbox runs OnCreate. Other calls with an OnCreate, in all
// processes, return once it has succeeded; see [Hook]. If it fails, the sandbox is deleted
// and the error returned. A tag of the sandbox makes the other calls wait, which leaves
// four tags for you.
//
// The error matches [ErrReplaced] if another client had just replaced a sandbox
// without files, and GetOrCreate then deleted the replacement.
func (c *Client) GetOrCreate(ctx context.Context, name string, opts *CreateOptions) (*Sandbox, error) {
	o := orZero(opts)
	if _, err := enter(ctx, c); err != nil {
		return nil, err
	}
	if o.Name != "" && o.Name != name {
		return nil, invalid("Name", "is %q; GetOrCreate takes the name as an argument, which is %q", o.Name, name)
	}
	o.Name = name
	o = c.withHooks(o)
	if _, err := o.body(); err != nil {
		return nil, err
	}
	if name == "" {
		return c.Create(ctx, &o)
	}
	if _, taken := o.Tags[creationMark]; o.OnCreate != nil && (taken || len(o.Tags) >= wire.MaxTags) {
		return nil, invalid("Tags", "leave no room for the tag %s, which makes other calls wait for OnCreate: a sandbox has at most %d tags", creationMark, wire.MaxTags)
	}
	owner := "" // the mark of a sandbox that this call creates
	if o.OnCreate != nil {
		owner = markPrefix + rand.Text()
	}
	var lastErr error // why the previous round failed
	creates, waited := 0, time.Duration(0)
	for round := 0; ; round++ {
		sb, retry, err := c.getOrCreate(ctx, name, &o, owner)
		if !retry {
			if ended, ok := err.(*RequestError); ok && lastErr != nil && ctx.Err() != nil {
				ended.Err = joinErrors(ended.Err, lastErr)
			}
			return sb, err
		}
		if errors.Is(err, ErrOutcomeUnknown) {
			creates++
		}
		switch {
		case nameTaken(err) && waited >= creationLimit:
			return nil, fmt.Errorf("sandbox: %q: somebody else has been creating it for %v: %w", name, creationLimit, err)
		case !nameTaken(err) && (creates == maxCreates || round >= maxRounds):
			return nil, err
		}
		lastErr = err
		pause := c.api.PollPause(api.GetSandbox, max(pollInterval, min(waited/20, maxLookupPause)))
		waited += pause
		if !api.Sleep(ctx, pause) {
			return nil, &RequestError{operation: api.GetSandbox.Name, sandbox: name, Err: joinErrors(api.ContextError(ctx), lastErr)}
		}
	}
}

// getOrCreate makes one attempt. retry, which comes with an error, means that a sandbox of
// that name may exist but can't be found: another client may be creating it, or the
// response to our own creation was lost.
func (c *Client) getOrCreate(ctx context.Context, name string, o *CreateOptions, owner string) (sb *Sandbox, retry bool, err error) {
	get := &GetOptions{NoResume: o.NoResume, OnResume: o.OnResume, Extra: undocumented(o.Extra)}
	// lookUp calls no hook: the error of a hook would say nothing about whether the sandbox
	// exists.
	sb, err = c.lookUp(ctx, name, get)
	switch {
	case err == nil:
		return sb.complete(ctx, o, owner, sb.mark())
	case errors.Is(err, ErrNotFound):
	case errors.Is(err, ErrSnapshotNotFound):
		replaced, deleteErr := c.deleteWithoutFiles(ctx, name)
		if deleteErr != nil {
			return nil, false, deleteErr
		}
		if replaced {
			return nil, true, err
		}
	default:
		return nil, false, err
	}
	create := *o
	create.Tags = withMark(o.Tags, owner)
	sb, err = c.create(ctx, &create)
	switch {
	case err == nil:
		return sb.complete(ctx, o, owner, owner) // the response may lack the tags
	case nameTaken(err), errors.Is(err, ErrOutcomeUnknown):
		there, getErr := c.lookUp(ctx, name, get)
		switch {
		case getErr == nil:
			sb = there
		case nameTaken(err) && neverStarted(getErr):
			return nil, false, fmt.Errorf("%w; the sandbox never started, and keeps its name until it is deleted, by Client.Delete: %w", err, getErr)
		case errors.Is(getErr, ErrNotFound):
			return nil, true, err // it may still be created
		default:
			return nil, false, fmt.Errorf("%w; looking it up: %w", err, getErr)
		}
	default:
		return nil, false, err
	}
	return sb.complete(ctx, o, owner, sb.mark())
}

// complete returns a sandbox with the given mark once OnCreate has succeeded and a
// due OnResume has run. owner is the mark of sandboxes that this call creates. retry
// means that the sandbox must be looked up again.
func (s *Sandbox) complete(ctx context.Context, o *CreateOptions, owner, mark string) (_ *Sandbox, retry bool, err error) {
	switch {
	case o.OnCreate == nil || mark == "" || s.inHook(ctx):
		if !o.NoResume {
			err = s.runResumeHook(ctx)
		}
	case mark == owner: // this call created it, even if the response was lost
		err = (&setup{sb: s, owner: owner, creator: true}).run(ctx, o.OnCreate)
	default:
		if err = s.awaitOnCreate(ctx, o.OnCreate); err == nil && !o.NoResume {
			// Its session may have ended while this call waited.
			_, err = s.resume(ctx, s.CurrentSession(), causeGet, nil)
		}
	}
	if err != nil {
		return nil, errors.Is(err, errSetupTaken), err
	}
	return s, false, nil
}

// deleteWithoutFiles deletes a sandbox whose files are gone, unless another client has
// already replaced it.
func (c *Client) deleteWithoutFiles(ctx context.Context, name string) (replaced bool, err error) {
	project, err := c.projectID(ctx)
	if err != nil {
		return false, err
	}
	// Look once more just before the deletion: the API can delete only by name.
	there, err := c.getSandbox(ctx, name, project, false, nil)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case Status(there.Session.Status) == StatusRunning, Status(there.Session.Status) == StatusPending:
		return true, nil
	}
	deleted, err := c.deleteSandbox(ctx, name, project, there.Sandbox.CreatedAt.Time, nil)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case isOtherSandbox(deleted, there.Sandbox.CreatedAt.Time):
		return false, fmt.Errorf("sandbox: %q: %w: somebody else had just made it in place of the one whose files were gone", name, ErrReplaced)
	}
	return false, nil
}

// neverStarted reports whether a lookup has found a sandbox that never had a
// session.
func neverStarted(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && e.errorKind() == api.NotFound && api.NeverStarted(e.Message)
}

// nameTaken reports whether a create was refused because of the name.
func nameTaken(err error) bool {
	e, ok := err.(*APIError)
	return ok && !e.unknown && e.errorKind() == api.NameTaken
}
