package promises_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// commonRows are the rows that create, fork and update share.
var commonRows = []row{
	{field: "Ports", value: []int{3001, 8080}, sent: `{"ports":[3001,8080]}`, state: "none", info: hidden{}, reads: func(t *testing.T, w *world, handle any) {
		sb := handle.(*sandbox.Sandbox)
		require.NoError(t, sb.CurrentSession().Refresh(t.Context()))
		for _, routes := range [][]sandbox.Route{sb.Routes(), sb.CurrentSession().Routes()} {
			ports := []int{}
			for _, r := range routes {
				ports = append(ports, r.Port)
			}
			assert.Equal(t, []int{3001, 8080}, ports)
		}
	}},
	{field: "NetworkPolicy", value: sandbox.DenyAll(), sent: `{"networkPolicy":{"mode":"deny-all"}}`},
	{
		field: "NetworkPolicy", value: &sandbox.NetworkPolicy{Allow: []string{"a.example", "*.b.example"}},
		sent:  `{"networkPolicy":{"allow":["a.example","*.b.example"]}}`,
		state: `{"networkPolicy":{"mode":"custom","allowedDomains":["a.example","*.b.example"]}}`,
	},
	{
		field: "NetworkPolicy",
		value: &sandbox.NetworkPolicy{Allow: []string{"c.example"}, AllowSubnets: []string{"10.1.0.0/16"}, DenySubnets: []string{"10.2.0.0/16"}},
		sent:  `{"networkPolicy":{"allow":["c.example"],"subnets":{"allow":["10.1.0.0/16"],"deny":["10.2.0.0/16"]}}}`,
		state: `{"networkPolicy":{"mode":"custom","allowedDomains":["c.example"],"allowedCIDRs":["10.1.0.0/16"],"deniedCIDRs":["10.2.0.0/16"]}}`,
	},
	policyOf("exact", func(s string) *sandbox.PolicyMatcher { return &sandbox.PolicyMatcher{Exact: &s} }),
	policyOf("startsWith", func(s string) *sandbox.PolicyMatcher { return &sandbox.PolicyMatcher{StartsWith: &s} }),
	policyOf("regex", func(s string) *sandbox.PolicyMatcher { return &sandbox.PolicyMatcher{Regex: &s} }),
	{field: "Env", value: sandbox.Env{"FIELD": "value"}, sent: `{"env":{"FIELD":"value"}}`, state: "none", info: hidden{}, reads: hasEnv},
	{field: "Env", value: sandbox.Env{}, sent: `{"env":{}}`, state: "none", info: hidden{}},
	{field: "Tags", value: map[string]string{"team": "sdk", "kind": "test"}, sent: `{"tags":{"team":"sdk","kind":"test"}}`},
	{field: "Tags", value: map[string]string{}, sent: `{"tags":{}}`, state: `{"tags":null}`, info: map[string]string(nil)},
	{field: "Timeout", value: 17 * time.Minute, sent: `{"timeout":1020000}`},
	{field: "FailoverRegions", value: []string{"lhr1", "cdg1"}, sent: `{"failoverRegions":["lhr1","cdg1"]}`},
	{field: "FailoverRegions", value: []string{}, sent: `{"failoverRegions":[]}`},
	{
		field: "Mounts", value: map[string]sandbox.Mount{"/data": {Drive: "disk", Mode: sandbox.MountReadWrite}},
		sent: `{"mounts":{"/data":{"drive":"disk","mode":"read-write"}}}`,
	},
	{field: "Mounts", value: map[string]sandbox.Mount{}, sent: `{"mounts":{}}`, state: `{"mounts":null}`, info: map[string]sandbox.Mount(nil)},
	{field: "Region", value: "fra1", sent: `{"region":"fra1"}`}, // after the drive, which is in another region
	{field: "SnapshotExpiration", value: 72 * time.Hour, sent: `{"snapshotExpiration":259200000}`},
	{field: "SnapshotExpiration", value: sandbox.Forever, sent: `{"snapshotExpiration":0}`},
	{
		field: "KeepLastSnapshots", value: &sandbox.KeepLastSnapshots{Count: 3, Expiration: 48 * time.Hour, KeepEvicted: true},
		sent: `{"keepLastSnapshots":{"count":3,"expiration":172800000,"deleteEvicted":false}}`,
	},
}

// policyOf returns a row with all kinds of rules. All matchers are of one kind, and each
// value occurs once.
func policyOf(kind string, match func(string) *sandbox.PolicyMatcher) row {
	matches := func(i int) *sandbox.PolicyMatch {
		at := func(part string) *sandbox.PolicyMatcher { return match(fmt.Sprintf("/%s%d", part, i)) }
		return &sandbox.PolicyMatch{
			Path: at("path"), Method: []string{"GET", "PUT"},
			QueryString: []sandbox.PolicyKeyValueMatcher{{Key: at("qk"), Value: at("qv")}},
			Headers:     []sandbox.PolicyKeyValueMatcher{{Key: at("hk"), Value: at("hv")}},
		}
	}
	matched := func(i int) string {
		return strings.NewReplacer("KIND", kind, "#", fmt.Sprint(i)).Replace(`{"path":{"KIND":"/path#"},"method":["GET","PUT"],` +
			`"queryString":[{"key":{"KIND":"/qk#"},"value":{"KIND":"/qv#"}}],"headers":[{"key":{"KIND":"/hk#"},"value":{"KIND":"/hv#"}}]}`)
	}
	const response = `{"statusCode":418,"headers":{"X-Pot":"tea"},"body":"short","contentType":"text/plain"}`
	seen := func(secret string) *sandbox.NetworkPolicy {
		return &sandbox.NetworkPolicy{Rules: map[string][]sandbox.PolicyRule{
			"in.example": {{Match: matches(1), Transform: []sandbox.PolicyTransform{{Headers: sandbox.PolicyHeaders{"X-Key": secret}}}}},
			"to.example": {{Match: matches(2), ForwardURL: "https://proxy.example/way"}},
			"re.example": {{Match: matches(3), Response: &sandbox.PolicyResponse{
				StatusCode: 418, Headers: map[string]string{"X-Pot": "tea"}, Body: new("short"), ContentType: "text/plain",
			}}},
		}}
	}
	return row{
		field: "NetworkPolicy", value: seen("hush"),
		sent: `{"networkPolicy":{"allow":{
			"in.example":[{"match":` + matched(1) + `,"transform":[{"headers":{"X-Key":"hush"}}]}],
			"to.example":[{"match":` + matched(2) + `,"forwardURL":"https://proxy.example/way"}],
			"re.example":[{"match":` + matched(3) + `,"response":` + response + `}]}}}`,
		state: `{"networkPolicy":{"mode":"custom",
			"injectionRules":[{"domain":"in.example","headerNames":["X-Key"],"match":` + matched(1) + `}],
			"forwardRules":[{"domain":"to.example","forwardURL":"https://proxy.example/way","match":` + matched(2) + `}],
			"responseRules":[{"domain":"re.example","match":` + matched(3) + `,"response":` + response + `}]}}`,
		info: seen("<redacted>"),
	}
}

// hasEnv runs a program to look for the variable, because no response has it.
func hasEnv(t *testing.T, w *world, handle any) {
	sb := handle.(*sandbox.Sandbox)
	if w.box != nil && sb.Name() == w.box.Name() { // an update takes effect in the next session
		_, err := sb.Stop(t.Context(), nil)
		require.NoError(t, err)
	}
	assert.Equal(t, "value\n", testkit.Output(t, sb, "printenv", "FIELD"))
}

// creationRows are the rows that create and fork share.
var creationRows = append(slices.Clone(commonRows), []row{
	{field: "KeepLastSnapshots", value: &sandbox.KeepLastSnapshots{Count: 7}, sent: `{"keepLastSnapshots":{"count":7}}`},
	{field: "Name", value: "a-name_1", sent: `{"name":"a-name_1"}`},
	{field: "VCPUs", value: 4, sent: `{"resources":{"vcpus":4}}`, state: `{"vcpus":4,"memory":8192}`},
	{
		field: "Image", value: "vercel/sandbox/ubuntu", sent: `{"image":"vercel/sandbox/ubuntu"}`, state: "none", info: hidden{},
		reads: func(t *testing.T, w *world, handle any) {
			sb := handle.(*sandbox.Sandbox)
			state, ok := w.state(t, sb.Name()).(map[string]any)
			require.True(t, ok)
			assert.Contains(t, sb.Info().Image, "vercel/sandbox/ubuntu@sha256:") // the API pins it
			assert.Equal(t, state["image"], sb.Info().Image)
		},
	},
	{field: "NetworkID", value: "net_123", sent: `{"networkId":"net_123"}`},
	{field: "Extra", value: map[string]any{"__one": []any{1, "a"}}, sent: `{"__one":[1,"a"]}`, state: "none", info: hidden{}},
}...)

var snapshotSource = func(w *world) any { return sandbox.SnapshotSource{SnapshotID: w.snapshot} }

const (
	elsewhere = "the emulator would fetch it from the network"
	guarded   = "no response shows it: TestNPMCredentials"
)

// forkRows are the rows of Fork.
var forkRows = append(slices.Clone(creationRows), []row{
	{field: "Persistent", value: new(false), sent: `{"persistent":false}`, info: false},
}...)

// createRows are the rows of Create and GetOrCreate.
var createRows = append(slices.Clone(creationRows), []row{
	{field: "Ephemeral", value: true, sent: `{"persistent":false}`, info: hidden{}, reads: func(t *testing.T, _ *world, sb any) {
		assert.False(t, sb.(*sandbox.Sandbox).Info().Persistent)
	}},
	{field: "Architecture", value: "arm64", sent: `{"architecture":"arm64"}`},
	{field: "Runtime", value: "node24", sent: `{"runtime":"node24"}`, at: "POST /v2/sandboxes"},
	{
		field: "Source", value: snapshotSource, sent: `{"source":{"type":"snapshot","snapshotId":"SNAPSHOT"}}`,
		state: "none", info: hidden{}, reads: func(t *testing.T, w *world, handle any) {
			sb := handle.(*sandbox.Sandbox)
			assert.Equal(t, w.snapshot, sb.CurrentSession().Info().SourceSnapshotID)
		},
	},
	{
		field: "Source", value: sandbox.GitSource{URL: "https://git.example/a.git", Depth: 3, Revision: "main"}, alone: elsewhere,
		sent: `{"source":{"type":"git","url":"https://git.example/a.git","depth":3,"revision":"main"}}`,
	},
	{
		field: "Source", value: sandbox.GitSource{URL: "https://git.example/b.git", Username: "who", Password: "pass"}, alone: elsewhere,
		sent: `{"source":{"type":"git","url":"https://git.example/b.git","username":"who","password":"pass"}}`,
	},
	{
		field: "Source", value: sandbox.TarballSource{URL: "https://files.example/c.tgz"}, alone: elsewhere,
		sent: `{"source":{"type":"tarball","url":"https://files.example/c.tgz"}}`,
	},
	{field: "Credentials", value: &sandbox.Credentials{NPM: true}, alone: guarded, sent: `{"credentials":{"npm":true}}`},
	{
		field: "Credentials", value: &sandbox.Credentials{Extra: map[string]any{"later": []any{"a"}}}, alone: guarded,
		sent: `{"credentials":{"later":["a"]}}`,
	},
}...)

// source creates the sandbox that is forked or updated, and a snapshot of it.
func source(t *testing.T, w *world) {
	if w.box != nil {
		return
	}
	box, err := w.client.Create(t.Context(), &sandbox.CreateOptions{Timeout: 10 * time.Minute, Name: "box"})
	require.NoError(t, err)
	snapshot, err := box.Snapshot(t.Context(), nil)
	require.NoError(t, err)
	w.box, w.snapshot = box, snapshot.ID()
}

// makeBox creates the sandbox without a snapshot.
func makeBox(t *testing.T, w *world) {
	if w.box == nil {
		var err error
		w.box, err = w.client.Create(t.Context(), &sandbox.CreateOptions{Timeout: 10 * time.Minute, Name: "box"})
		require.NoError(t, err)
	}
}

// running creates both and starts the sandbox.
func running(t *testing.T, w *world) {
	source(t, w)
	var err error
	w.box, err = w.client.Get(t.Context(), "box", nil)
	require.NoError(t, err)
}

func TestCreate(t *testing.T) {
	t.Parallel()
	create := method{
		name: "Create", opts: &sandbox.CreateOptions{}, request: "POST /v3/sandboxes", rows: createRows, before: source,
		call: func(w *world, opts any) (any, error) {
			return w.client.Create(w.ctx, opts.(*sandbox.CreateOptions))
		},
		local: map[string]func(*testing.T, *world, method){
			"WaitForImage": waitForImage, "OnCreate": onCreate, "OnResume": onResume,
		},
		never: map[string]string{"NoResume": "a new sandbox runs"},
	}
	create.test(t)
}

func TestGetOrCreate(t *testing.T) {
	t.Parallel()
	rows := slices.DeleteFunc(slices.Clone(createRows), func(r row) bool { return r.field == "Name" || r.alone != "" })
	getOrCreate := method{
		name: "GetOrCreate", opts: &sandbox.CreateOptions{}, request: "POST /v3/sandboxes", rows: rows, byDay: 4,
		before: func(t *testing.T, w *world) {
			source(t, w)
			if err := w.client.Delete(t.Context(), "taken", nil); !errors.Is(err, sandbox.ErrNotFound) {
				require.NoError(t, err)
			}
		},
		call: func(w *world, opts any) (any, error) {
			return w.client.GetOrCreate(w.ctx, "taken", opts.(*sandbox.CreateOptions))
		},
		local: map[string]func(*testing.T, *world, method){
			"WaitForImage": waitForImage, "OnCreate": onCreate, "OnResume": onResume,
			"NoResume": func(t *testing.T, w *world, m method) {
				_, _, handle := m.play(t, w, "", nil)
				sb := handle.(*sandbox.Sandbox)
				testkit.StopElsewhere(t, w.srv, sb)
				for _, opts := range []struct {
					noResume bool
					status   sandbox.Status
				}{{true, sandbox.StatusStopped}, {false, sandbox.StatusRunning}} {
					again, err := m.call(w, &sandbox.CreateOptions{NoResume: opts.noResume})
					require.NoError(t, err)
					assert.Equal(t, opts.status, again.(*sandbox.Sandbox).Status())
				}
			},
		},
		never: map[string]string{
			"Name": "the argument is the name", "Credentials.NPM": guarded, "Credentials.Extra": guarded,
			"Source(GitSource).URL": elsewhere, "Source(GitSource).Username": elsewhere, "Source(GitSource).Password": elsewhere,
			"Source(GitSource).Depth": elsewhere, "Source(GitSource).Revision": elsewhere, "Source(TarballSource).URL": elsewhere,
		},
	}
	getOrCreate.test(t)
}

// allowEmpty returns a fork of a source that was never saved.
func allowEmpty(t *testing.T, w *world, m method) {
	m.before(t, w)
	_, err := m.call(w, m.with(w, map[string]any{"AllowEmpty": true}))
	require.NoError(t, err)
}

func TestFork(t *testing.T) {
	t.Parallel()
	fork := method{
		name: "Fork", opts: &sandbox.ForkOptions{}, request: "POST /v2/sandboxes/SANDBOX/fork", rows: forkRows, before: makeBox, // without a snapshot, which would bind it to a region
		call: func(w *world, opts any) (any, error) {
			o := *opts.(*sandbox.ForkOptions)
			o.AllowEmpty = true
			return w.client.Fork(w.ctx, w.box.Name(), &o)
		},
		local: map[string]func(*testing.T, *world, method){
			"WaitForImage": waitForImage, "OnResume": onResume, "AllowEmpty": allowEmpty,
		},
	}
	fork.test(t)
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	rows := slices.Clone(commonRows)
	for i := range rows {
		switch r := &rows[i]; r.field {
		case "Timeout":
			r.also = []string{`POST /v2/sandboxes/sessions/SESSION/extend-timeout {"duration":420000}`}
		case "NetworkPolicy":
			r.also = []string{"POST /v2/sandboxes/sessions/SESSION/network-policy " + policyBody(t, r.sent)}
		}
	}
	rows = append(rows, []row{
		{field: "Persistent", value: new(false), sent: `{"persistent":false}`},
		{field: "Extra", value: map[string]any{"__two": "b"}, sent: `{"__two":"b"}`, state: "none", info: hidden{}},
		{field: "VCPUs", value: 4, sent: `{"resources":{"vcpus":4,"memory":8192}}`, state: `{"vcpus":4,"memory":8192}`},
		{field: "NetworkID", value: new("net_123"), sent: `{"networkId":"net_123"}`},
		{field: "NetworkID", value: new(""), sent: `{"networkId":null}`},
		{field: "KeepLastSnapshots", value: &sandbox.KeepLastSnapshots{Count: 7}, sent: `{"keepLastSnapshots":{"count":7,"deleteEvicted":true}}`},
		{field: "KeepLastSnapshots", value: &sandbox.KeepLastSnapshots{}, sent: `{"keepLastSnapshots":null}`, info: (*sandbox.KeepLastSnapshots)(nil)},
		{field: "Ports", value: []int{}, sent: `{"ports":[]}`, state: "none", info: hidden{}},
		{
			field: "CurrentSnapshotID", value: func(w *world) any { return w.snapshot }, sent: `{"currentSnapshotId":"SNAPSHOT"}`,
		},
	}...)
	update := method{
		name: "Update", opts: &sandbox.UpdateOptions{}, request: "PATCH /v2/sandboxes/SANDBOX", rows: rows, before: running,
		call: func(w *world, opts any) (any, error) {
			return w.box, w.box.Update(w.ctx, opts.(*sandbox.UpdateOptions))
		},
	}
	update.test(t)
}

// policyBody returns the policy in the body of a request.
func policyBody(t *testing.T, sent string) string {
	v, ok := decoded(t, sent).(map[string]any)
	require.True(t, ok)
	text, err := json.Marshal(v["networkPolicy"])
	require.NoError(t, err)
	return string(text)
}

// waitForImage tests what happens while the image is being prepared.
func waitForImage(t *testing.T, w *world, m method) {
	source(t, w)
	for _, wait := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		w.set(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost {
				defer cancel() // ends the wait
				return canned.JSON(409, `{"error":{"code":"image_not_ready","message":"not yet"}}`), nil
			}
			return canned.JSON(404, `{"error":{"code":"not_found","message":"no"}}`), nil
		})
		w.ctx = ctx
		_, err := m.call(w, m.with(w, map[string]any{"WaitForImage": wait, "Image": "mine"}))
		require.ErrorIs(t, err, sandbox.ErrImageNotReady)
		assert.Equal(t, wait, errors.Is(err, context.Canceled), "waits: %v", err)
	}
}

func onCreate(t *testing.T, w *world, m method) {
	var made *sandbox.Sandbox
	_, _, handle := m.play(t, w, "", map[string]any{"OnCreate": sandbox.Hook(func(_ context.Context, sb *sandbox.Sandbox) error {
		made = sb
		return nil
	})})
	require.NotNil(t, made)
	assert.Equal(t, handle.(*sandbox.Sandbox).Name(), made.Name())
}

func onResume(t *testing.T, w *world, m method) {
	running(t, w)
	resumed := 0
	_, _, handle := m.play(t, w, "", map[string]any{"OnResume": sandbox.Hook(func(context.Context, *sandbox.Sandbox) error {
		resumed++
		return nil
	})})
	sb := handle.(*sandbox.Sandbox)
	assert.Zero(t, resumed, "this call did not resume it")
	testkit.StopElsewhere(t, w.srv, sb)
	testkit.Output(t, sb, "true")
	assert.Equal(t, 1, resumed)
}
