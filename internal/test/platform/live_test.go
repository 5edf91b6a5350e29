package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/needs"
	platform "github.com/go-vercel/sandbox/internal/test/platform"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// judge logs the answers. The test fails if one differs from the expected answer.
func judge(t *testing.T, report *platform.Report) {
	t.Helper()
	var text strings.Builder
	tab := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "\tasked\tknown from\texpected\tcame")
	for _, a := range report.Answers {
		mark := ""
		if !a.Agrees() {
			mark = "DIFFERS"
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\n", mark, a.Asked, a.Known, a.Expected, a.Came)
		assert.Equal(t, a.Expected, a.Came, "%s (%s)", a.Asked, a.Known)
	}
	require.NoError(t, tab.Flush())
	t.Logf("%d rows\n%s", len(report.Answers), text.String())
	assert.Empty(t, report.Broken)
	assert.Empty(t, report.Left)
}

// askEmulator asks an emulator all questions, with the given transport.
func askEmulator(t *testing.T, srv *sandboxtest.Server, rt http.RoundTripper) *platform.Report {
	t.Helper()
	c := srv.Credentials()
	report, err := platform.Ask(t.Context(), platform.Service{
		URL: srv.URL, Credentials: auth.Credentials{Token: c.Token, TeamID: c.TeamID, ProjectID: c.ProjectID},
		HTTPClient: &http.Client{Transport: rt}, Users: srv.Enforces().Users, Apart: srv.Enforces().Files, Policies: srv.Enforces().Policies,
		Within: 10 * time.Minute, // long enough for a busy machine
	})
	require.NoError(t, err)
	return report
}

// TestAskEmulator: the emulator gives the answers of platform.md to all questions. Ask
// deletes all objects except for those of another user.
func TestAskEmulator(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	client := srv.Client()
	// Create an object of an earlier run that was killed, and one of another user.
	_, err := client.Create(t.Context(), &sandbox.CreateOptions{Name: platform.Prefix + "old", Tags: map[string]string{"made-by": "go-live-walk"}})
	require.NoError(t, err)
	_, err = client.Create(t.Context(), &sandbox.CreateOptions{Name: platform.Prefix + "theirs"})
	require.NoError(t, err)
	_, err = client.GetOrCreateDrive(t.Context(), platform.Prefix+"old", nil)
	require.NoError(t, err)
	report := askEmulator(t, srv, testkit.Transport(t))
	judge(t, report)
	assert.Greater(t, len(report.Answers), 90)
	if srv.Mode() == sandboxtest.Namespace {
		assert.Empty(t, report.Skipped)
	}
	assert.Equal(t, []string{platform.Prefix + "theirs"}, leftOf(t, client))
	t.Run("rows of platform.md", func(t *testing.T) {
		if e := srv.Enforces(); !e.Users || !e.Policies {
			needs.Other(t, "without users and network policies in sandboxes, Ask skips some rows")
		}
		checkRows(t, report)
	})
}

// unasked lists the rows of platform.md without a question, with the reasons: one account
// can't check them within seconds, or they are not about the service.
var unasked = map[string]string{
	"5: waits":  "takes three minutes if the service behaves differently",
	"7, 11, 15": "the limits are asked about by the rows of the emulator", "20: sends": "is about this client",
	"10: knows": "asked as \"a route returns 502\"", "19: reads": "asked as \"response rules are checked\"",
	"17: continues": ends, "a stream whose session ends": ends,
	"C1: looks": "asked as \"… `GET` by name or ID\"", "C2: rejects": "a drive in a second region costs more than the rest",
	"C3: asks": credentials, "`credentials.npm`": credentials, "… not in responses": credentials,
	"a sandbox is `running`": "a walk meets some of the states", "images universal": "a machine for each image",
	"an image of `Options.Images`": "images of the account's own", "other images are not found": "images of the account's own",
	"a git source": "needs a public repository", "… for Debian's tool": "in a branch",
	"an upload whose session ends": ends, "images have `sh`": "a machine for each image",
	"… mounts with failover regions": "not every plan has them", "`deleteOrphanSnapshots`": "takes effect later, there",
	"`Options.Realistic`": "measured, not asked", "responses are compressed": "the client asks for none",
	"Git and GitHub credentials":                                        "in branches",
	"`GET` of a sandbox or a session with `__includeSystemRoutes=true`": "changes the terminals' port",
}

const (
	ends        = "needs a session that ends meanwhile"
	credentials = "needs a team with npm credentials"
)

// checkRows checks that each row of platform.md has a question or is in unasked, unless it
// is marked as observed only. The row of each question must have the mark for the way in
// which its answer is known.
func checkRows(t *testing.T, report *platform.Report) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/maintainers/platform.md")
	require.NoError(t, err)
	rows := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (.+?) \| (.*?) \|.*\|$`).FindAllStringSubmatch(string(text), -1) {
		rows[m[1]] = m[2]
	}
	letters := map[string]string{"observed": "O", "published": "P", "documented": "D", "assumed": "A"}
	find := func(begin string) string {
		var found []string
		for row := range rows {
			if strings.HasPrefix(row, begin) {
				found = append(found, row)
			}
		}
		if assert.Len(t, found, 1, "rows that begin with %q", begin) {
			return found[0]
		}
		return ""
	}
	asked := map[string]bool{}
	for _, a := range report.Answers {
		if a.Row != "" {
			row := find(a.Row)
			asked[row] = true
			assert.Regexp(t, `\b`+letters[a.Known]+`\b`, rows[row], "the row %s lacks the mark for %q, which its question has", row, a.Known)
		}
	}
	for begin := range unasked {
		row := find(begin)
		assert.False(t, asked[row], "%s has a question: remove it from unasked", row)
		asked[row] = true
	}
	for row, known := range rows {
		if regexp.MustCompile(`\b[PDA]\b`).MatchString(known) {
			assert.True(t, asked[row], "%s (%s) has no question: add one, or a reason to unasked", row, known)
		}
	}
}

func leftOf(t *testing.T, client *sandbox.Client) (left []string) {
	t.Helper()
	for sb, err := range client.List(t.Context(), nil) {
		require.NoError(t, err)
		left = append(left, sb.Name)
	}
	for d, err := range client.ListDrives(t.Context(), nil) {
		require.NoError(t, err)
		left = append(left, "drive "+d.Name)
	}
	for s, err := range client.ListSnapshots(t.Context(), nil) {
		require.NoError(t, err)
		if s.Status != "deleted" {
			left = append(left, "snapshot "+s.ID)
		}
	}
	return left
}

// contrary is a service that answers each question differently than the emulator. Requests
// without the client get other statuses, values and headers. The client gets other exit
// codes, contents and regions.
type contrary struct {
	rt    http.RoundTripper
	token string
	codes atomic.Int64
}

func (o *contrary) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.rt.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	typ := resp.Header.Get("Content-Type")
	if strings.HasPrefix(typ, "application/x-ndjson") { // changes each record when it arrives
		resp.Body = o.records(resp.Body)
		return resp, nil
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if err := resp.Body.Close(); err != nil {
		return nil, err
	}
	switch beside := strings.HasSuffix(r.Header.Get("User-Agent"), "(doctor)"); {
	case beside:
		if resp.StatusCode++; resp.StatusCode == 201 {
			resp.StatusCode = 203
		}
		for _, name := range []string{"X-Vercel-Error", "X-Ratelimit-Limit", "Content-Disposition"} {
			resp.Header.Set(name, "other "+o.token)
		}
		var doc map[string]any
		switch {
		case strings.HasPrefix(typ, "application/json") && json.Unmarshal(text, &doc) == nil:
			change(doc, r.Method == "GET")
			text, err = json.Marshal(doc)
		default:
			text = append(text, "other"...)
		}
	case strings.HasSuffix(r.URL.Path, "/fs/read") && resp.StatusCode == 200:
		text = append(text, "other"...)
	case r.Method == "POST" && bytes.Contains(text, []byte(`-life"`)):
		text = bytes.ReplaceAll(text, []byte(`"iad1"`), []byte(`"odd1"`))
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), -1
	resp.Header.Del("Content-Length")
	return resp, err
}

// records returns the stream with another exit code in each record of a command.
func (o *contrary) records(body io.ReadCloser) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		defer body.Close()
		lines := bufio.NewReader(body)
		for {
			line, err := lines.ReadBytes('\n')
			line = regexp.MustCompile(`"exitCode":\d+`).ReplaceAllFunc(line, func([]byte) []byte { return fmt.Appendf(nil, `"exitCode":%d`, 100+o.codes.Add(1)) })
			if _, writeErr := w.Write(line); err != nil || writeErr != nil {
				w.CloseWithError(err)
				return
			}
		}
	}()
	return r
}

// change changes each value of a response and adds missing values. It keeps the IDs that
// later requests need.
func change(doc map[string]any, ids bool) {
	for key, v := range doc {
		switch v := v.(type) {
		case map[string]any:
			change(v, ids)
		case string:
			if ids || key != "id" && key != "name" {
				doc[key] = v + "-other"
			}
		case float64:
			doc[key] = v + 1
		case bool:
			doc[key] = !v
		case []any:
			doc[key] = append(v, "other")
		}
	}
	for _, name := range []string{"sandbox", "drive"} {
		if inner, ok := doc[name].(map[string]any); ok {
			for _, key := range []string{"totalDurationMs", "parentDriveId"} {
				if inner[key] == nil {
					inner[key] = "other"
				}
			}
		}
	}
}

// TestAskOtherwise: if the service behaves differently, each answer that had not been
// observed before differs from the expected one. The report does not contain the token,
// although the service returns it.
func TestAskOtherwise(t *testing.T) {
	t.Parallel()
	needs.Long(t, "it asks all questions a second time")
	srv := sandboxtest.New(t, nil)
	report := askEmulator(t, srv, &contrary{rt: testkit.Transport(t), token: srv.Credentials().Token})
	noticed := 0
	for _, a := range report.Answers {
		if !a.Observed() {
			noticed++
			assert.False(t, a.Agrees(), "%s: %s", a.Asked, a.Came)
		}
	}
	assert.Greater(t, noticed, 40)
	assert.Empty(t, report.Broken)
	data, err := json.Marshal(report)
	require.NoError(t, err)
	assert.Contains(t, string(data), "TOKEN")
	for _, secret := range []string{srv.Credentials().Token, srv.Credentials().TeamID, srv.Credentials().ProjectID} {
		assert.NotContains(t, string(data), `"`+secret)
		assert.NotContains(t, string(data), " "+secret)
	}
	assert.Empty(t, leftOf(t, srv.Client()))
}
