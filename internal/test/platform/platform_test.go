package main_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

const (
	boxRuns   = `200 {"sandbox":{"name":"box","persistent":true,"status":"running","currentSessionId":"s1","currentSnapshotId":"old"},"session":{"id":"s1","status":"running"},"routes":[{"port":3000,"url":"https://sb-1.vercel.run","subdomain":"sb-1"}],"resumed":false}`
	boxStops  = `200 {"sandbox":{"name":"box","persistent":true,"status":"stopping","currentSessionId":"s1","currentSnapshotId":"old"},"session":{"id":"s1","status":"stopping"},"routes":[],"resumed":false}`
	boxStale  = `200 {"sandbox":{"name":"box","persistent":true,"status":"stopped","currentSessionId":"s1","currentSnapshotId":"old"},"session":{"id":"s1","status":"stopped"},"routes":[],"resumed":false}`
	boxSaved  = `200 {"sandbox":{"name":"box","persistent":true,"status":"stopped","currentSessionId":"s1","currentSnapshotId":"new"},"session":{"id":"s1","status":"stopped"},"routes":[],"resumed":false}`
	stopped   = `200 {"session":{"id":"s1","status":"stopping"},"sandbox":{"name":"box","persistent":true,"status":"stopping","currentSessionId":"s1","currentSnapshotId":"old"}}`
	oldIsTwos = `200 {"snapshot":{"id":"old","sourceSessionId":"s0","status":"created"}}`
	runs      = `200 {"command":{"id":"c1","name":"x","args":[],"cwd":"/","sessionId":"s1","exitCode":null,"startedAt":1}}`
	exited    = `200 {"command":{"id":"c1","name":"x","args":[],"cwd":"/","sessionId":"s1","exitCode":3,"startedAt":1,"durationMs":2}}`
	getBox    = "GET /v2/sandboxes/box"
	getCmd    = "GET /v2/sandboxes/sessions/s1/cmd/c1"
	stopBox   = "POST /v2/sandboxes/sessions/s1/stop"
)

// TestPlatform has a row for each observed difference between the service and its
// documentation or this SDK. The numbers are those of docs/maintainers/platform.md.
func TestPlatform(t *testing.T) {
	for _, row := range []struct {
		number, what string
		responses    [][2]string
		header       http.Header
		check        func(t *testing.T, s *service, c *sandbox.Client)
	}{
		{"0", "a record of output begins with its data, and may contain several lines", [][2]string{
			{getBox, boxRuns}, {getCmd, exited}, {getCmd + "/logs", "200 " + `{"data":"a\nb\n","stream":"stdout"}` + "\n" + `{"data":"c\n","stream":"stderr"}` + "\n"},
		}, nil, func(t *testing.T, _ *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			cmd, err := sb.GetCommand(t.Context(), "c1")
			require.NoError(t, err)
			out, err := cmd.Stdout(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "a\nb\n", out)
			out, err = cmd.Stderr(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "c\n", out)
		}},
		{"0b", "the client chooses the ID of a command", [][2]string{{getBox, boxRuns}, {"POST /v2/sandboxes/sessions/s1/cmd", runs}}, nil,
			func(t *testing.T, s *service, c *sandbox.Client) {
				sb, err := c.Get(t.Context(), "box", nil)
				require.NoError(t, err)
				for range 2 {
					_, err = sb.StartCommand(t.Context(), "x", nil, nil)
					require.NoError(t, err)
				}
				assert.Regexp(t, `[?&]cmdId=[A-Za-z0-9_-]{16,128}`, s.asked[1])
				assert.Regexp(t, "^GET .*/cmd/c", s.asked[2], "the client looks the command up, because the response may belong to another")
				assert.NotContains(t, s.asked[3], "cmdId=", "the client does not choose IDs again after the service has ignored one")
				assert.Len(t, s.asked, 4)
			}},
		{"1", "every POST has the content type JSON, with or without a body", [][2]string{{getBox, boxRuns}, {stopBox, stopped}}, nil,
			func(t *testing.T, s *service, c *sandbox.Client) {
				sb, err := c.Get(t.Context(), "box", nil)
				require.NoError(t, err)
				require.NoError(t, sb.Close())
				for i, kind := range s.types {
					assert.Equal(t, "application/json", kind, s.asked[i])
				}
			}},
		{"2a", "files gone: 400 with the code", [][2]string{{getBox, `400 {"error":{"code":"snapshot_not_found","message":"Cannot resume sandbox: no snapshot available."}}`}}, nil, filesGone},
		{"2b", "files gone: 400 with a general code", [][2]string{{getBox, `400 {"error":{"code":"bad_request","message":"Cannot resume sandbox: no snapshot available."}}`}}, nil, filesGone},
		{"2c", "files gone: 410", [][2]string{{getBox, `410 {"error":{"code":"snapshot_not_found","message":"Cannot resume sandbox: no snapshot available."}}`}}, nil, filesGone},
		{"2d", "files gone: GetOrCreate creates the sandbox again", [][2]string{
			{getBox + "?resume=false", boxStale},
			{getBox, `400 {"error":{"code":"bad_request","message":"Cannot resume sandbox: no snapshot available."}}`},
			{"DELETE /v2/sandboxes/box", `200 {"sandbox":{"name":"box","status":"stopped"}}`}, {"POST /v3/sandboxes", boxRuns},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			_, err := c.GetOrCreate(t.Context(), "box", nil)
			require.NoError(t, err)
			assert.Equal(t, 1, s.count("POST /v3/sandboxes"))
		}},
		{"3", "Get resumes a sandbox only if the request says so, which NoResume prevents", [][2]string{{getBox, boxRuns}}, nil,
			func(t *testing.T, s *service, c *sandbox.Client) {
				_, err := c.Get(t.Context(), "box", nil)
				require.NoError(t, err)
				_, err = c.GetOrCreate(t.Context(), "box", nil)
				require.NoError(t, err)
				_, err = c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
				require.NoError(t, err)
				assert.Equal(t, 2, s.count(getBox+"?teamId=team&projectId=prj&resume=true"), "%q", s.asked)
				assert.Equal(t, 1, s.count(getBox+"?teamId=team&projectId=prj&resume=false"), "%q", s.asked)
			}},
		{"3b", "Resume resumes a sandbox, or returns an error that its files are gone", [][2]string{
			{getBox + "?resume=false", boxStale}, {getBox + "?resume=true", `400 {"error":{"code":"bad_request","message":"Cannot resume sandbox: no snapshot available."}}`},
		}, nil, func(t *testing.T, _ *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
			require.NoError(t, err)
			assert.ErrorIs(t, sb.Resume(t.Context()), sandbox.ErrSnapshotNotFound)
		}},
		{"4", "a policy that a stale handle sets applies to the running session", [][2]string{
			{getBox + " once", boxRuns},
			{"PATCH /v2/sandboxes/box", `200 {"sandbox":{"name":"box","status":"running","currentSessionId":"s2"}}`},
			{getBox, strings.ReplaceAll(boxRuns, `"s1"`, `"s2"`)},
			{"POST /v2/sandboxes/sessions/s2/network-policy", `200 {"session":{"id":"s2","status":"running","networkPolicy":{"mode":"deny-all"}}}`},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{NetworkPolicy: sandbox.DenyAll()}))
			assert.Equal(t, 1, s.count("POST /v2/sandboxes/sessions/s2/network-policy"))
		}},
		{"5", "Stop waits until the snapshot is the current one", [][2]string{
			{getBox + " once", boxRuns}, {stopBox, stopped}, {getBox + " once", boxStops}, {getBox + " once", boxStale}, {getBox, boxSaved},
			{"GET /v2/sandboxes/snapshots/old", oldIsTwos}, {"GET /v2/sandboxes/snapshots/new", `200 {"snapshot":{"id":"new","sourceSessionId":"s1","status":"created"}}`},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			r, err := sb.Stop(t.Context(), nil)
			require.NoError(t, err)
			assert.Equal(t, sandbox.StatusStopped, r.Session.Status)
			require.NotNil(t, r.Snapshot, "the response came before the snapshot was complete")
			assert.Equal(t, "new", r.Snapshot.ID)
			assert.Equal(t, "new", sb.Info().CurrentSnapshotID)
		}},
		{"5b", "Stop of a session that has stopped already does not wait for another snapshot", [][2]string{
			{getBox + "?resume=false", boxSaved}, {stopBox, `200 {"session":{"id":"s1","status":"stopped"}}`},
			{"GET /v2/sandboxes/snapshots/new", `200 {"snapshot":{"id":"new","sourceSessionId":"s1","status":"created"}}`},
		}, nil, func(t *testing.T, _ *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
			require.NoError(t, err)
			_, err = sb.Stop(t.Context(), nil)
			require.NoError(t, err)
		}},
		{"5e", "Stop does not wait for a deleted snapshot", [][2]string{
			{getBox + "?resume=false", boxSaved}, {stopBox, `200 {"session":{"id":"s1","status":"stopped"}}`},
			{"GET /v2/sandboxes/snapshots/new", `404 {"error":{"code":"not_found","message":"Snapshot not found."}}`},
		}, nil, stopsAtOnce},
		{"5f", "Stop does not wait for a snapshot that was deleted after another caller's stop", [][2]string{
			{getBox + " once", boxRuns}, {stopBox, `200 {"session":{"id":"s1","status":"stopped","stoppedAt":1790987510557,"requestedStopAt":1790987521623}}`}, {getBox, boxStale},
			{"GET /v2/sandboxes/snapshots/old", `404 {"error":{"code":"not_found","message":"Snapshot not found."}}`},
		}, nil, stopsAtOnce},
		{"5g", "Stop does not wait if the session ended long ago and the sandbox was rolled back since", [][2]string{
			{getBox, strings.Replace(boxStale, `"status":"stopped"},"routes"`, `"status":"stopped","stoppedAt":946684000000},"routes"`, 1)},
			{stopBox, `200 {"session":{"id":"s1","status":"stopped"}}`}, {"GET /v2/sandboxes/snapshots/old", oldIsTwos},
		}, nil, stopsAtOnce},
		{"5c", "Stop gives up after three minutes with an error", [][2]string{{getBox + " once", boxRuns}, {stopBox, stopped}, {getBox, boxStops}}, nil,
			func(t *testing.T, s *service, c *sandbox.Client) {
				sb, err := c.Get(t.Context(), "box", nil)
				require.NoError(t, err)
				begun := time.Now()
				r, err := sb.Stop(t.Context(), nil)
				require.ErrorContains(t, err, "has not stopped after 3m0s")
				assert.Equal(t, 3*time.Minute, time.Since(begun))
				require.NotNil(t, r)
				assert.Equal(t, sandbox.StatusStopping, r.Session.Status)
				before := len(s.asked)
				_, err = sb.Stop(t.Context(), &sandbox.StopOptions{NoWait: true})
				require.NoError(t, err)
				assert.Len(t, s.asked, before+1, "NoWait makes one request")
			}},
		{"5d", "Stop polls less often if few requests of the rate limit remain", [][2]string{{getBox + " once", boxRuns}, {stopBox, stopped}, {getBox, boxStops}},
			http.Header{"X-Ratelimit-Limit": {"1000"}, "X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Reset": {"4102444800"}},
			func(t *testing.T, s *service, c *sandbox.Client) {
				sb, err := c.Get(t.Context(), "box", nil)
				require.NoError(t, err)
				_, err = sb.Stop(t.Context(), nil)
				require.Error(t, err)
				assert.LessOrEqual(t, s.count(getBox), 14, "every 15 seconds for 3 minutes")
			}},
		{"6", "the client asks for the end of a command with a request that waits, because others don't return it", [][2]string{
			{getBox, boxRuns}, {getCmd + "?wait=true", exited}, {getCmd, runs}, {"GET /v2/sandboxes/sessions/s1/cmd", strings.NewReplacer(`{"command":`, `{"commands":[`, `}}`, `}]}`).Replace(runs)},
		}, nil, func(t *testing.T, _ *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			cmd, err := sb.GetCommand(t.Context(), "c1")
			require.NoError(t, err)
			code, ended := cmd.ExitStatus()
			assert.Equal(t, []any{3, true}, []any{code, ended})
		}},
		{"7", "the client refuses a too large environment, and returns the service's refusal", [][2]string{
			{"POST /v3/sandboxes", `400 {"error":{"code":"bad_request","message":"env payload too large (4349 bytes; max 4096)"}}`},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			_, err := c.Create(t.Context(), &sandbox.CreateOptions{Env: sandbox.Env{"A": strings.Repeat("x", 4096)}})
			require.ErrorIs(t, err, sandbox.ErrInvalid)
			assert.Empty(t, s.asked)
			_, err = c.Create(t.Context(), &sandbox.CreateOptions{Env: sandbox.Env{"A": strings.Repeat("x", 4000)}})
			assert.ErrorContains(t, err, "max 4096")
		}},
		{"8", "commands end with their session, and looking one up does not resume the sandbox", [][2]string{
			{getBox + "?resume=false", boxStale}, {getCmd, `410 {"error":{"code":"sandbox_stopped","message":"Sandbox has stopped execution and is no longer available"}}`},
			{"GET /v2/sandboxes/sessions/s1/cmd", `410 {"error":{"code":"sandbox_stopped","message":"Sandbox has stopped execution and is no longer available"}}`},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
			require.NoError(t, err)
			_, err = sb.GetCommand(t.Context(), "c1")
			require.ErrorIs(t, err, sandbox.ErrStopped)
			_, err = sb.ListCommands(t.Context())
			require.ErrorIs(t, err, sandbox.ErrStopped)
			assert.Zero(t, s.count(getBox+"?teamId=team&projectId=prj&resume=true"))
		}},
		{"9", "the error of killing an ended command says that it has ended", [][2]string{
			{getBox, boxRuns}, {getCmd, runs}, {"POST /v2/sandboxes/sessions/s1/cmd/c1/kill", `404 {"error":{"code":"command_not_found_or_exited","message":"Command not found or exited."}}`},
		}, nil, func(t *testing.T, _ *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			cmd, err := sb.GetCommand(t.Context(), "c1")
			require.NoError(t, err)
			err = cmd.Signal(t.Context(), sandbox.SIGTERM)
			require.ErrorIs(t, err, os.ErrProcessDone)
			assert.NotErrorIs(t, err, sandbox.ErrNotFound)
		}},
		{"10", "WaitForPort distinguishes the edge's responses from the server's", [][2]string{
			{getBox, boxRuns}, {"GET /", "410 SANDBOX_STOPPED"}, {"GET /v2/sandboxes/sessions/s1", `200 {"session":{"id":"s1","status":"stopped"},"routes":[]}`},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			begun := time.Now()
			_, err = sb.WaitForPort(t.Context(), 3000, &sandbox.WaitForPortOptions{HTTPClient: &http.Client{Transport: s}})
			require.ErrorIs(t, err, sandbox.ErrStopped)
			require.ErrorContains(t, err, "SANDBOX_STOPPED")
			assert.Zero(t, time.Since(begun), "the call returns at once")
		}},
		{"11", "the client refuses ports below 1024, and more than 15 ports", nil, nil, refusedHere(
			sandbox.CreateOptions{Ports: []int{443}}, sandbox.CreateOptions{Ports: make([]int, 16)})},
		{"12", "the error about a refused address range has the service's message", [][2]string{
			{"POST /v3/sandboxes", `400 {"error":{"code":"bad_request","message":"Invalid CIDR \"::/0\""}}`},
		}, nil, func(t *testing.T, _ *service, c *sandbox.Client) {
			_, err := c.Create(t.Context(), &sandbox.CreateOptions{NetworkPolicy: &sandbox.NetworkPolicy{DenySubnets: []string{"::/0"}}})
			assert.ErrorContains(t, err, "Invalid CIDR")
		}},
		{"13", "the error about an unready image is not a taken name, and WaitForImage waits for the image", [][2]string{
			{getBox + " once", `404 {"error":{"code":"not_found","message":"Named sandbox 'box' not found for this project."}}`},
			{"POST /v3/sandboxes once", `409 {"error":{"code":"image_not_ready","message":"The image is being prepared."}}`},
			{"POST /v3/sandboxes once", `409 {"error":{"code":"image_not_ready","message":"The image is being prepared."}}`},
			{"POST /v3/sandboxes", boxRuns},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			_, err := c.GetOrCreate(t.Context(), "box", &sandbox.CreateOptions{Image: "mine"})
			require.ErrorIs(t, err, sandbox.ErrImageNotReady)
			assert.Len(t, s.asked, 2)
			begun := time.Now()
			_, err = c.Create(t.Context(), &sandbox.CreateOptions{Name: "box", Image: "mine", WaitForImage: true})
			require.NoError(t, err)
			assert.Equal(t, 5*time.Second, time.Since(begun))
		}},
		{"14", "the client creates a sandbox without a runtime with v3, and with one with v2", [][2]string{{"POST /v3/sandboxes", boxRuns}, {"POST /v2/sandboxes", boxRuns}}, nil,
			func(t *testing.T, s *service, c *sandbox.Client) {
				for _, o := range []*sandbox.CreateOptions{nil, {Image: "vercel/sandbox/node:24"}, {Source: sandbox.SnapshotSource{SnapshotID: "s"}}, {Name: "box"}} {
					_, err := c.Create(t.Context(), o)
					require.NoError(t, err)
				}
				assert.Equal(t, 4, s.count("POST /v3/sandboxes"))
				for _, name := range []string{"", "box"} {
					_, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: name, Runtime: "node24"})
					require.NoError(t, err)
				}
				assert.Equal(t, 2, s.count("POST /v2/sandboxes"))
			}},
		{"15", "a name prefix sets the order of a listing; pages have at most 50 items, and filters one tag", [][2]string{{"GET /v2/sandboxes", `200 {"sandboxes":[],"pagination":{"count":0,"next":null}}`}}, nil,
			func(t *testing.T, s *service, c *sandbox.Client) {
				_, err := c.ListPage(t.Context(), &sandbox.ListOptions{NamePrefix: "ci-"})
				require.NoError(t, err)
				assert.Contains(t, s.asked[0], "sortBy=name")
				_, err = c.ListPage(t.Context(), &sandbox.ListOptions{Limit: 51})
				require.ErrorIs(t, err, sandbox.ErrInvalid)
				_, err = c.ListPage(t.Context(), &sandbox.ListOptions{Tags: map[string]string{"a": "1", "b": "2"}})
				require.ErrorIs(t, err, sandbox.ErrInvalid)
			}},
		{"16", "the client refuses timeouts that no plan permits", nil, nil, refusedHere(
			sandbox.CreateOptions{Timeout: 500 * time.Millisecond}, sandbox.CreateOptions{Timeout: 25 * time.Hour})},
		{"17", "output continues at the place where the service has closed its stream", [][2]string{
			{getBox, boxRuns}, {getCmd, exited},
			{"POST /v2/sandboxes/sessions/s1/cmd", runs + "\n" + `{"data":"a","stream":"stdout"}` + "\n" + `{"stream":"error","data":{"code":"sandbox_stream_closed","message":"Sandbox stream closed"}}` + "\n"},
			{getCmd + "/logs", "200 " + `{"data":"a","stream":"stdout"}` + "\n" + `{"data":"b","stream":"stdout"}` + "\n"},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			done, err := sb.RunCommand(t.Context(), "x", nil, nil)
			require.NoError(t, err)
			assert.Equal(t, 3, done.ExitCode)
			out, err := done.Stdout(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "ab", out)
			assert.Equal(t, 1, s.count("POST /v2/sandboxes/sessions/s1/cmd"), "the client starts the command once")
		}},
		{"16b", "the client extends a session by at least the service's minimum", [][2]string{
			{getBox, strings.Replace(boxRuns, `"session":{"id":"s1",`, `"session":{"id":"s1","timeout":300000,`, 1)},
			{"PATCH /v2/sandboxes/box", `200 {"sandbox":{"name":"box","timeout":300500}}`},
			{"POST /v2/sandboxes/sessions/s1/extend-timeout", `200 {"session":{"id":"s1","status":"running","timeout":301000}}`},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{Timeout: 300_500 * time.Millisecond}))
			assert.Equal(t, map[string]any{"duration": 1000.0}, s.sent("POST /v2/sandboxes/sessions/s1/extend-timeout"))
		}},
		{"19", "the client does not send back a policy that it does not understand completely", [][2]string{
			{getBox, strings.Replace(boxRuns, `"name":"box",`, `"name":"box","networkPolicy":{"mode":"custom","allowedDomains":["a.com"],"quotas":[{"domain":"a.com"}]},`, 1)},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			read := sb.Info().NetworkPolicy
			read.Allow = append(read.Allow, "b.com")
			err = sb.Update(t.Context(), &sandbox.UpdateOptions{NetworkPolicy: read})
			require.ErrorIs(t, err, sandbox.ErrInvalid)
			data, err := json.Marshal(read)
			require.NoError(t, err)
			var again sandbox.NetworkPolicy
			require.NoError(t, json.Unmarshal(data, &again))
			require.ErrorIs(t, sb.Update(t.Context(), &sandbox.UpdateOptions{NetworkPolicy: &again}), sandbox.ErrInvalid, "the client also refuses a policy that was decoded from JSON")
			assert.Len(t, s.asked, 1)
		}},
		{"19b", "the client sends response rules in the API's form", [][2]string{{"POST /v3/sandboxes", boxRuns}}, nil,
			func(t *testing.T, s *service, c *sandbox.Client) {
				_, err := c.Create(t.Context(), &sandbox.CreateOptions{NetworkPolicy: &sandbox.NetworkPolicy{Rules: map[string][]sandbox.PolicyRule{
					"a.com": {{Match: &sandbox.PolicyMatch{Method: []string{"POST"}}, Response: &sandbox.PolicyResponse{StatusCode: 403, Body: new("no"), ContentType: "text/plain"}}},
				}}})
				require.NoError(t, err)
				want := map[string]any{"allow": map[string]any{"a.com": []any{map[string]any{
					"match": map[string]any{"method": []any{"POST"}}, "response": map[string]any{"statusCode": 403.0, "body": "no", "contentType": "text/plain"},
				}}}}
				assert.Equal(t, want, s.sent("POST /v3/sandboxes")["networkPolicy"])
			}},
		{"20", "requests have only properties that the service knows", [][2]string{
			{"POST /v3/sandboxes", boxRuns}, {"POST /v2/sandboxes/box/fork", strings.ReplaceAll(boxRuns, `"box"`, `"heir"`)}, {"PATCH /v2/sandboxes/box", `200 {"sandbox":{"name":"box"}}`},
			{getBox, boxRuns}, {"POST /v2/sandboxes/sessions/s1/network-policy", `200 {"session":{"id":"s1","status":"running"}}`},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			open := sandbox.AllowAll()
			keep := &sandbox.KeepLastSnapshots{Count: 2}
			sb, err := c.Create(t.Context(), &sandbox.CreateOptions{
				Name: "box", Image: "img", Source: sandbox.GitSource{URL: "https://a.example/b.git", Revision: "r", Depth: 1}, Timeout: time.Minute, VCPUs: 2,
				Ephemeral: true, NetworkPolicy: open, Env: sandbox.Env{"A": "b"}, Tags: map[string]string{"a": "b"}, Ports: []int{3000}, Region: "iad1",
				FailoverRegions: []string{"sfo1"}, NetworkID: "net", SnapshotExpiration: 24 * time.Hour, KeepLastSnapshots: keep,
			})
			require.NoError(t, err)
			_, err = c.Fork(t.Context(), "box", &sandbox.ForkOptions{AllowEmpty: true, Name: "heir", Env: sandbox.Env{"A": "b"}, Ports: []int{3000}, Mounts: map[string]sandbox.Mount{"/d": {Drive: "d"}}})
			require.NoError(t, err)
			require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{VCPUs: 2, NetworkPolicy: open, KeepLastSnapshots: keep, Ports: []int{3000}}))
			known := []string{
				"projectId", "name", "ports", "source", "timeout", "resources", "image", "persistent", "networkPolicy", "env", "tags",
				"snapshotExpiration", "keepLastSnapshots", "networkId", "mounts", "region", "failoverRegions",
			}
			for _, request := range []string{"POST /v3/sandboxes", "POST /v2/sandboxes/box/fork", "PATCH"} {
				for name := range s.sent(request) {
					assert.True(t, slices.Contains(known, name), "%s sends %q", request, name)
				}
			}
			assert.Len(t, s.sent("POST /v3/sandboxes"), len(known)-1, "all but the mounts")
		}},
		{"21", "the error about a rate limit contains the time to wait", [][2]string{{getBox, `429 {"error":{"code":"rate_limited","message":"Too many requests - try again in 39 seconds"}}`}},
			http.Header{"Retry-After": {"39"}, "X-Ratelimit-Limit": {"1000"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1790987560"}},
			func(t *testing.T, _ *service, c *sandbox.Client) {
				_, err := c.Get(t.Context(), "box", nil)
				require.ErrorIs(t, err, sandbox.ErrRateLimited)
				assert.Equal(t, 39*time.Second, testkit.APIError(t, err).RetryAfter)
			}},
		{"22", "stopping a stopped session succeeds", [][2]string{
			{getBox, boxRuns}, {stopBox, `200 {"session":{"id":"s1","status":"stopped"},"sandbox":{"name":"box","persistent":false,"status":"stopped","currentSessionId":"s1"}}`},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			for range 2 {
				_, err = sb.Stop(t.Context(), nil)
				require.NoError(t, err)
			}
			assert.Len(t, s.asked, 3, "Stop does not wait for the snapshot of an ephemeral sandbox")
		}},
		{"23", "a sandbox without a session is not found, although its name is taken", [][2]string{{getBox, `404 {"error":{"code":"not_found","message":"Named sandbox 'box' has no latest sandbox."}}`}}, nil,
			func(t *testing.T, _ *service, c *sandbox.Client) {
				_, err := c.Get(t.Context(), "box", nil)
				require.ErrorIs(t, err, sandbox.ErrNotFound)
				assert.ErrorContains(t, err, "has no latest sandbox")
			}},
		{"24", "an update can replace the environment", [][2]string{{getBox, boxRuns}, {"PATCH /v2/sandboxes/box", `200 {"sandbox":{"name":"box"}}`}}, nil,
			func(t *testing.T, s *service, c *sandbox.Client) {
				sb, err := c.Get(t.Context(), "box", nil)
				require.NoError(t, err)
				require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{Env: sandbox.Env{}, NetworkID: new(""), KeepLastSnapshots: &sandbox.KeepLastSnapshots{}}))
				assert.Equal(t, map[string]any{"env": map[string]any{}, "networkId": nil, "keepLastSnapshots": nil}, s.sent("PATCH"))
			}},
		{"25", "handles keep all data about a sandbox", [][2]string{
			{getBox, `200 {"sandbox":{"name":"box","architecture":"amd64","region":"iad1","failoverRegions":["sfo1"],"networkId":"net_1","mounts":{"/d":{"drive":"data"},"/e":{"drive":"data","mode":"read-only"},"/f":{"drive":"data","mode":"odd"}}},"session":{"id":"s1","architecture":"amd64","sourceSandboxName":"box","projectId":"prj_1","status":"running"},"routes":[]}`},
			{"GET /v2/sandboxes/snapshots/snap", `200 {"snapshot":{"id":"snap","architecture":"amd64","region":"iad1","regions":["iad1","sfo1"]}}`},
		}, nil, func(t *testing.T, _ *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			assert.Equal(t, sandbox.Info{
				Name: "box", Architecture: "amd64", Region: "iad1", FailoverRegions: []string{"sfo1"}, NetworkID: "net_1",
				Mounts: map[string]sandbox.Mount{
					"/d": {Drive: "data", Mode: sandbox.MountReadWrite}, "/e": {Drive: "data", Mode: "snapshot"}, "/f": {Drive: "data", Mode: "odd"},
				},
			}, sb.Info())
			session := sb.CurrentSession().Info()
			assert.Equal(t, []string{"amd64", "box", "prj_1"}, []string{session.Architecture, session.SandboxName, session.ProjectID})
			snap, err := c.GetSnapshot(t.Context(), "snap")
			require.NoError(t, err)
			assert.Equal(t, []string{"iad1", "sfo1"}, snap.Info().Regions)
		}},
		{"26", "every request names the program that sends it", [][2]string{{getBox, boxRuns}, {stopBox, stopped}}, nil,
			func(t *testing.T, s *service, c *sandbox.Client) {
				sb, err := c.Get(t.Context(), "box", nil)
				require.NoError(t, err)
				require.NoError(t, sb.Close())
				for i, agent := range s.agents {
					assert.NotEmpty(t, agent, s.asked[i])
					assert.NotContains(t, agent, "Go-http-client", s.asked[i])
				}
			}},
		{"422", "a call in a stopping session resumes the sandbox at once", [][2]string{
			{getBox + " once", boxRuns}, {"POST /v2/sandboxes/sessions/s1/fs/mkdir", `422 {"error":{"code":"sandbox_stopping","message":"Sandbox is stopping."}}`},
			{getBox + "?resume=true", strings.ReplaceAll(boxRuns, `"s1"`, `"s2"`)}, {"POST /v2/sandboxes/sessions/s2/fs/mkdir", `200 {}`},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			begun := time.Now()
			require.NoError(t, sb.FS().Mkdir(t.Context(), "dir", 0o777))
			assert.Len(t, s.asked, 4)
			assert.Zero(t, time.Since(begun), "the call does not poll")
		}},
		{"422b", "the client waits, and repeats the resume, if the service refuses it while the session stops", [][2]string{
			{getBox + " once", boxRuns}, {"POST /v2/sandboxes/sessions/s1/fs/mkdir", `422 {"error":{"code":"sandbox_snapshotting","message":"Sandbox is snapshotting."}}`},
			{getBox + "?resume=true once", `422 {"error":{"code":"sandbox_snapshotting","message":"Sandbox is snapshotting."}}`},
			{"GET /v2/sandboxes/sessions/s1 once", `200 {"session":{"id":"s1","status":"snapshotting"},"routes":[]}`},
			{"GET /v2/sandboxes/sessions/s1", `200 {"session":{"id":"s1","status":"stopped"},"routes":[]}`},
			{getBox + "?resume=true", strings.ReplaceAll(boxRuns, `"s1"`, `"s2"`)}, {"POST /v2/sandboxes/sessions/s2/fs/mkdir", `200 {}`},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			require.NoError(t, sb.FS().Mkdir(t.Context(), "dir", 0o777))
			assert.Len(t, s.asked, 7)
		}},
		{"422c", "the client waits, and repeats the resume, if it returns the stopping session", [][2]string{
			{getBox + " once", boxRuns}, {"POST /v2/sandboxes/sessions/s1/fs/mkdir", `422 {"error":{"code":"sandbox_stopping","message":"Sandbox is stopping."}}`},
			{getBox + "?resume=true once", boxStops}, {"GET /v2/sandboxes/sessions/s1", `200 {"session":{"id":"s1","status":"stopped"},"routes":[]}`},
			{getBox + "?resume=true", strings.ReplaceAll(boxRuns, `"s1"`, `"s2"`)}, {"POST /v2/sandboxes/sessions/s2/fs/mkdir", `200 {}`},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			sb, err := c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			require.NoError(t, sb.FS().Mkdir(t.Context(), "dir", 0o777))
			assert.Len(t, s.asked, 6)
			require.NoError(t, sb.Resume(t.Context()))
		}},
		{"A.3", "the error of status 402 matches ErrQuotaExceeded", [][2]string{{"POST /v3/sandboxes", `402 {"error":{"code":"payment_required","message":"Sandboxes are paused."}}`}}, nil,
			func(t *testing.T, _ *service, c *sandbox.Client) {
				_, err := c.Create(t.Context(), nil)
				require.ErrorIs(t, err, sandbox.ErrQuotaExceeded)
				assert.NotErrorIs(t, err, sandbox.ErrOutcomeUnknown)
			}},
		{"C1", "a conflict of a drive matches ErrConflict, and other errors have their codes", [][2]string{
			{"POST /v2/sandboxes/drives/data", `409 {"error":{"code":"conflict","message":"Drive \"data\" already exists in another region."}}`},
			{"POST /v2/sandboxes/drives/data/fork", `409 {"error":{"code":"drive_not_initialized","message":"The source drive has no committed data."}}`},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			_, err := c.GetOrCreateDrive(t.Context(), "data", &sandbox.DriveOptions{Region: "sfo1"})
			assert.ErrorIs(t, err, sandbox.ErrConflict)
			assert.Equal(t, map[string]any{"projectId": "prj", "region": "sfo1"}, s.sent("POST /v2/sandboxes/drives/data?"))
			_, err = c.ForkDrive(t.Context(), "data", "copy")
			assert.Equal(t, "drive_not_initialized", testkit.APIError(t, err).Code)
			assert.Equal(t, map[string]any{"name": "copy"}, s.sent("POST /v2/sandboxes/drives/data/fork"))
			assert.Contains(t, s.asked[1], "projectId=prj")
		}},
		{"C2", "create, fork and update send mounts with their modes", [][2]string{
			{"POST /v3/sandboxes", boxRuns}, {"POST /v2/sandboxes/box/fork", boxRuns}, {"PATCH /v2/sandboxes/box", `200 {"sandbox":{"name":"box"}}`},
		}, nil, func(t *testing.T, s *service, c *sandbox.Client) {
			mounts := map[string]sandbox.Mount{"/data": {Drive: "data"}, "/ref": {Drive: "ref", Mode: "snapshot"}}
			sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Mounts: mounts})
			require.NoError(t, err)
			_, err = c.Fork(t.Context(), "box", &sandbox.ForkOptions{AllowEmpty: true, Mounts: mounts})
			require.NoError(t, err)
			require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{Mounts: mounts}))
			want := map[string]any{"/data": map[string]any{"drive": "data", "mode": "read-write"}, "/ref": map[string]any{"drive": "ref", "mode": "snapshot"}}
			for _, request := range []string{"POST /v3/sandboxes", "POST /v2/sandboxes/box/fork", "PATCH"} {
				assert.Equal(t, want, s.sent(request)["mounts"], request)
			}
			require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{Mounts: map[string]sandbox.Mount{}, FailoverRegions: []string{}}))
			assert.Equal(t, map[string]any{"mounts": map[string]any{}, "failoverRegions": []any{}}, s.sent("PATCH"), "an empty map or list removes all mounts or regions")
		}},
		{"C3", "Delete also deletes orphaned snapshots if the caller asks for it", [][2]string{{"DELETE /v2/sandboxes/box", `200 {"sandbox":{"name":"box"}}`}}, nil,
			func(t *testing.T, s *service, c *sandbox.Client) {
				require.NoError(t, c.Delete(t.Context(), "box", &sandbox.DeleteOptions{DeleteOrphanSnapshots: true}))
				assert.Contains(t, s.asked[0], "deleteOrphanSnapshots=true")
				require.NoError(t, c.Delete(t.Context(), "box", nil))
				assert.NotContains(t, s.asked[1], "deleteOrphanSnapshots")
			}},
	} {
		t.Run(row.number+" "+row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &service{t: t, responses: row.responses, header: row.header}
				row.check(t, s, s.client())
			})
		})
	}
}

// stopsAtOnce checks that Stop does not poll if it has nothing to wait for.
func stopsAtOnce(t *testing.T, _ *service, c *sandbox.Client) {
	sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	begun := time.Now()
	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	assert.Zero(t, time.Since(begun))
}

// filesGone checks the error for a sandbox that still exists, but whose files are gone.
func filesGone(t *testing.T, _ *service, c *sandbox.Client) {
	_, err := c.Get(t.Context(), "box", nil)
	require.ErrorIs(t, err, sandbox.ErrSnapshotNotFound)
	assert.NotErrorIs(t, err, sandbox.ErrStopped)
	assert.NotErrorIs(t, err, sandbox.ErrNotFound)
}

// refusedHere checks that the client refuses the options without a request.
func refusedHere(options ...sandbox.CreateOptions) func(*testing.T, *service, *sandbox.Client) {
	return func(t *testing.T, s *service, c *sandbox.Client) {
		for _, o := range options {
			_, err := c.Create(t.Context(), &o)
			require.ErrorIs(t, err, sandbox.ErrInvalid)
		}
		assert.Empty(t, s.asked)
	}
}
