package sandboxtest_test

import (
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func (c *raw) list(query url.Values) wire.SandboxesPage {
	c.t.Helper()
	var out wire.SandboxesPage
	c.call("GET", "/v2/sandboxes?"+query.Encode(), nil, 200, &out)
	assert.Equal(c.t, len(out.Sandboxes), out.Pagination.Count)
	return out
}

// allNames follows the cursors and returns all names.
func (c *raw) allNames(query url.Values) (names []string) {
	c.t.Helper()
	for {
		page := c.list(query)
		for _, sb := range page.Sandboxes {
			names = append(names, sb.Name)
		}
		if page.Pagination.Next == nil {
			return names
		}
		query.Set("cursor", *page.Pagination.Next)
	}
}

func TestListSandboxes(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	var names []string
	for i := range 7 {
		name := fmt.Sprintf("box-%d", (i*3)%7)
		names = append(names, name)
		c.create(obj{"name": name, "tags": obj{"even": fmt.Sprint(i%2 == 0), "all": "x"}})
		srv.Advance(time.Millisecond)
	}
	c.create(obj{"name": "other", "projectId": "other"})
	newest := slices.Clone(names)
	slices.Reverse(newest)
	sorted := slices.Sorted(slices.Values(names))

	project := func(kv ...string) url.Values {
		q := url.Values{"project": {"prj"}}
		for i := 0; i < len(kv); i += 2 {
			q.Add(kv[i], kv[i+1])
		}
		return q
	}
	assert.Equal(t, newest, c.allNames(project()))
	resp := c.send(c.request("GET", "/v2/sandboxes?limit=7", nil))
	assert.Greater(t, resp.ContentLength, int64(3000), "JSON comes with its length")
	assert.Equal(t, newest, c.allNames(project("limit", "2")))
	assert.Equal(t, names, c.allNames(project("limit", "3", "sortOrder", "asc")))
	assert.Equal(t, sorted, c.allNames(project("limit", "3", "sortBy", "name", "sortOrder", "asc")))
	assert.Equal(t, []string{"box-1"}, c.allNames(project("sortBy", "name", "namePrefix", "box-1")))
	assert.Len(t, c.allNames(project("tags", "even:true")), 4)
	assert.Len(t, c.allNames(project("tags", "even:true", "limit", "1")), 4)
	assert.Empty(t, c.allNames(project("tags", "even:maybe")))
	assert.Equal(t, []string{"other"}, c.allNames(url.Values{"project": {"other"}}))

	c.stop(c.get("box-3", "", 200).Session.ID)
	assert.Equal(t, "box-3", c.allNames(project("sortBy", "statusUpdatedAt"))[0])

	// Sandboxes created between two pages don't change the remaining pages.
	page := c.list(project("limit", "2"))
	c.create(obj{"name": "late"})
	rest := c.allNames(project("limit", "2", "cursor", *page.Pagination.Next))
	assert.Equal(t, newest[2:], rest)

	for _, bad := range [][]string{
		{"limit", "0"}, {"limit", "51"}, {"limit", "x"}, {"sortBy", "size"}, {"sortOrder", "up"}, {"cursor", "x"},
		{"cursor", *page.Pagination.Next, "sortOrder", "asc"}, {"cursor", *page.Pagination.Next, "sortBy", "name"},
		{"namePrefix", "b"}, {"tags", "x"}, {"tags", "a:b", "tags", "c:d"}, {"status", "failed"}, {"status", "running", "sortBy", "name"},
	} {
		c.refused("GET", "/v2/sandboxes?"+project(bad...).Encode(), nil, 400, "bad_request")
	}
}

func TestListSessionsAndSnapshots(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.create(obj{"name": "one"})
	c.create(obj{"name": "two"})
	for i := range 3 {
		c.saveFile("one", fmt.Sprint(i))
		srv.Advance(time.Second)
	}
	var sessions, page wire.SessionsPage
	c.call("GET", "/v2/sandboxes/sessions?project=prj&name=one&sortOrder=asc", nil, 200, &sessions)
	require.Len(t, sessions.Sessions, 3)
	assert.True(t, sessions.Sessions[0].CreatedAt.Before(sessions.Sessions[2].CreatedAt.Time))
	c.call("GET", "/v2/sandboxes/sessions?project=prj&limit=3", nil, 200, &page)
	require.NotNil(t, page.Pagination.Next)
	c.call("GET", "/v2/sandboxes/sessions?project=prj&limit=3&cursor="+*page.Pagination.Next, nil, 200, &page)
	assert.Len(t, page.Sessions, 1)

	var snapshots wire.SnapshotsPage
	c.call("GET", "/v2/sandboxes/snapshots?project=prj&name=one&limit=2", nil, 200, &snapshots)
	require.Len(t, snapshots.Snapshots, 2)
	newest := snapshots.Snapshots[0].ID
	assert.Equal(t, c.get("one", "&resume=false", 200).Sandbox.CurrentSnapshotID, newest)
	c.call("GET", "/v2/sandboxes/snapshots?project=prj&name=one&limit=2&cursor="+*snapshots.Pagination.Next, nil, 200, &snapshots)
	assert.Len(t, snapshots.Snapshots, 1)
	assert.Nil(t, snapshots.Pagination.Next)
	c.call("GET", "/v2/sandboxes/snapshots?project=prj&name=two", nil, 200, &snapshots)
	assert.Empty(t, snapshots.Snapshots)
	c.call("GET", "/v2/sandboxes/snapshots?project=none", nil, 200, &snapshots)
	assert.NotNil(t, snapshots.Snapshots)
}
