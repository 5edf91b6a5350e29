package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/users"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/observe"
)

// Sandbox is a named Linux microVM. Its files can outlive the virtual machine:
// each run of the machine is a [Session], and a call that finds the sandbox
// stopped starts a new one before it continues ("auto-resume").
//
// A Sandbox is returned by [Create], [Get], [GetOrCreate] and [Fork], or
// decoded from JSON. It is a handle: several can refer to the same sandbox. It
// is safe for concurrent use.
type Sandbox struct {
	st *sandboxState
	// hook is the run of the hook that received this handle; nil for others.
	hook *hookRun
}

// Hook is called after a sandbox was created or resumed, by the call that created
// or resumed it, as in the JavaScript SDK.
//
// [Client.GetOrCreate] waits for the OnCreate of another call. If the process that
// runs OnCreate dies, a waiting call runs its own OnCreate in the same sandbox three
// minutes later, so OnCreate must be able to run twice. If that run fails, the
// sandbox stays, and later calls try again. OnResume runs for the handle whose call
// resumed the sandbox. If it fails, it runs again with that handle's next call.
//
// A hook's context ends with the call that caused it, which also returns the
// hook's error. After a success, the context stays alive for whatever the hook
// has started. Calls with that context, or on the handle that the hook
// receives, never wait for the hook.
type Hook func(ctx context.Context, sb *Sandbox) error

// sandboxState is the state of a handle, which the handles that its hooks receive share.
type sandboxState struct {
	project string
	// onResume is the hook of the call that made the handle; nil for none.
	onResume Hook

	mu       sync.Mutex
	client   *Client // nil until needed, for handles from JSON
	info     wire.Sandbox
	current  *Session // nil for handles from JSON without one
	deleted  bool
	resuming *resumeCall
	// resumedID is the ID of the last session that a request of this handle started,
	// and hookedID of the last one that OnResume ran for.
	resumedID, hookedID string

	defaultUser atomic.Pointer[users.Identity] // nil until it is known
}

// resumeCall is a resume that several callers may wait for.
type resumeCall struct {
	done    chan struct{}
	session *Session
	err     error
	waiters int // guarded by the sandbox's mutex
	ctx     context.Context
	cancel  context.CancelFunc
}

// newSandbox makes a handle from a response.
func newSandbox(c *Client, project string, resp *wire.SandboxResponse, onResume Hook) *Sandbox {
	st := &sandboxState{project: project, onResume: onResume, client: c, info: resp.Sandbox}
	st.current = newSession(c, resp.Session, resp.Routes)
	st.setResumed(resp)
	return &Sandbox{st: st}
}

var errZeroSandbox = fmt.Errorf("sandbox: %w: the Sandbox was not made by Create, Get, GetOrCreate, Fork or from JSON", ErrInvalid)

// client returns the handle's client, or the default one.
func (s *Sandbox) client() (*Client, error) {
	if s == nil || s.st == nil {
		return nil, errZeroSandbox
	}
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	if s.st.deleted {
		return nil, fmt.Errorf("sandbox: %q: %w", s.st.info.Name, ErrDeleted)
	}
	if s.st.client == nil {
		c, err := DefaultClient()
		if err != nil {
			return nil, err
		}
		s.st.client = c
		s.st.registerSession()
	}
	return s.st.client, nil
}

func (s *Sandbox) bind(c *Client) {
	if s.st == nil {
		return
	}
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	s.st.client = c
	s.st.registerSession()
	if s.st.current != nil {
		s.st.current.bind(c)
	}
}

// registerSession tells the client to which sandbox the session of a handle from JSON
// belongs. The caller holds mu.
func (st *sandboxState) registerSession() {
	if st.current != nil && st.client != nil && st.client.api != nil {
		w := st.current.wire()
		st.client.api.Learn(w.ID, st.info.Name)
	}
}

// metadata returns the API's last description of the sandbox.
func (s *Sandbox) metadata() wire.Sandbox {
	if s == nil || s.st == nil {
		return wire.Sandbox{}
	}
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	return s.st.info
}

// Name returns the sandbox's name.
func (s *Sandbox) Name() string { return s.metadata().Name }

func (s *Sandbox) names() (sandbox, session string) {
	if cur := s.CurrentSession(); cur != nil {
		session = cur.ID()
	}
	return s.Name(), session
}

// Info returns the sandbox's description from the API's last response. It makes
// no request; call [Sandbox.Refresh] first for the current state.
func (s *Sandbox) Info() Info {
	w := s.metadata()
	w.Region = cmp.Or(w.Region, defaultRegion)
	return sandboxInfo(&w)
}

// CurrentSession returns the session that calls are made on. It returns nil
// only if the handle was decoded from JSON, or made from a response, without a
// session.
func (s *Sandbox) CurrentSession() *Session {
	if s == nil || s.st == nil {
		return nil
	}
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	return s.st.current
}

// Status returns the last known state of the current session. It makes no
// request.
func (s *Sandbox) Status() Status {
	if cur := s.CurrentSession(); cur != nil {
		return cur.status()
	}
	return Status(s.metadata().Status)
}

// Cwd returns the working directory of the current session. Commands start there, and
// relative paths are resolved in it.
func (s *Sandbox) Cwd() string {
	if cur := s.CurrentSession(); cur != nil {
		return cur.cwd()
	}
	return s.metadata().Cwd
}

func (s *Sandbox) cwd() string { return s.Cwd() }

// Routes returns the public addresses of the exposed ports.
func (s *Sandbox) Routes() []Route {
	if cur := s.CurrentSession(); cur != nil {
		return cur.Routes()
	}
	return nil
}

// URL returns the public address of an exposed port, such as
// "https://abc-3000.vercel.run". If the port is not exposed, the error matches
// [ErrNoRoute]. It makes no request.
func (s *Sandbox) URL(port int) (string, error) {
	if cur := s.CurrentSession(); cur != nil {
		return cur.URL(port)
	}
	if s == nil || s.st == nil {
		return "", errZeroSandbox
	}
	return "", noRoute(port)
}

// ExpiresAt returns when the running session times out, as last known. If no
// session runs, it returns the time that Info reports. It is zero if the API
// reported neither. It makes no request.
func (s *Sandbox) ExpiresAt() time.Time {
	if cur := s.CurrentSession(); cur != nil {
		if info := cur.wire(); Status(info.Status) == StatusRunning {
			return timeoutAt(&info)
		}
	}
	return s.metadata().ExpiresAt.Time
}

// Format prints the sandbox's name and status, for every verb.
func (s *Sandbox) Format(f fmt.State, verb rune) {
	redact.String(f, verb, fmt.Sprintf("sandbox %s (%s)", s.Name(), s.Status()))
}

// LogValue implements [slog.LogValuer].
func (s *Sandbox) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", s.Name()), slog.String("status", string(s.Status())))
}

// Refresh fetches the current state, with one request. It does not resume the
// sandbox.
func (s *Sandbox) Refresh(ctx context.Context) error {
	c, err := enter(ctx, s)
	if err != nil {
		return err
	}
	resp, err := c.getSandbox(ctx, s.Name(), s.st.project, false, nil)
	if err != nil {
		return err
	}
	_, err = s.adopt(c, resp)
	return err
}

func (c *Client) getSandbox(ctx context.Context, name, project string, resume bool, extra map[string]any) (*wire.SandboxResponse, error) {
	query := projectQuery(project)
	for k, v := range extra {
		texts, err := queryTexts(v)
		if err != nil {
			return nil, invalid("Extra", "%s: %v", k, err)
		}
		query[k] = texts
	}
	query.Set("resume", strconv.FormatBool(resume))
	var resp wire.SandboxResponse
	req := &api.Request{Op: api.GetSandbox, Path: []string{name}, Query: query, Extra: extra}
	if err := c.do(ctx, req, &resp); err != nil {
		return nil, err
	}
	if resume && req.Uncertain {
		// The lost response may have said that this call resumed the sandbox. Only
		// a sandbox's first session is older than the sandbox.
		resp.Resumed = resp.Resumed || resp.Session.CreatedAt.After(resp.Sandbox.CreatedAt.Time)
	}
	return &resp, nil
}

// setInfo stores the sandbox's description from a response. If the name now belongs to
// another sandbox, the handle does not change, and the error matches ErrDeleted. The
// caller holds mu.
func (st *sandboxState) setInfo(info wire.Sandbox) error {
	if known := st.info.CreatedAt; !known.IsZero() && !info.CreatedAt.IsZero() && !info.CreatedAt.Equal(known.Time) {
		return fmt.Errorf("%w: another client created a new sandbox named %q at %v; Get returns a handle for it", ErrDeleted, st.info.Name, info.CreatedAt.UTC())
	}
	st.info = info
	return nil
}

// checkIdentity checks that the name still belongs to the handle's sandbox, for
// operations that act by name and can't be undone. A handle that does not know when its
// sandbox was created can't check.
func (s *Sandbox) checkIdentity(ctx context.Context, c *Client) error {
	if s.metadata().CreatedAt.IsZero() {
		return nil
	}
	return s.refreshInfo(ctx, c)
}

// refreshInfo fetches the sandbox's description and leaves its session as it is.
func (s *Sandbox) refreshInfo(ctx context.Context, c *Client) error {
	resp, err := c.getSandbox(ctx, s.Name(), s.st.project, false, nil)
	if err != nil {
		return err
	}
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	return s.st.setInfo(resp.Sandbox)
}

func (st *sandboxState) setResumed(resp *wire.SandboxResponse) {
	if resp.Resumed {
		st.resumedID = resp.Session.ID
	}
}

// adopt stores a response of get and returns its session. The current session's
// handle is kept if it is the same session.
func (s *Sandbox) adopt(c *Client, resp *wire.SandboxResponse) (*Session, error) {
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	if err := s.st.setInfo(resp.Sandbox); err != nil {
		return nil, err
	}
	s.st.setResumed(resp)
	switch {
	case s.st.current != nil && s.st.current.ID() == resp.Session.ID:
		s.st.current.set(resp.Session, resp.Routes)
	default:
		s.st.current = newSession(c, resp.Session, resp.Routes)
	}
	return s.st.current, nil
}

// serializedSandbox has the form of the JavaScript SDK's serialized Sandbox, so
// that workflows can pass handles between the two.
type serializedSandbox struct {
	Metadata        json.RawMessage `json:"metadata,omitempty"`
	Routes          []wire.Route    `json:"routes"`
	SandboxMetadata wire.Sandbox    `json:"sandboxMetadata"`
	ProjectID       string          `json:"projectId"`
}

// MarshalJSON encodes the handle in the JavaScript SDK's serialized form. It
// contains no secrets: no credentials, hooks or header values.
func (s *Sandbox) MarshalJSON() ([]byte, error) {
	if s == nil || s.st == nil {
		return nil, errZeroSandbox
	}
	out := serializedSandbox{Routes: []wire.Route{}, SandboxMetadata: s.metadata(), ProjectID: s.st.project}
	if cur := s.CurrentSession(); cur != nil {
		var err error
		if out.Metadata, err = cur.metadataJSON(); err != nil {
			return nil, err
		}
		out.Routes = append(out.Routes, cur.wireRoutes()...)
	}
	return json.Marshal(out)
}

// UnmarshalJSON decodes a handle, which has no hooks but those of its client. It
// uses [DefaultClient] unless [Client.Bind] is called.
func (s *Sandbox) UnmarshalJSON(data []byte) error {
	var in serializedSandbox
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if in.SandboxMetadata.Name == "" {
		return errors.New("sandbox: JSON is not a serialized sandbox: sandboxMetadata.name is missing")
	}
	st := &sandboxState{project: in.ProjectID, info: in.SandboxMetadata}
	if len(in.Metadata) > 0 {
		cur, err := sessionFromJSON(in.Metadata, in.Routes)
		if err != nil {
			return err
		}
		st.current = cur
	}
	s.st, s.hook = st, nil
	return nil
}

// GetOptions are the options of [Client.Get].
type GetOptions struct {
	// NoResume returns a stopped sandbox without starting it. By default it is
	// started, so that a sandbox whose files are gone is noticed at once.
	NoResume bool
	// OnResume is called when this call, or a later one on the returned handle,
	// starts a session of a stopped sandbox, before that call continues. Use it to
	// start servers and other programs that end with a session. See [Hook].
	OnResume Hook
	// Extra holds parameters of the API that this version has no field for, by
	// their names in the query. The values are never shown.
	Extra map[string]any `secret:"names"`
}

// Format prints the options without values that may be secret, for every verb.
func (o GetOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// Get returns the sandbox with the given name and starts it if it is stopped, with one
// request. Set [GetOptions].NoResume to only look at it: a stopped sandbox then starts no
// machine.
//
// If the sandbox does not exist, the error matches [ErrNotFound]. If Get has to
// start it but its files are gone, the error matches [ErrSnapshotNotFound].
// ErrNotFound also covers a sandbox that is listed but reported as "has no latest
// sandbox": it never started, and must be deleted before its name can be used
// again.
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
	o := orZero(opts)
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
		_, e := c.api.Begin(ctx, observe.Event{Kind: observe.Resume, Sandbox: sb.Name(), Session: resp.Session.ID, Cause: causeGet, Start: start})
		e.End(nil)
	}
	return sb, nil
}

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
	// Region is where sessions are started from the next one on. FailoverRegions are used if
	// a session can't start there; a non-nil empty slice removes them.
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
	o := orZero(opts)
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
		cur.set(wire.Session{}, resp.Routes)
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

// update sends one update and stores the description in the response.
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

// unlessStopped returns err, or nil if err says that the session has stopped: the
// sandbox's own settings apply from the next session on.
func unlessStopped(err error) error {
	if errors.Is(err, ErrStopped) {
		return nil
	}
	return err
}

// UpdateNetworkPolicy replaces the policy in effect and returns it as the API
// understood it, with redacted header values. It resumes the sandbox if it is
// stopped. The platform keeps the policy for later sessions too: access that is
// opened for one task stays open until it is closed. [Sandbox.Update] sets a
// policy without starting the sandbox.
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
