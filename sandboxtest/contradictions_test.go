package sandboxtest_test

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

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// answer is a response that a test goroutine waits for.
type answer struct {
	status int
	body   string
}

// sendAsync sends a request without waiting for its response.
func (c *raw) sendAsync(method, path string, body any) <-chan answer {
	c.t.Helper()
	req := c.request(method, path, body)
	out := make(chan answer, 1)
	go func() {
		resp, err := c.client.Do(req)
		if err != nil {
			out <- answer{0, err.Error()}
			return
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			data = []byte(err.Error())
		}
		out <- answer{resp.StatusCode, string(data)}
	}()
	return out
}

// slowSource returns a tarball whose server responds with the given status, but only once
// release is called. asked is closed when the server gets the request.
func slowSource(t *testing.T, host string, status int) (source obj, asked <-chan struct{}, release func()) {
	arrived, released := make(chan struct{}), make(chan struct{})
	files := gz(t, tarball(t, entry{name: "file", content: "there"}))
	var once sync.Once
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		once.Do(func() { close(arrived) })
		<-released
		w.WriteHeader(status)
		_, _ = w.Write(files)
	}))
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(func() { release(); srv.Close() })
	return obj{"type": "tarball", "url": strings.Replace(srv.URL, "127.0.0.1", host, 1) + "/x.tgz"}, arrived, release
}

func names(t *testing.T, c *raw) (all []string) {
	t.Helper()
	var page wire.SandboxesPage
	c.call("GET", "/v2/sandboxes?project=prj", nil, 200, &page)
	for _, sb := range page.Sandboxes {
		all = append(all, sb.Name)
	}
	return all
}

// TestNameDuringCreation: once a name was refused because it is taken, every request finds
// the sandbox that has it. The end of its creation does not contradict earlier responses.
func TestNameDuringCreation(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Dir: t.TempDir()})
	source, asked, release := slowSource(t, srv.HostAddress(), 200)
	made := c.sendAsync("POST", "/v3/sandboxes", obj{"projectId": "prj", "name": "slow", "source": source, "ports": []int{3000}})
	<-asked
	for range 2 {
		c.refused("POST", "/v3/sandboxes", obj{"projectId": "prj", "name": "slow"}, 400, "bad_request")
	}
	early := c.get("slow", "", 200)
	assert.Equal(t, []string{"running", "pending"}, []string{early.Sandbox.Status, early.Session.Status})
	assert.Len(t, early.Routes, 1)
	assert.Equal(t, early.Session.ID, c.session(early.Session.ID).ID)
	assert.Equal(t, []string{"slow"}, names(t, c))
	var sessions wire.SessionsPage
	c.call("GET", "/v2/sandboxes/sessions?project=prj&name=slow", nil, 200, &sessions)
	assert.Len(t, sessions.Sessions, 1)

	// A request that needs the machine waits for it.
	updated := c.sendAsync("PATCH", "/v2/sandboxes/slow?projectId=prj", obj{"tags": obj{"a": "b"}})
	resumed := c.sendAsync("GET", "/v2/sandboxes/slow?projectId=prj&resume=true", nil)
	ran := c.sendAsync("POST", session(early.Session.ID)+"/cmd", obj{"command": "cat", "args": []string{"file"}, "wait": true})
	release()
	for _, ch := range []<-chan answer{made, updated, resumed, ran} {
		a := <-ch
		assert.Equal(t, 200, a.status, "%s", a.body)
	}
	after := c.get("slow", "", 200)
	assert.Equal(t, early.Session.ID, after.Session.ID)
	assert.Equal(t, early.Sandbox.CreatedAt, after.Sandbox.CreatedAt)
	assert.Equal(t, early.Routes, after.Routes)
	assert.Equal(t, "running", after.Session.Status)
}

// TestFirstSession: a sandbox is not older than its first session, however much time
// passes during the creation. Clients compare the two to recognize the first session.
func TestFirstSession(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	srv.Tick(time.Second)
	made := c.create(obj{"name": "x"})
	assert.False(t, made.Session.CreatedAt.After(made.Sandbox.CreatedAt.Time), "%v, %v", made.Session.CreatedAt, made.Sandbox.CreatedAt)
}

// TestRequestDuringCreation: a request to a sandbox that is being created takes effect once
// it exists. If the creation fails, the sandbox looks deleted.
func TestRequestDuringCreation(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		status, stopped, deleted int
	}{
		"made":     {200, 200, 200},
		"not made": {404, 200, 404},
	} {
		t.Run(name, func(t *testing.T) {
			srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Dir: t.TempDir()})
			source, asked, release := slowSource(t, srv.HostAddress(), row.status)
			made := c.sendAsync("POST", "/v3/sandboxes", obj{"projectId": "prj", "name": "slow", "source": source})
			<-asked
			early := c.get("slow", "", 200)
			stopped := c.sendAsync("POST", session(early.Session.ID)+"/stop", nil)
			deleted := c.sendAsync("DELETE", "/v2/sandboxes/slow?projectId=prj", nil)
			release()
			if a := <-made; row.status == 200 {
				assert.Equal(t, 200, a.status, "%s", a.body)
			} else {
				assert.Equal(t, 400, a.status, "%s", a.body)
			}
			assert.Contains(t, []int{row.stopped, 404}, (<-stopped).status) // 404 if it came after the end
			assert.Equal(t, row.deleted, (<-deleted).status)
			c.get("slow", "", 404)
			assert.Empty(t, names(t, c))
			again := c.create(obj{"name": "slow"})
			assert.NotEqual(t, early.Session.ID, again.Session.ID)
		})
	}
}

// TestDoubleStart starts an agent twice at once: the start whose creation is refused
// looks the sandbox up, and uses it.
func TestDoubleStart(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	for i := range 40 {
		name := "session-" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		params := obj{"projectId": "prj", "name": name}
		first, second := c.sendAsync("POST", "/v3/sandboxes", params), c.sendAsync("POST", "/v3/sandboxes", params)
		var a answer
		select {
		case a = <-first:
			first = second
		case a = <-second:
		}
		if a.status == 400 {
			assert.Contains(t, a.body, "already exists")
			c.get(name, "", 200)
		}
		b := <-first
		c.get(name, "", 200)
		assert.ElementsMatch(t, []int{200, 400}, []int{a.status, b.status}, "%s%s", a.body, b.body)
	}
}

// TestAnswersAgree: after a request was refused, other requests give no contradictory
// answer.
func TestAnswersAgree(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	with := func(more obj) obj {
		more["projectId"] = "prj"
		return more
	}
	live := c.create(obj{"name": "live", "persistent": false}).Session.ID
	c.call("POST", session(live)+"/cmd?cmdId=taken", obj{"command": "true"}, 200, nil)
	base := c.create(obj{"name": "base"})
	kept := c.stop(base.Session.ID).Snapshot.ID
	c.call("DELETE", "/v2/sandboxes/snapshots/"+kept, nil, 200, nil)
	ended := c.create(obj{"name": "ended", "persistent": false}).Session.ID
	c.stop(ended)
	c.create(obj{"name": "gone"})
	c.call("DELETE", "/v2/sandboxes/gone?projectId=prj", nil, 200, nil)
	c.drive("data", nil, 201)
	c.create(obj{"name": "writer", "mounts": obj{"/data": mounted("data", "read-write")}})

	type request struct {
		method, path string
		body         any
		status       int
		says         string
	}
	fromGone := with(obj{"name": "heir", "source": obj{"type": "snapshot", "snapshotId": kept}})
	for _, row := range []struct {
		about   string
		refusal request
		others  []request
	}{
		{"a name that is taken",
			request{"POST", "/v3/sandboxes", with(obj{"name": "live"}), 400, "already exists"},
			[]request{
				{"GET", "/v2/sandboxes/live?projectId=prj", nil, 200, `"status":"running"`},
				{"GET", "/v2/sandboxes?project=prj", nil, 200, `"name":"live"`},
				{"GET", "/v2/sandboxes/sessions?project=prj&name=live", nil, 200, live},
				{"PATCH", "/v2/sandboxes/live?projectId=prj", obj{}, 200, ""},
				{"POST", "/v2/sandboxes/base/fork?projectId=prj", obj{"name": "live"}, 410, ""}, // the source of the fork is checked first
			}},
		{"a name that is not there",
			request{"GET", "/v2/sandboxes/gone?projectId=prj", nil, 404, "not_found"},
			[]request{
				{"DELETE", "/v2/sandboxes/gone?projectId=prj", nil, 404, "not_found"},
				{"PATCH", "/v2/sandboxes/gone?projectId=prj", obj{}, 404, "not_found"},
				{"POST", "/v2/sandboxes/gone/fork?projectId=prj", obj{}, 404, "not_found"},
				{"GET", "/v2/sandboxes/sessions?project=prj&name=gone", nil, 200, `"sessions":[]`},
				{"POST", "/v3/sandboxes", with(obj{"name": "gone"}), 200, ""},
				{"GET", "/v2/sandboxes/gone?projectId=prj", nil, 200, ""},
			}},
		{"a command's ID that is taken",
			request{"POST", session(live) + "/cmd?cmdId=taken", obj{"command": "true"}, 409, "conflict"},
			[]request{
				{"GET", session(live) + "/cmd/taken", nil, 200, ""},
				{"GET", session(live) + "/cmd", nil, 200, `"id":"taken"`},
				{"GET", session(live) + "/cmd/taken/logs", nil, 200, ""},
			}},
		{"a command's ID that is not there",
			request{"GET", session(live) + "/cmd/free", nil, 404, "not_found"},
			[]request{
				{"GET", session(live) + "/cmd/free/logs", nil, 404, "not_found"},
				{"POST", session(live) + "/cmd/free/kill", obj{"signal": 15}, 404, "command_not_found_or_exited"},
				{"POST", session(live) + "/cmd?cmdId=free", obj{"command": "true"}, 200, ""},
			}},
		{"a session that has ended",
			request{"POST", session(ended) + "/cmd", obj{"command": "true"}, 410, "sandbox_stopped"},
			[]request{
				{"GET", session(ended), nil, 200, `"status":"stopped"`},
				{"GET", "/v2/sandboxes/ended?projectId=prj", nil, 200, `"status":"stopped"`},
				{"POST", session(ended) + "/fs/read", obj{"path": "x"}, 410, "sandbox_stopped"},
				{"POST", session(ended) + "/stop", nil, 200, ""},
				{"GET", "/v2/sandboxes/ended?projectId=prj&resume=true", nil, 400, "snapshot_not_found"},
				{"POST", "/v3/sandboxes", with(obj{"name": "ended"}), 400, "already exists"},
			}},
		{"a snapshot that was deleted",
			request{"POST", "/v3/sandboxes", fromGone, 410, "snapshot_not_found"},
			[]request{
				{"GET", "/v2/sandboxes/snapshots/" + kept, nil, 200, `"status":"deleted"`},
				{"GET", "/v2/sandboxes/snapshots?project=prj&name=base", nil, 200, `"status":"deleted"`},
				{"DELETE", "/v2/sandboxes/snapshots/" + kept, nil, 400, "already deleted"},
				{"GET", "/v2/sandboxes/base?projectId=prj&resume=true", nil, 410, "snapshot_not_found"},
				{"POST", "/v2/sandboxes/base/fork?projectId=prj", obj{}, 410, "snapshot_not_found"},
				{"GET", "/v2/sandboxes/base?projectId=prj", nil, 200, `"status":"stopped"`},
				{"GET", "/v2/sandboxes/heir?projectId=prj", nil, 404, "not_found"},
			}},
		{"a drive that is attached",
			request{"DELETE", "/v2/sandboxes/drives/data?projectId=prj", nil, 409, "attached"},
			[]request{
				{"GET", "/v2/sandboxes/drives/data?projectId=prj", nil, 200, `"currentSandboxName":"writer"`},
				{"GET", "/v2/sandboxes/drives?projectId=prj", nil, 200, `"currentSandboxName":"writer"`},
				{"POST", "/v3/sandboxes", with(obj{"name": "second", "mounts": obj{"/data": mounted("data", "read-write")}}), 409, "writer"},
				{"GET", "/v2/sandboxes/second?projectId=prj", nil, 404, "not_found"},
				{"DELETE", "/v2/sandboxes/writer?projectId=prj", nil, 200, ""},
				{"DELETE", "/v2/sandboxes/drives/data?projectId=prj", nil, 200, ""},
				{"GET", "/v2/sandboxes/drives/data?projectId=prj", nil, 404, "not_found"},
			}},
	} {
		for _, q := range append([]request{row.refusal}, row.others...) {
			a := <-c.sendAsync(q.method, q.path, q.body)
			require.Equal(t, q.status, a.status, "%s: %s %s: %s", row.about, q.method, q.path, a.body)
			assert.Contains(t, a.body, q.says, "%s: %s %s", row.about, q.method, q.path)
		}
	}
}

// TestCommandIDDuringStart: of two starts with the same ID one is refused. Its client then
// finds the command of the other.
func TestCommandIDDuringStart(t *testing.T) {
	t.Parallel()
	_, c := startShared(t)
	sess := session(c.create(nil).Session.ID)
	rounds := 40
	if !needs.Slow() {
		rounds = 8
	}
	for i := range rounds {
		id := "id-" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		first := c.sendAsync("POST", sess+"/cmd?cmdId="+id, obj{"command": "true"})
		second := c.sendAsync("POST", sess+"/cmd?cmdId="+id, obj{"command": "true"})
		var a answer
		select {
		case a = <-first:
			first = second
		case a = <-second:
		}
		c.call("GET", sess+"/cmd/"+id, nil, 200, nil) // the command of either start
		b := <-first
		assert.ElementsMatch(t, []int{200, 409}, []int{a.status, b.status}, "%s%s", a.body, b.body)
	}
}
