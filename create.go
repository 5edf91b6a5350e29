package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// CreateOptions describes a new sandbox. The zero value makes one with a name,
// runtime, size and timeout of the platform's choice.
type CreateOptions struct {
	// Name identifies the sandbox within the project. Empty lets the API choose
	// one. A create with a name is safer: when its answer is lost,
	// [GetOrCreate] finds the sandbox by it.
	Name string
	// Source is where the files come from: [GitSource], [TarballSource] or
	// [SnapshotSource]. Nil starts from the runtime's own.
	Source Source
	// Ports are exposed, each at an address of its own; see [Sandbox.Domain].
	Ports []int
	// Timeout is how long a session runs before it is stopped. Zero means the
	// platform's default of five minutes.
	Timeout time.Duration
	// VCPUs is the size; each virtual CPU comes with 2048 MB of memory. Zero
	// means the platform's default.
	VCPUs int
	// Runtime, such as "node24" or "python3.13", and Image, the name of a
	// container image, exclude each other.
	Runtime, Image string
	// NetworkPolicy restricts what the sandbox can reach. Nil allows all.
	NetworkPolicy *NetworkPolicy
	// Env is given to every command. It is never shown in errors or logs.
	Env Env
	// Tags are key-value pairs that [List] can filter by.
	Tags map[string]string
	// Persistent says whether the files outlive a session. Nil means the
	// platform's default, which is true.
	Persistent *bool
	// SnapshotExpiration is how long snapshots are kept. Zero means for ever,
	// nil the platform's default.
	SnapshotExpiration *time.Duration
	// KeepLastSnapshots is the retention policy of snapshots. Nil keeps all.
	KeepLastSnapshots *KeepLastSnapshots
	// OnCreate is called once the sandbox was made, by [Client.Create] or
	// [Client.GetOrCreate], to set it up. When it fails, the sandbox is deleted
	// and the error is returned, so that the next call begins anew. It runs again
	// for the same name when the sandbox's files were lost. Its context outlives
	// it; see [Hook].
	OnCreate Hook
	// OnResume is called after a call found the sandbox stopped and a new
	// session was started for it, before that call goes on; see [GetOptions].
	OnResume Hook
	// Resume says whether [Client.GetOrCreate] starts a sandbox that exists and
	// is stopped. Nil means that it does. [Client.Create] does not use it.
	Resume *bool
	// Private holds parameters that are not part of the documented API. Their
	// names begin with two underscores; they are sent as they are.
	Private map[string]any `secret:"names"`
}

// Format shows the options without values that may be secret, whatever the verb.
func (o CreateOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// Hook is called when a sandbox was created or resumed. The calls that it makes
// with its context, or on the handle that it is given, never wait for the
// resume that the hook is part of. The context ends with that of the call while
// the hook runs; when the hook has succeeded it lives on, for what the hook has
// started. Its error is returned by the call that caused it.
type Hook func(ctx context.Context, sb *Sandbox) error

// Source is where the files of a new sandbox come from.
type Source interface{ source() (any, error) }

// GitSource clones a repository.
type GitSource struct {
	// URL is the repository's address. Of one with a user, a password or a query
	// these are never shown.
	URL string `secret:"url"`
	// Username and Password are for a private repository; for a token, use it
	// as the password. They are never shown.
	Username string `secret:"value"`
	Password string `secret:"value"`
	// Depth limits the history; zero fetches all of it.
	Depth int
	// Revision is a branch, tag or commit; empty means the default branch.
	Revision string
}

// String describes the source without its credentials.
func (g GitSource) String() string {
	return fmt.Sprintf("git %s revision %q", redact.URL(g.URL), g.Revision)
}

// Format shows the source without its credentials, whatever the verb.
func (g GitSource) Format(f fmt.State, verb rune) { redact.Struct(f, verb, g) }

// LogValue is String for log/slog.
func (g GitSource) LogValue() slog.Value { return slog.StringValue(g.String()) }

// MarshalJSON leaves the credentials out.
func (g GitSource) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type     string `json:"type"`
		URL      string `json:"url"`
		Depth    int    `json:"depth,omitempty"`
		Revision string `json:"revision,omitempty"`
	}{"git", redact.URL(g.URL), g.Depth, g.Revision})
}

func (g GitSource) source() (any, error) {
	switch {
	case g.URL == "":
		return nil, invalid("Source.URL", "is empty; the address of a git repository is needed")
	case g.Depth < 0:
		return nil, invalid("Source.Depth", "%d is negative", g.Depth)
	case (g.Username == "") != (g.Password == ""):
		return nil, invalid("Source", "Username and Password go together; only one is given")
	}
	return struct {
		Type     string `json:"type"`
		URL      string `json:"url"`
		Username string `json:"username,omitempty"`
		Password string `json:"password,omitempty"`
		Depth    int    `json:"depth,omitempty"`
		Revision string `json:"revision,omitempty"`
	}{"git", g.URL, g.Username, g.Password, g.Depth, g.Revision}, nil
}

func (g GitSource) secrets() []string { return append(urlSecrets(g.URL), g.Password) }

// urlSecrets are what an address may hold besides where it leads.
func urlSecrets(address string) []string {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	secrets := []string{u.RawQuery}
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, password)
	} else if u.User != nil {
		secrets = append(secrets, u.User.Username()) // a token may stand there alone
	}
	return secrets
}

// TarballSource unpacks an archive from an http or https address.
type TarballSource struct {
	// URL is the archive's address. A user, a password and the query, which may
	// be a signature, are never shown.
	URL string `secret:"url"`
}

// String describes the source without credentials.
func (t TarballSource) String() string { return "tarball " + redact.URL(t.URL) }

// Format shows the source without credentials, whatever the verb.
func (t TarballSource) Format(f fmt.State, verb rune) { redact.Struct(f, verb, t) }

// LogValue is String for log/slog.
func (t TarballSource) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalJSON leaves credentials out.
func (t TarballSource) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type string `json:"type"`
		URL  string `json:"url"`
	}{"tarball", redact.URL(t.URL)})
}

func (t TarballSource) secrets() []string { return urlSecrets(t.URL) }

func (t TarballSource) source() (any, error) {
	if t.URL == "" {
		return nil, invalid("Source.URL", "is empty; the address of a tarball is needed")
	}
	return struct {
		Type string `json:"type"`
		URL  string `json:"url"`
	}{"tarball", t.URL}, nil
}

// SnapshotSource starts from a snapshot.
type SnapshotSource struct{ SnapshotID string }

func (s SnapshotSource) source() (any, error) {
	if s.SnapshotID == "" {
		return nil, invalid("Source.SnapshotID", "is empty; the ID of a snapshot is needed")
	}
	return struct {
		Type       string `json:"type"`
		SnapshotID string `json:"snapshotId"`
	}{"snapshot", s.SnapshotID}, nil
}

// createBody is what create and fork send. Env is part of it, so it is never
// logged or put into an error.
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
	NetworkPolicy      any                     `json:"networkPolicy,omitempty"`
	Env                map[string]string       `json:"env,omitzero"`
	Tags               map[string]string       `json:"tags,omitzero"`
	SnapshotExpiration *wire.Duration          `json:"snapshotExpiration,omitempty"`
	KeepLastSnapshots  *wire.KeepLastSnapshots `json:"keepLastSnapshots,omitempty"`
}

type resources struct {
	VCPUs  int `json:"vcpus"`
	Memory int `json:"memory,omitempty"`
}

func (o *CreateOptions) body() (*createBody, error) {
	if o.Name != "" {
		if err := checkName("Name", o.Name); err != nil {
			return nil, err
		}
	}
	if o.Runtime != "" && o.Image != "" {
		return nil, invalid("Image", "can't be combined with Runtime")
	}
	if o.VCPUs < 0 {
		return nil, invalid("VCPUs", "%d is negative", o.VCPUs)
	}
	if err := errors.Join(
		checkPorts("Ports", o.Ports), checkDuration("Timeout", o.Timeout), checkEnv("Env", o.Env),
		checkOptionalDuration("SnapshotExpiration", o.SnapshotExpiration), o.KeepLastSnapshots.check("KeepLastSnapshots"),
		checkPrivate(o.Private),
	); err != nil {
		return nil, err
	}
	b := &createBody{
		Ports: o.Ports, Timeout: wire.Duration(o.Timeout), Runtime: o.Runtime, Image: o.Image, Name: o.Name,
		Persistent: o.Persistent, Env: o.Env, Tags: o.Tags,
		SnapshotExpiration: wire.DurationPtr(o.SnapshotExpiration), KeepLastSnapshots: o.KeepLastSnapshots.toWire(),
	}
	if o.VCPUs > 0 {
		b.Resources = &resources{VCPUs: o.VCPUs}
	}
	var err error
	if o.Source != nil {
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

// withPrivate adds the private parameters to a body.
func withPrivate(body any, private map[string]any) (any, error) {
	if len(private) == 0 {
		return body, nil
	}
	known, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	more, err := json.Marshal(private)
	if err != nil {
		return nil, invalid("Private", "%v", err)
	}
	if len(known) > len("{}") {
		known = append(known[:len(known)-1], ',')
	} else {
		known = known[:1]
	}
	return json.RawMessage(append(known, more[1:]...)), nil
}

// Create makes a sandbox and starts its first session. A nil opts takes the
// platform's defaults. The sandbox runs, and costs, until it is stopped or
// times out.
//
// When the answer is lost, the error matches [ErrOutcomeUnknown]: the sandbox
// may exist. With a name, [Client.GetOrCreate] settles that.
func (c *Client) Create(ctx context.Context, opts *CreateOptions) (*Sandbox, error) {
	var o CreateOptions
	if opts != nil {
		o = *opts
	}
	sb, err := c.create(ctx, &o)
	if err != nil {
		return nil, err
	}
	return sb.setUp(ctx, o.OnCreate)
}

// create makes a sandbox and runs no hook.
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
	if o.Name != "" {
		op = api.CreateNamed
	}
	if s, ok := o.Source.(interface{ secrets() []string }); ok {
		for _, secret := range s.secrets() {
			c.secrets.Add(secret) // which a clone that fails may quote
		}
	}
	var answer wire.SandboxAnswer
	if err := c.do(ctx, &api.Request{Op: op, Body: full}, &answer); err != nil {
		return nil, err
	}
	return newSandbox(c, op, o.Name, project, &answer, o.OnResume)
}

// ForkOptions overrides what a fork copies from its source. The zero value
// copies all: size, timeout, ports, tags, network policy, image, persistence,
// snapshot settings and environment. The fields mean what they mean in
// [CreateOptions]; a nil or zero one is copied.
type ForkOptions struct {
	// Name is the fork's name; empty lets the API choose one.
	Name string
	// Ports replaces the exposed ports; an empty list that is not nil exposes
	// none.
	Ports         []int
	Timeout       time.Duration
	VCPUs         int
	Image         string
	NetworkPolicy *NetworkPolicy
	// Env and Tags replace the source's; an empty map that is not nil clears
	// them.
	Env                Env
	Tags               map[string]string
	Persistent         *bool
	SnapshotExpiration *time.Duration
	KeepLastSnapshots  *KeepLastSnapshots
	OnResume           Hook
	Private            map[string]any `secret:"names"`
}

// Format shows the options without values that may be secret, whatever the verb.
func (o ForkOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// Fork makes a sandbox from the current snapshot of another, or from its
// runtime or image when it has none, and starts its first session.
func (c *Client) Fork(ctx context.Context, source string, opts *ForkOptions) (*Sandbox, error) {
	var o ForkOptions
	if opts != nil {
		o = *opts
	}
	if err := checkName("source", source); err != nil {
		return nil, err
	}
	body, err := (&CreateOptions{
		Name: o.Name, Ports: o.Ports, Timeout: o.Timeout, VCPUs: o.VCPUs, Image: o.Image, NetworkPolicy: o.NetworkPolicy,
		Env: o.Env, Tags: o.Tags, Persistent: o.Persistent, SnapshotExpiration: o.SnapshotExpiration,
		KeepLastSnapshots: o.KeepLastSnapshots, Private: o.Private,
	}).body()
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
	op := api.ForkSandbox
	if o.Name != "" {
		op = api.ForkNamed
	}
	var answer wire.SandboxAnswer
	if err := c.do(ctx, &api.Request{Op: op, Path: []string{source}, Query: projectQuery(project), Body: full}, &answer); err != nil {
		return nil, err
	}
	return newSandbox(c, op, o.Name, project, &answer, o.OnResume)
}

// GetOptions says how a sandbox is looked up.
type GetOptions struct {
	// Resume says whether a stopped sandbox is started. Nil leaves it to the
	// API, which starts it.
	Resume *bool
	// OnResume is called when a session was started for a stopped sandbox, by
	// this call or by a later one on the handle that it returns. Use it to
	// start again what does not outlive a session, such as servers.
	OnResume Hook
	// Private holds parameters that are not part of the documented API. Their
	// names begin with two underscores; they are sent in the query.
	Private map[string]any `secret:"names"`
}

// Format shows the options without values that may be secret, whatever the verb.
func (o GetOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// Get looks a sandbox up by its name and, unless told otherwise, starts it if
// it is stopped. A missing one matches [ErrNotFound]; one whose files are gone
// because their snapshot expired matches [ErrSnapshotNotFound].
func (c *Client) Get(ctx context.Context, name string, opts *GetOptions) (*Sandbox, error) {
	sb, resumed, err := c.lookUp(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	return sb.resumedFor(ctx, resumed)
}

// lookUp is Get without the hook. It reports whether a session was started.
func (c *Client) lookUp(ctx context.Context, name string, opts *GetOptions) (sb *Sandbox, resumed bool, err error) {
	begin := time.Now()
	var o GetOptions
	if opts != nil {
		o = *opts
	}
	if err := errors.Join(checkName("name", name), checkPrivate(o.Private)); err != nil {
		return nil, false, err
	}
	project, err := c.projectID(ctx)
	if err != nil {
		return nil, false, err
	}
	answer, req, err := c.getSandbox(ctx, name, project, o.Resume, o.Private)
	if err != nil {
		return nil, false, err
	}
	if sb, err = newSandbox(c, api.GetSandbox, name, project, answer, o.OnResume); err != nil {
		return nil, false, err
	}
	resumed = answer.Resumed
	if req.Uncertain && !resumed && Status(answer.Session.Status) == StatusRunning {
		// An answer was lost: a session that is as young as this call was started
		// by it.
		resumed = answer.Session.CreatedAt.After(serverTime(req).Add(-time.Since(begin) - clockSlack))
	}
	return sb, resumed, nil
}

func (c *Client) getSandbox(ctx context.Context, name, project string, resume *bool, private map[string]any) (*wire.SandboxAnswer, *api.Request, error) {
	query := projectQuery(project)
	for k, v := range private {
		texts, err := queryTexts(v)
		if err != nil {
			return nil, nil, invalid("Private", "%s: %v", k, err)
		}
		query[k] = texts
	}
	if resume != nil {
		query.Set("resume", fmt.Sprint(*resume))
	}
	var answer wire.SandboxAnswer
	req := &api.Request{Op: api.GetSandbox, Path: []string{name}, Query: query}
	if err := c.do(ctx, req, &answer); err != nil {
		return nil, req, err
	}
	return &answer, req, nil
}

// queryTexts gives the texts by which a private parameter goes into a query:
// one for each element of a list, none for null.
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

func projectQuery(project string) url.Values { return url.Values{"projectId": {project}} }
