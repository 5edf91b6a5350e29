package canned_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/h2non/gock.v1"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// gockClient returns a client whose requests gock must all expect. Use it only for tests of
// single exchanges. Test everything else with the emulator or the recordings.
func gockClient(t *testing.T) *sandbox.Client {
	t.Helper()
	hc := &http.Client{}
	gock.DisableNetworking()
	gock.InterceptClient(hc)
	t.Cleanup(func() {
		assert.True(t, gock.IsDone(), "the client has not made all expected requests")
		gock.Off()
	})
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		HTTPClient: hc, BaseURL: "https://vercel.com/api", RetryWait: time.Millisecond,
		Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}),
	})
	require.NoError(t, err)
	return c
}

// gockReply makes gock reply to a GET with a file of testdata/rest.
func gockReply(path, file string) {
	gock.New("https://vercel.com").Get("^/api"+path+"$").
		MatchHeader("Authorization", "^Bearer tok$").MatchHeader("User-Agent", "^go-vercel-sandbox/").
		MatchParam("teamId", "^team$").
		Reply(http.StatusOK).SetHeader("Content-Type", "application/json").File("../../../testdata/rest/" + file)
}

func gockTime(seconds int64) time.Time { return time.Unix(1700000000+seconds, 0).UTC() }

func TestGettersOnAFullResponse(t *testing.T) {
	c := gockClient(t)
	gockReply("/v2/sandboxes/box", "sandbox-full.json")
	sb, err := c.Get(t.Context(), "box", nil)
	require.NoError(t, err)

	assert.Equal(t, "box", sb.Name())
	assert.Equal(t, sandbox.StatusRunning, sb.Status())
	assert.Equal(t, "/work", sb.Cwd())
	assert.Equal(t, gockTime(1+600), sb.ExpiresAt(), "the running session's start and timeout")
	assert.Equal(t, []sandbox.Route{
		{Port: 3000, URL: "https://abc-3000.vercel.run"}, {Port: 80, URL: "https://abc-80.vercel.run"},
	}, sb.Routes())
	address, err := sb.URL(80)
	require.NoError(t, err)
	assert.Equal(t, "https://abc-80.vercel.run", address)

	info := sb.Info()
	policy, err := json.Marshal(info.NetworkPolicy)
	require.NoError(t, err)
	assert.JSONEq(t, `{"allow":["a.com"],"subnets":{"deny":["10.0.0.0/8"]}}`, string(policy))
	info.NetworkPolicy = nil
	assert.Equal(t, sandbox.Info{
		Name: "box", Region: "iad1", VCPUs: 4, MemoryMB: 8192, Runtime: "node24", Image: "registry.example.com/app@sha256:1",
		Timeout: 5 * time.Minute, TotalEgressBytes: 10,
		TotalActiveCPU: 1500500 * time.Microsecond, TotalDuration: time.Minute,
		CreatedAt: gockTime(0), UpdatedAt: gockTime(1).Add(500 * time.Millisecond), ExpiresAt: gockTime(9000),
		CurrentSessionID: "sess_1", CurrentSnapshotID: "snap_1", Status: sandbox.StatusRunning, StatusUpdatedAt: gockTime(1),
		Cwd: "/vercel/sandbox", Tags: map[string]string{"team": "infra"}, SnapshotExpiration: sandbox.Forever,
		KeepLastSnapshots: &sandbox.KeepLastSnapshots{Count: 3, Expiration: time.Second, KeepEvicted: true},
	}, info)

	s := sb.CurrentSession()
	assert.Equal(t, "sess_1", s.ID())
	assert.Equal(t, sandbox.StatusRunning, s.Info().Status)
	session := s.Info()
	assert.Equal(t, sandbox.PolicyDenyAll, session.NetworkPolicy.Mode)
	assert.JSONEq(t, `{"x":1}`, string(session.Extra["future"]))
	session.Extra, session.NetworkPolicy = nil, nil
	assert.Equal(t, sandbox.SessionInfo{
		ID: "sess_1", MemoryMB: 8192, VCPUs: 4, Region: "iad1", Runtime: "node24", Timeout: 10 * time.Minute, Status: sandbox.StatusRunning,
		RequestedAt: gockTime(0), StartedAt: gockTime(1), RequestedStopAt: gockTime(2), StoppedAt: gockTime(3), AbortedAt: gockTime(4), SnapshottedAt: gockTime(5),
		CreatedAt: gockTime(0), UpdatedAt: gockTime(1).Add(500 * time.Millisecond), Duration: 2 * time.Second, SourceSnapshotID: "snap_0",
		Cwd: "/work", InteractivePort: 2222, ActiveCPU: 12 * time.Millisecond, IngressBytes: 1, EgressBytes: 2,
	}, session)
}

func TestGettersOnAMinimalResponse(t *testing.T) {
	c := gockClient(t)
	gockReply("/v2/sandboxes/box", "sandbox-minimal.json")
	sb, err := c.Get(t.Context(), "box", nil)
	require.NoError(t, err, "a missing field must not make a successful call fail")

	assert.Equal(t, sandbox.Info{Name: "box", Region: "iad1"}, sb.Info())
	assert.Equal(t, sandbox.SessionInfo{ID: "sess_1"}, sb.CurrentSession().Info())
	assert.Zero(t, sb.Status())
	assert.Zero(t, sb.ExpiresAt())
	assert.Empty(t, sb.Routes())
	assert.Empty(t, sb.Cwd())
	_, err = sb.URL(80)
	assert.ErrorIs(t, err, sandbox.ErrNoRoute)
	assert.ErrorContains(t, err, "port 80")
}

func TestSnapshotGetters(t *testing.T) {
	c := gockClient(t)
	gockReply("/v2/sandboxes/snapshots/snap_1", "snapshot-full.json")
	s, err := c.GetSnapshot(t.Context(), "snap_1")
	require.NoError(t, err)
	assert.Equal(t, sandbox.SnapshotInfo{
		ID: "snap_1", SourceSessionID: "sess_1", Region: "iad1", Regions: []string{"iad1"}, Status: "created", SizeBytes: 1024,
		ExpiresAt: gockTime(9000), CreatedAt: gockTime(0), UpdatedAt: gockTime(1), LastUsedAt: gockTime(2), CreationMethod: "manual", ParentID: "snap_0",
	}, s.Info())

	gockReply("/v2/sandboxes/snapshots/snap_1", "snapshot-minimal.json")
	s, err = c.GetSnapshot(t.Context(), "snap_1")
	require.NoError(t, err)
	assert.Equal(t, "snap_1", s.ID())
	assert.Equal(t, sandbox.SnapshotInfo{ID: "snap_1"}, s.Info())
}

func TestCommandGetters(t *testing.T) {
	c := gockClient(t)
	gockReply("/v2/sandboxes/box", "sandbox-full.json")
	sb, err := c.Get(t.Context(), "box", nil)
	require.NoError(t, err)

	gockReply("/v2/sandboxes/sessions/sess_1/cmd/cmd_1", "command-full.json")
	cmd, err := sb.GetCommand(t.Context(), "cmd_1")
	require.NoError(t, err)
	assert.Equal(t, "cmd_1", cmd.ID())
	assert.Equal(t, "sess_1", cmd.SessionID())
	assert.Equal(t, "node", cmd.Name())
	assert.Equal(t, []string{"-v"}, cmd.Args())
	assert.Equal(t, "/app", cmd.Cwd())
	assert.Equal(t, gockTime(2), cmd.StartedAt())
	code, exited := cmd.ExitStatus()
	assert.True(t, exited)
	assert.Equal(t, 3, code)
	took, known := cmd.Elapsed()
	assert.True(t, known)
	assert.Equal(t, 1500*time.Millisecond, took)

	gockReply("/v2/sandboxes/sessions/sess_1/cmd/cmd_1", "command-minimal.json")
	cmd, err = sb.GetCommand(t.Context(), "cmd_1")
	require.NoError(t, err)
	assert.Equal(t, "sess_1", cmd.SessionID(), "the session in the path of the request")
	assert.Empty(t, cmd.Name())
	assert.Empty(t, cmd.Args())
	assert.Zero(t, cmd.StartedAt())
	_, exited = cmd.ExitStatus()
	assert.False(t, exited)
	_, known = cmd.Elapsed()
	assert.False(t, known)
}

func TestErrorResponses(t *testing.T) {
	tests := []struct {
		name, body string
		status     int
		sent       int
		header     map[string]string
		is         []error
		want       sandbox.APIError
		text       string
	}{
		{
			name: "not found", status: 404, body: `{"error":{"code":"not_found","message":"Sandbox not found"}}`,
			header: map[string]string{"X-Vercel-Id": "iad1::x"}, is: []error{sandbox.ErrNotFound},
			want: sandbox.APIError{Status: 404, Code: "not_found", Message: "Sandbox not found", RequestID: "iad1::x"},
			text: `sandbox: get sandbox "box": Sandbox not found (status 404, code not_found, request iad1::x)`,
		},
		{
			name: "snapshot gone", status: 410, body: `{"error":{"code":"snapshot_not_found","message":"gone"}}`,
			is:   []error{sandbox.ErrSnapshotNotFound},
			want: sandbox.APIError{Status: 410, Code: "snapshot_not_found", Message: "gone"},
			text: `sandbox: get sandbox "box": gone (status 410, code snapshot_not_found); its files were never saved, as by an ephemeral sandbox or a session that failed before a stop, or their snapshot is gone: GetOrCreate makes it anew, Delete removes it`,
		},
		{
			name: "a policy with a fault in a rule", status: 400, body: `{"error":{"code":"bad_request","message":"Invalid request: should NOT have additional property ` + "`allow`" + `."}}`,
			want: sandbox.APIError{Status: 400, Code: "bad_request", Message: "Invalid request: should NOT have additional property `allow`."},
			text: "sandbox: get sandbox \"box\": Invalid request: should NOT have additional property `allow`. (status 400, code bad_request); " +
				"the service may say so of a network policy in which it does not accept a rule: look at the rules of its hosts",
		},
		{
			name: "asked to wait for long", status: 429, header: map[string]string{"Retry-After": "60"}, is: []error{sandbox.ErrRateLimited},
			want: sandbox.APIError{Status: 429, RetryAfter: time.Minute},
			text: `sandbox: get sandbox "box": the response is not the API's: too many requests without a code (status 429, retry after 1m0s)`,
		},
		{
			name: "the page of a gateway", status: 403, sent: 3, body: "<html>Forbidden</html>", header: map[string]string{"Content-Type": "text/html"},
			want: sandbox.APIError{Status: 403},
			text: `sandbox: get sandbox "box": the response is not the API's: forbidden without a code, content type text/html, Forbidden (status 403)`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := gockClient(t)
			gock.New("https://vercel.com").Get("^/api/v2/sandboxes/box$").Times(max(1, tt.sent)).Reply(tt.status).SetHeaders(tt.header).BodyString(tt.body)
			_, err := c.Get(t.Context(), "box", nil)
			for _, target := range tt.is {
				assert.ErrorIs(t, err, target)
			}
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok, "%v", err)
			assert.EqualError(t, err, tt.text)
			assert.Equal(t, tt.want.Status, e.Status)
			assert.Equal(t, tt.want.Code, e.Code)
			assert.Equal(t, tt.want.Message, e.Message)
			assert.Equal(t, tt.want.RequestID, e.RequestID)
			assert.Equal(t, tt.want.RetryAfter, e.RetryAfter)
			assert.Equal(t, "box", e.SandboxName)
			assert.Equal(t, tt.body, string(e.Body))
		})
	}
}
