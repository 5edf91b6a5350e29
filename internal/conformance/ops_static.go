package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// ops maps the operations of the scenarios to their functions.
var ops map[string]func(*call) (any, error)

func init() {
	ops = map[string]func(*call) (any, error){
		"create": opCreate, "fork": opFork, "get": opGet, "getOrCreate": opGetOrCreate,
		"list": opList, "snapshotList": opSnapshotList, "snapshotTree": opSnapshotTree, "snapshotGet": opSnapshotGet,
		"driveGetOrCreate": opDriveGetOrCreate, "driveList": opDriveList,
		"fetchCount": func(c *call) (any, error) { return float64(c.d.fetches.Load()), nil },

		"props": opProps, "currentSession": opCurrentSession, "domain": opDomain, "stop": opStop, "dispose": opDispose,
		"delete": opDelete, "update": opUpdate, "updateNetworkPolicy": opUpdateNetworkPolicy,
		"extendTimeout": opExtendTimeout, "snapshot": opSnapshot, "openInteractive": opOpenInteractive,
		"listSessions": opListSessions, "listSnapshots": opListSnapshots,

		"runCommand": opRunCommand, "getCommand": opGetCommand, "stdout": opStdout, "stderr": opStderr,
		"output": opOutput, "wait": opWait, "kill": opKill, "logs": opLogs, "piped": opPiped,

		"mkDir": opMkdir, "readFile": opReadFile, "readFileToBuffer": opReadFile, "downloadFile": opDownloadFile,
		"writeFiles": opWriteFiles,

		"createUser": opCreateUser, "asUser": opAsUser, "createGroup": opCreateGroup,
		"addUserToGroup": opAddUserToGroup, "removeUserFromGroup": opRemoveUserFromGroup,
		"addToGroup": opAddToGroup, "removeFromGroup": opRemoveFromGroup,

		"fs.readFile": opFSReadFile, "fs.writeFile": opFSWriteFile, "fs.appendFile": opFSAppendFile,
		"fs.mkdir": opFSMkdir, "fs.readdir": opFSReaddir, "fs.stat": opFSStat, "fs.lstat": opFSLstat,
		"fs.unlink": opFSUnlink, "fs.rm": opFSRm, "fs.rmdir": opFSRmdir, "fs.rename": opFSRename,
		"fs.copyFile": opFSCopyFile, "fs.access": opFSAccess, "fs.exists": opFSExists, "fs.chmod": opFSChmod,
		"fs.chown": opFSChown, "fs.symlink": opFSSymlink, "fs.readlink": opFSReadlink, "fs.realpath": opFSRealpath,
		"fs.truncate": opFSTruncate, "fs.mkdtemp": opFSMkdtemp,

		"serialize": opSerialize, "deserialize": opDeserialize, "proxy": opProxy,

		"env": opEnv, "sleep": opSleep, "awaitSeen": opAwaitSeen, "writeLocalFile": opWriteLocalFile,
		"localFile": opLocalFile, "parallel": opParallel,
	}
}

// statics are the arguments of a static call: the SDK's parameters together
// with the credentials.
type statics map[string]json.RawMessage

// statics joins the credentials and the arguments of the step.
func (c *call) statics() (statics, error) {
	all := statics{}
	switch {
	case present(c.step.Credentials):
		if err := json.Unmarshal(c.step.Credentials, &all); err != nil {
			return nil, err
		}
	case c.d.scenario.Credentials != nil:
		for k, v := range c.d.scenario.Credentials {
			raw, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			all[k] = raw
		}
	}
	if all == nil { // null: no credentials
		all = statics{}
	}
	own := statics{}
	if err := c.args(&own); err != nil {
		return nil, err
	}
	maps.Copy(all, own)
	return all, nil
}

// get decodes one argument. If it is absent or null, into is unchanged.
func (s statics) get(name string, into any) error {
	raw, ok := s[name]
	if !ok || isNull(raw) {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("conformance: argument %s: %w", name, err)
	}
	return nil
}

// text returns a string argument. Anything else counts as absent.
func (s statics) text(name string) string {
	var v string
	if json.Unmarshal(s[name], &v) != nil {
		return ""
	}
	return v
}

// millis returns an optional duration in milliseconds.
func (s statics) millis(name string) (*time.Duration, error) {
	var ms *float64
	if err := s.get(name, &ms); err != nil || ms == nil {
		return nil, err
	}
	return new(millis(*ms)), nil
}

// expiration is millis for the expiration of a snapshot, of which 0 is never.
func (s statics) expiration(name string) (time.Duration, error) {
	d, err := s.millis(name)
	if err != nil || d == nil {
		return 0, err
	}
	return forever(*d), nil
}

func forever(d time.Duration) time.Duration {
	if d == 0 {
		return sandbox.Forever
	}
	return d
}

// noResume says whether resume is false.
func (s statics) noResume() (bool, error) {
	resume := true
	err := s.get("resume", &resume)
	return !resume, err
}

// private returns the parameters whose names begin with two underscores.
func (s statics) private() map[string]any {
	var out map[string]any
	for k, raw := range s {
		if strings.HasPrefix(k, "__") {
			if out == nil {
				out = map[string]any{}
			}
			out[k] = raw
		}
	}
	return out
}

// static returns the arguments and the client of a static call.
func (c *call) static() (statics, *sandbox.Client, error) {
	s, err := c.statics()
	if err != nil {
		return nil, nil, err
	}
	client, err := c.client(s)
	return s, client, err
}

// client returns the client that JavaScript makes for a static call.
func (c *call) client(s statics) (*sandbox.Client, error) {
	hc := c.d.http
	if s.text("fetch") == "counting" {
		hc = &http.Client{Transport: countingTransport{c.d}}
	}
	opts := &sandbox.ClientOptions{HTTPClient: hc, BaseURL: c.d.api, ServerCommandIDs: true}
	cr := auth.Credentials{Token: s.text("token"), TeamID: s.text("teamId"), ProjectID: s.text("projectId")}
	if cr != (auth.Credentials{}) {
		opts.Credentials = auth.Static(cr)
	} else {
		opts.Credentials = c.d.environment()
	}
	return sandbox.NewClient(opts)
}

// countingTransport is the custom transport of a scenario.
type countingTransport struct{ d *driver }

func (t countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.d.fetches.Add(1)
	return t.d.http.Transport.RoundTrip(r)
}

// sandboxHook decodes a callback argument.
func (c *call) sandboxHook(s statics, name string) sandbox.Hook {
	raw, ok := s[name]
	if !ok || isNull(raw) {
		return nil
	}
	h := c.d.hook(name, raw)
	return func(ctx context.Context, sb *sandbox.Sandbox) error { return h(ctx, sb) }
}

// createOptions decodes the options that create, fork and getOrCreate share.
func (c *call) createOptions(s statics) (sandbox.CreateOptions, error) {
	var (
		o    sandbox.CreateOptions
		errs []error
		err  error
	)
	get := func(name string, into any) { errs = append(errs, s.get(name, into)) }
	get("name", &o.Name)
	get("ports", &o.Ports)
	get("runtime", &o.Runtime)
	get("image", &o.Image)
	get("env", &o.Env)
	get("tags", &o.Tags)
	var persistent *bool
	get("persistent", &persistent)
	o.Ephemeral = persistent != nil && !*persistent
	var res struct {
		VCPUs int `json:"vcpus"`
	}
	get("resources", &res)
	o.VCPUs = res.VCPUs
	timeout, err := s.millis("timeout")
	errs = append(errs, err)
	if timeout != nil {
		o.Timeout = *timeout
	}
	o.SnapshotExpiration, err = s.expiration("snapshotExpiration")
	errs = append(errs, err)
	if raw, ok := s["keepLastSnapshots"]; ok && !isNull(raw) {
		o.KeepLastSnapshots, err = keepLast(raw)
		errs = append(errs, err)
	}
	if raw, ok := s["source"]; ok && !isNull(raw) {
		o.Source, err = source(raw)
		errs = append(errs, err)
	}
	if raw, ok := s["networkPolicy"]; ok && !isNull(raw) {
		o.NetworkPolicy, err = policy(raw)
		errs = append(errs, err)
	}
	get("region", &o.Region)
	get("failoverRegions", &o.FailoverRegions)
	get("networkId", &o.NetworkID)
	o.Mounts, err = c.mounts(s)
	errs = append(errs, err)
	o.OnResume = c.sandboxHook(s, "onResume")
	o.Private = s.private()
	return o, errors.Join(errs...)
}

func keepLast(raw json.RawMessage) (*sandbox.KeepLastSnapshots, error) {
	var in struct {
		Count         int      `json:"count"`
		Expiration    *float64 `json:"expiration"`
		DeleteEvicted *bool    `json:"deleteEvicted"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, err
	}
	k := &sandbox.KeepLastSnapshots{Count: in.Count, KeepEvicted: in.DeleteEvicted != nil && !*in.DeleteEvicted}
	if in.Expiration != nil {
		k.Expiration = forever(millis(*in.Expiration))
	}
	return k, nil
}

func source(raw json.RawMessage) (sandbox.Source, error) {
	var in struct {
		Type       string `json:"type"`
		URL        string `json:"url"`
		Username   string `json:"username"`
		Password   string `json:"password"`
		Depth      int    `json:"depth"`
		Revision   string `json:"revision"`
		SnapshotID string `json:"snapshotId"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, err
	}
	switch in.Type {
	case "git":
		return sandbox.GitSource{
			URL: in.URL, Username: in.Username, Password: in.Password, Depth: in.Depth, Revision: in.Revision,
		}, nil
	case "tarball":
		return sandbox.TarballSource{URL: in.URL}, nil
	case "snapshot":
		return sandbox.SnapshotSource{SnapshotID: in.SnapshotID}, nil
	default:
		return nil, fmt.Errorf("conformance: unknown source %s", raw)
	}
}

// errInvalidPolicy reports a policy that the SDK's type cannot represent.
var errInvalidPolicy = errors.New("conformance: invalid network policy")

// policy decodes a policy in the public form, which JavaScript shares.
func policy(raw json.RawMessage) (*sandbox.NetworkPolicy, error) {
	var p sandbox.NetworkPolicy
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, errors.Join(errInvalidPolicy, err)
	}
	return &p, nil
}

func opCreate(c *call) (any, error) {
	s, client, err := c.static()
	if err != nil {
		return nil, err
	}
	o, err := c.createOptions(s)
	if err != nil {
		return nil, err
	}
	return once(c, func() (*sandbox.Sandbox, error) { return client.Create(c.ctx, &o) })
}

func opFork(c *call) (any, error) {
	s, client, err := c.static()
	if err != nil {
		return nil, err
	}
	o, err := c.createOptions(s)
	if err != nil {
		return nil, err
	}
	fo := sandbox.CreateOptions{
		Name: o.Name, Ports: o.Ports, Timeout: o.Timeout, VCPUs: o.VCPUs, Image: o.Image, NetworkPolicy: o.NetworkPolicy,
		Env: o.Env, Tags: o.Tags, Ephemeral: o.Ephemeral, SnapshotExpiration: o.SnapshotExpiration,
		KeepLastSnapshots: o.KeepLastSnapshots, Region: o.Region, FailoverRegions: o.FailoverRegions, NetworkID: o.NetworkID,
		Mounts: o.Mounts, OnResume: o.OnResume, Private: o.Private,
	}
	return once(c, func() (*sandbox.Sandbox, error) { return client.Fork(c.ctx, s.text("sourceSandbox"), &fo) })
}

func (c *call) getOptions(s statics) (sandbox.GetOptions, error) {
	o := sandbox.GetOptions{OnResume: c.sandboxHook(s, "onResume"), Private: s.private()}
	var err error
	o.NoResume, err = s.noResume()
	return o, err
}

func opGet(c *call) (any, error) {
	s, client, err := c.static()
	if err != nil {
		return nil, err
	}
	o, err := c.getOptions(s)
	if err != nil {
		return nil, err
	}
	return client.Get(c.ctx, s.text("name"), &o)
}

func opGetOrCreate(c *call) (any, error) {
	s, client, err := c.static()
	if err != nil {
		return nil, err
	}
	create, err := c.createOptions(s)
	if err != nil {
		return nil, err
	}
	create.Name = ""
	o := create
	o.OnCreate = c.sandboxHook(s, "onCreate")
	if o.NoResume, err = s.noResume(); err != nil {
		return nil, err
	}
	return once(c, func() (*sandbox.Sandbox, error) { return client.GetOrCreate(c.ctx, s.text("name"), &o) })
}

// listing says which items and fields of a listing a step wants.
type listing struct {
	Collect string   `json:"collect"`
	Take    *int     `json:"take"`
	Pick    []string `json:"pick"`
}

func (s statics) listing() (listing, error) {
	var l listing
	return l, errors.Join(s.get("collect", &l.Collect), s.get("take", &l.Take), s.get("pick", &l.Pick))
}

// item converts an item of a listing to a result with only the selected fields.
func (l listing) item(v map[string]any) any {
	v = normDeep(v).(map[string]any)
	if l.Pick == nil {
		return v
	}
	out := map[string]any{}
	for _, k := range l.Pick {
		out[k] = v[k]
	}
	return out
}

// gather lists items the way the step wants. extra returns what a page has
// besides its items.
func gather[T any](
	c *call, l listing, key string, first func() (*sandbox.Page[T], error), all iter.Seq2[T, error],
	item func(T) map[string]any, extra func(page *sandbox.Page[T], out map[string]any),
) (any, error) {
	onePage := func(p *sandbox.Page[T]) map[string]any {
		items := []any{}
		for _, it := range p.Items {
			items = append(items, l.item(item(it)))
		}
		out := map[string]any{key: items, "pagination": pagination(p.Count, p.Next)}
		if extra != nil {
			extra(p, out)
		}
		return out
	}
	limit := -1
	if l.Take != nil {
		limit = *l.Take
	}
	out := []any{}
	if l.Collect == "toArray" {
		list, err := sandbox.Collect(all)
		if err != nil {
			return nil, err
		}
		for _, it := range list {
			out = append(out, l.item(item(it)))
		}
		return out, nil
	}
	p, err := first()
	if err != nil {
		return nil, err
	}
	switch l.Collect {
	case "", "first":
		return onePage(p), nil
	case "pages":
		if limit == 0 {
			return out, nil
		}
		for page, err := range p.Pages(c.ctx) {
			if err != nil {
				c.partial = out
				return nil, err
			}
			if out = append(out, onePage(page)); len(out) == limit {
				break
			}
		}
		return out, nil
	case "items":
		if limit == 0 {
			return out, nil
		}
		for it, err := range p.All(c.ctx) {
			if err != nil {
				c.partial = out
				return nil, err
			}
			if out = append(out, l.item(item(it))); len(out) == limit {
				break
			}
		}
		return out, nil
	default:
		return nil, fmt.Errorf("conformance: unknown way to collect: %q", l.Collect)
	}
}

func pagination(count int, next string) map[string]any {
	out := map[string]any{"count": float64(count), "next": nil}
	if next != "" {
		out["next"] = next
	}
	return out
}
