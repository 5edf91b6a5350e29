package platform_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-vercel/sandbox/internal/testkit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// caller is the environment in which the tests were started: TestMain adds an
// emulator's credentials to it.
var caller = func() map[string]string {
	vars := map[string]string{}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	return vars
}()

// TestLive checks what docs/maintainers/platform.md says against the hosted service. It
// starts eight machines with one virtual CPU, for a few seconds each.
func TestLive(t *testing.T) {
	if caller["SANDBOX_LIVE"] != "1" {
		t.Skip("needs an account that pays for eight small machines: credentials, and SANDBOX_LIVE=1")
	}
	for _, name := range []string{"VERCEL_TOKEN", "VERCEL_TEAM_ID", "VERCEL_PROJECT_ID", "VERCEL_SANDBOX_BASE_URL"} {
		t.Setenv(name, caller[name])
	}
	creds, err := auth.Default(nil).Credentials(t.Context())
	require.NoError(t, err)
	newWalk(t, cmp.Or(caller["VERCEL_SANDBOX_BASE_URL"], "https://vercel.com/api"), creds).all()
}

// TestLiveWalkOnEmulator runs the steps of TestLive on the emulator, so that
// they are known to work once somebody has an account.
func TestLiveWalkOnEmulator(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	c := srv.Credentials()
	w := newWalk(t, srv.URL, auth.Credentials{Token: c.Token, TeamID: c.TeamID, ProjectID: c.ProjectID})
	// An earlier run that was killed left the first, and somebody else the second.
	_, err := w.client.Create(t.Context(), &sandbox.CreateOptions{Name: livePrefix + "old", Tags: liveTags})
	require.NoError(t, err)
	_, err = w.client.Create(t.Context(), &sandbox.CreateOptions{Name: livePrefix + "theirs"})
	require.NoError(t, err)
	_, err = w.client.GetOrCreateDrive(t.Context(), livePrefix+"old", nil)
	require.NoError(t, err)
	w.users, w.network = srv.Enforces().Users, srv.Mode() == sandboxtest.Namespace
	w.all()
	assert.Greater(t, len(w.rows), 50)
	w.sweep()
	var left []string
	for sb, err := range w.client.List(t.Context(), nil) {
		require.NoError(t, err)
		left = append(left, sb.Name)
	}
	for d, err := range w.client.ListDrives(t.Context(), nil) {
		require.NoError(t, err)
		left = append(left, "drive "+d.Name)
	}
	for s, err := range w.client.ListSnapshots(t.Context(), nil) {
		require.NoError(t, err)
		if s.Status != "deleted" {
			left = append(left, "snapshot "+s.ID)
		}
	}
	assert.Equal(t, []string{livePrefix + "theirs"}, left)
}

// Whatever the walk creates is recognized by its name and, where possible, its
// tags.
const livePrefix = "go-live-walk-"

var liveTags = map[string]string{"made-by": "go-live-walk"}

// liveRow is one checked response: what was checked, the source of the
// expectation, the expectation, and the result.
type liveRow struct{ asked, known, expected, came string }

// liveWalk follows the life of a sandbox and checks on the way what the client
// hides. Its steps continue when one of them fails.
type liveWalk struct {
	t      *testing.T
	ctx    context.Context
	client *sandbox.Client
	http   *http.Client
	base   string
	creds  auth.Credentials
	prefix string // of this run
	sb     *sandbox.Sandbox
	rows   []liveRow
	// users: there are root and the image's user. network: a sandbox has ports of
	// its own. The hosted service has both.
	users, network bool
}

func newWalk(t *testing.T, base string, creds auth.Credentials) *liveWalk {
	w := &liveWalk{t: t, ctx: t.Context(), http: &http.Client{Transport: testkit.Transport(t)}, base: strings.TrimSuffix(base, "/"), creds: creds, users: true, network: true}
	w.prefix = fmt.Sprintf("%s%x-", livePrefix, time.Now().UnixMilli())
	var err error
	w.client, err = sandbox.NewClient(&sandbox.ClientOptions{BaseURL: base, Credentials: auth.Static(creds), HTTPClient: w.http})
	require.NoError(t, err)
	return w
}

func (w *liveWalk) all() {
	w.sweep()
	w.t.Cleanup(w.sweep)
	var err error
	w.sb, err = w.client.Create(w.ctx, &sandbox.CreateOptions{
		Name: w.prefix + "life", VCPUs: 1, Timeout: 4 * time.Minute, Ports: []int{3000}, Ephemeral: true, Tags: liveTags,
	})
	require.NoError(w.t, err)
	for _, step := range []struct {
		name string
		take func(*liveWalk)
	}{
		{"create", (*liveWalk).created}, {"commands", (*liveWalk).commands}, {"ends", (*liveWalk).ends}, {"ids", (*liveWalk).ids},
		{"stdin", (*liveWalk).stdin}, {"files", (*liveWalk).files}, {"policy", (*liveWalk).policy}, {"settings", (*liveWalk).settings},
		{"snapshot", (*liveWalk).snapshot}, {"lost files", (*liveWalk).lostFiles}, {"drives", (*liveWalk).drives},
	} {
		w.t.Run(step.name, func(t *testing.T) {
			own := *w
			own.t, own.rows = t, nil
			defer func() { w.rows = append(w.rows, own.rows...) }()
			step.take(&own)
		})
	}
	w.print()
}

// print prints the table, with the differing rows marked.
func (w *liveWalk) print() {
	var text strings.Builder
	tab := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "\tasked\tknown from\texpected\tcame")
	for _, r := range w.rows {
		mark := ""
		if r.came != r.expected {
			mark = "DIFFERS"
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\n", mark, r.asked, r.known, r.expected, r.came)
	}
	require.NoError(w.t, tab.Flush())
	w.t.Logf("%d rows\n%s", len(w.rows), text.String())
}

const (
	observed  = "observed"
	published = "published"
	assumed   = "assumed"
)

func (w *liveWalk) row(asked, known, expected string, came any) {
	w.t.Helper()
	r := liveRow{asked, known, expected, fmt.Sprint(came)}
	w.rows = append(w.rows, r)
	assert.Equal(w.t, r.expected, r.came, "%s (%s)", asked, known)
}

// sweep deletes what this run and earlier ones created: sandboxes by prefix and
// tag, with their snapshots, and drives by prefix.
func (w *liveWalk) sweep() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), time.Minute)
	defer cancel()
	done := func(what string, err error) {
		assert.True(w.t, err == nil || errors.Is(err, sandbox.ErrNotFound), "%s is left: %v", what, err)
	}
	var sandboxes, snapshots, drives []string
	for sb, err := range w.client.List(ctx, &sandbox.ListOptions{NamePrefix: livePrefix}) {
		if !assert.NoError(w.t, err, "leftovers can't be looked for") {
			return
		}
		if sb.Tags["made-by"] == liveTags["made-by"] {
			sandboxes = append(sandboxes, sb.Name)
		}
	}
	for _, name := range sandboxes {
		for s, err := range w.client.ListSnapshots(ctx, &sandbox.ListSnapshotsOptions{Sandbox: name}) {
			if !assert.NoError(w.t, err, "snapshots of %s can't be looked for", name) {
				break
			}
			if s.Status != "deleted" {
				snapshots = append(snapshots, s.ID)
			}
		}
	}
	for _, name := range sandboxes {
		done(name, w.client.Delete(ctx, name, nil))
	}
	for _, id := range snapshots { // one may be the base of another, so it comes last
		s, err := w.client.GetSnapshot(ctx, id)
		if err == nil {
			err = s.Delete(ctx)
		}
		done("snapshot "+id, err)
	}
	for d, err := range w.client.ListDrives(ctx, &sandbox.ListDrivesOptions{NamePrefix: livePrefix}) {
		if errors.Is(err, sandbox.ErrUnauthorized) || errors.Is(err, sandbox.ErrNotFound) {
			return // drives are not enabled for the project
		}
		if !assert.NoError(w.t, err, "drives can't be looked for") {
			return
		}
		drives = append(drives, d.Name)
	}
	for _, name := range drives {
		d, err := w.client.GetDrive(ctx, name)
		if err == nil {
			err = d.Delete(ctx)
		}
		done("drive "+name, err)
	}
}

// liveReply is a response of the API; String returns its status and code.
type liveReply struct {
	status int
	header http.Header
	text   string
	body   map[string]any // of a JSON response
}

func (r liveReply) String() string {
	if code := r.at("error", "code"); code != "" {
		return fmt.Sprint(r.status, " ", code)
	}
	return fmt.Sprint(r.status)
}

// at returns a value within the response as text, or "" if it is missing.
func (r liveReply) at(keys ...string) string {
	var v any = r.body
	for _, key := range keys {
		object, _ := v.(map[string]any)
		v = object[key]
	}
	if v == nil {
		return ""
	}
	if text, ok := v.(string); ok {
		return text
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// ask sends a request without the client's checks. A body other than []byte is
// sent as JSON.
func (w *liveWalk) ask(method, path string, body any, header ...string) liveReply {
	w.t.Helper()
	u, err := url.Parse(w.base + path)
	require.NoError(w.t, err)
	q := u.Query()
	q.Set("teamId", w.creds.TeamID)
	u.RawQuery = q.Encode()
	data, raw := body.([]byte)
	if !raw && body != nil {
		data, err = json.Marshal(body)
		require.NoError(w.t, err)
	}
	req, err := http.NewRequestWithContext(w.ctx, method, u.String(), bytes.NewReader(data))
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "Bearer "+w.creds.Token)
	req.Header.Set("User-Agent", "go-vercel-sandbox-live-test")
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return w.do(req)
}

func (w *liveWalk) do(req *http.Request) liveReply {
	w.t.Helper()
	resp, err := w.http.Do(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	require.NoError(w.t, err)
	r := liveReply{status: resp.StatusCode, header: resp.Header, text: string(text)}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		require.NoError(w.t, json.Unmarshal(text, &r.body), "%s", text)
	}
	return r
}

type body = map[string]any

// session returns the path of a route of the walk's session.
func (w *liveWalk) session(rest string) string {
	return "/v2/sandboxes/sessions/" + w.sb.CurrentSession().ID() + rest
}

// named returns the path of a route of a sandbox.
func (w *liveWalk) named(name, rest string) string {
	return "/v2/sandboxes/" + name + rest + "?projectId=" + url.QueryEscape(w.creds.ProjectID)
}

// sh runs a script and returns its output and exit code.
func (w *liveWalk) sh(script string, opts *sandbox.CommandOptions) string {
	w.t.Helper()
	done, err := w.sb.RunCommand(w.ctx, "sh", []string{"-c", script}, opts)
	require.NoError(w.t, err)
	out, err := done.Output(w.ctx)
	require.NoError(w.t, err)
	return fmt.Sprintf("%s, exit code %d", strings.Join(strings.Fields(out), " "), done.ExitCode)
}

// start starts a detached command and returns the path of its resource.
func (w *liveWalk) start(script string, more body) string {
	w.t.Helper()
	params := body{"command": "sh", "args": []string{"-c", script}, "env": body{}, "sudo": false}
	maps.Copy(params, more)
	r := w.ask("POST", w.session("/cmd"), params)
	require.Equal(w.t, 200, r.status, "%s", r.text)
	return w.session("/cmd/" + r.at("command", "id"))
}

func (w *liveWalk) exitCode(path string) string {
	w.t.Helper()
	return cmp.Or(w.ask("GET", path, nil).at("command", "exitCode"), "none")
}

func (w *liveWalk) waited(path string) string {
	w.t.Helper()
	return cmp.Or(w.ask("GET", path+"?wait=true", nil).at("command", "exitCode"), "none")
}
