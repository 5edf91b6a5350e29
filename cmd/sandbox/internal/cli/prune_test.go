package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/sandboxtest"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestUnusedSnapshots has a row for each reason why a snapshot stays.
func TestUnusedSnapshots(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Unix(0, 0).Add(time.Duration(minute) * time.Minute) }
	snap := func(id, parent string, taken, used int) sandbox.SnapshotInfo {
		return sandbox.SnapshotInfo{ID: id, ParentID: parent, Status: "created", CreatedAt: at(taken), LastUsedAt: at(used)}
	}
	gone := snap("other", "a", 3, 3)
	gone.Status = "deleted"
	for name, test := range map[string]struct {
		own, others []sandbox.SnapshotInfo
		used        string
		olderThan   time.Duration
		want        []string
	}{
		"one that nothing uses goes":            {own: []sandbox.SnapshotInfo{snap("a", "", 1, 1)}, want: []string{"a"}},
		"a line of its own goes":                {own: []sandbox.SnapshotInfo{snap("a", "", 1, 2), snap("b", "a", 3, 3)}, want: []string{"a", "b"}},
		"another sandbox starts from it":        {own: []sandbox.SnapshotInfo{snap("a", "", 1, 1)}, used: "a"},
		"another snapshot comes from it":        {own: []sandbox.SnapshotInfo{snap("a", "", 1, 1)}, others: []sandbox.SnapshotInfo{snap("other", "a", 3, 3)}},
		"one that stays comes from it":          {own: []sandbox.SnapshotInfo{snap("a", "", 1, 2), snap("b", "a", 3, 3)}, used: "b"},
		"a deleted one came from it":            {own: []sandbox.SnapshotInfo{snap("a", "", 1, 1)}, others: []sandbox.SnapshotInfo{gone}, want: []string{"a"}},
		"something that is gone started of it":  {own: []sandbox.SnapshotInfo{snap("a", "", 1, 2)}},
		"the same, beside its own line":         {own: []sandbox.SnapshotInfo{snap("a", "", 1, 4), snap("b", "a", 3, 3)}, want: []string{"b"}},
		"it is too young":                       {own: []sandbox.SnapshotInfo{snap("a", "", 1, 1)}, olderThan: time.Hour},
		"another one's snapshot is not touched": {own: nil, others: []sandbox.SnapshotInfo{snap("other", "", 1, 1)}},
	} {
		all := append(append([]sandbox.SnapshotInfo{}, test.own...), test.others...)
		got := unusedSnapshots(test.own, all, map[string]bool{test.used: true}, test.olderThan, at(30))
		assert.ElementsMatch(t, test.want, mapped(got, func(s sandbox.SnapshotInfo) string { return s.ID }), name)
	}
}

// TestUnusedMeanwhile makes a sandbox from a snapshot between two requests of the
// search for snapshots that nothing uses.
func TestUnusedMeanwhile(t *testing.T) {
	t.Parallel()
	server := sandboxtest.New(t, nil)
	sb, err := server.Client().Create(t.Context(), nil)
	require.NoError(t, err)
	stopped, err := sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, sb.Delete(t.Context(), nil))
	var once sync.Once
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		Credentials: auth.Static(server.Credentials()), BaseURL: server.URL,
		HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := http.DefaultTransport.RoundTrip(r)
			once.Do(func() {
				_, err := server.Client().Create(t.Context(), &sandbox.CreateOptions{Source: &sandbox.SnapshotSource{SnapshotID: stopped.Snapshot.ID}})
				assert.NoError(t, err)
			})
			return resp, err
		})},
	})
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	a := newApp(nil)
	a.client = client
	p := &snapshotsPruneCommand{app: a}
	unused, err := p.unused(t.Context())
	require.NoError(t, err)
	assert.Empty(t, unused)
}

// TestPruneNeedsTheListing: where the snapshots of a sandbox can't be listed, none
// goes.
func TestPruneNeedsTheListing(t *testing.T) {
	const box = `{"sandboxes":[{"name":"box","status":"stopped","createdAt":1}],"pagination":{"count":1,"next":null}}`
	const snapshots = `{"snapshots":[{"id":"snap_a","status":"created","creationMethod":"automatic","createdAt":1}],"pagination":{"count":1,"next":null}}`
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, http.MethodGet, r.Method)
		w.Header().Set("Content-Type", "application/json")
		switch asked++; {
		case strings.HasSuffix(r.URL.Path, "/v2/sandboxes"):
			_, _ = io.WriteString(w, box)
		case r.URL.Query().Get("name") != "":
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error":{"code":"forbidden","message":"not yours"}}`)
		default:
			_, _ = io.WriteString(w, snapshots)
		}
	}))
	defer srv.Close()
	for name, value := range map[string]string{
		"HOME": t.TempDir(), "VERCEL_SANDBOX_BASE_URL": srv.URL + "/api", "VERCEL_TOKEN": "t", "VERCEL_TEAM_ID": "team_a", "VERCEL_PROJECT_ID": "prj_a",
	} {
		t.Setenv(name, value)
	}
	t.Chdir(t.TempDir())
	a := newApp([]string{"snapshots", "prune", "--dry-run"})
	err := a.execute(t.Context(), a.rootCommand())
	require.ErrorContains(t, err, "not yours", "%d requests", asked)
}
