package sandboxtest_test

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// drive gets or creates a drive.
func (c *raw) drive(name string, params obj, status int) wire.Drive {
	c.t.Helper()
	body := obj{"projectId": "prj"}
	maps.Copy(body, params)
	var out wire.DriveResponse
	c.call("POST", "/v2/sandboxes/drives/"+name, body, status, &out)
	return out.Drive
}

func mounted(drive, mode string) obj { return obj{"drive": drive, "mode": mode} }

func TestDrives(t *testing.T) {
	t.Parallel()
	srv, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	made := c.drive("data", nil, 201)
	assert.Equal(t, []any{"data", "prj", "iad1", int64(1 << 40)}, []any{made.Name, made.ProjectID, made.Region, made.MaxSizeBytes})
	assert.Equal(t, made, c.drive("data", nil, 200))
	assert.Equal(t, made, c.drive("data", obj{"region": "iad1", "maxSizeBytes": int64(1 << 40)}, 200))
	path := "/v2/sandboxes/drives/"
	c.refused("POST", path+"data", obj{"projectId": "prj", "region": "sfo1"}, 409, "conflict")
	c.refused("POST", path+"data", obj{"projectId": "prj", "maxSizeBytes": 4096}, 409, "conflict")
	for _, bad := range []obj{
		{"region": "moon1"}, {"maxSizeBytes": 0}, {"maxSizeBytes": int64(17 << 40)}, {"size": 1}, {"name": "x"}, {"projectId": ""},
	} {
		body := obj{"projectId": "prj"}
		maps.Copy(body, bad)
		c.refused("POST", path+"other", body, 400, "bad_request")
	}
	c.refused("POST", path+"a%2Fb", obj{"projectId": "prj"}, 400, "bad_request")
	c.refused("POST", path+fmt.Sprintf("%065d", 1), obj{"projectId": "prj"}, 400, "bad_request")

	var got wire.DriveResponse
	for _, id := range []string{"data", made.ID} {
		c.call("GET", path+id+"?projectId=prj", nil, 200, &got)
		assert.Equal(t, made, got.Drive)
	}
	c.refused("GET", path+"data?projectId=other", nil, 404, "not_found")

	// List the drives in pages, in each order.
	for i := range 4 {
		srv.Advance(time.Second)
		c.drive(fmt.Sprintf("extra-%d", (i*3)%4), nil, 201)
	}
	c.drive("foreign", obj{"projectId": "other"}, 201)
	names := func(query string) (out []string) {
		values, err := url.ParseQuery("projectId=prj&" + query)
		require.NoError(t, err)
		for {
			var page wire.DrivesPage
			c.call("GET", "/v2/sandboxes/drives?"+values.Encode(), nil, 200, &page)
			for _, d := range page.Drives {
				out = append(out, d.Name)
			}
			assert.Equal(t, len(page.Drives), page.Pagination.Count)
			if page.Pagination.Next == nil {
				return out
			}
			values.Set("cursor", *page.Pagination.Next)
		}
	}
	assert.Equal(t, []string{"extra-1", "extra-2", "extra-3", "extra-0", "data"}, names("limit=2"))
	assert.Equal(t, []string{"data", "extra-0", "extra-3", "extra-2", "extra-1"}, names("limit=2&sortOrder=asc&sortBy=updatedAt"))
	assert.Equal(t, []string{"extra-0", "extra-1", "extra-2", "extra-3"}, names("limit=3&sortOrder=asc&sortBy=name&namePrefix=extra"))
	c.refused("GET", "/v2/sandboxes/drives?namePrefix=x", nil, 400, "bad_request")
	c.refused("GET", "/v2/sandboxes/drives?sortBy=size", nil, 400, "bad_request")

	c.call("DELETE", path+"data?projectId=prj", nil, 200, &got)
	assert.Equal(t, made, got.Drive)
	c.refused("DELETE", path+"data?projectId=prj", nil, 404, "not_found")
	assert.NotEqual(t, made.ID, c.drive("data", nil, 201).ID)
	c.call("GET", "/v2/sandboxes/features?projectId=prj", nil, 200, nil)
}

// TestDriveOutlivesSandboxes: a sandbox reads what an earlier one has written to a drive.
// Snapshots contain no files of the drive.
func TestDriveOutlivesSandboxes(t *testing.T) {
	t.Parallel()
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		c.drive("data", nil, 201)
		mounts := obj{"/data": mounted("data", "read-write")}
		one := c.create(obj{"name": "one", "mounts": mounts})
		assert.Equal(t, map[string]wire.Mount{"/data": {Drive: "data", Mode: "read-write"}}, one.Sandbox.Mounts)
		c.sh(one.Session.ID, "echo first > /data/file; mkdir /data/dir; echo local > own")
		res := c.run(one.Session.ID, obj{"command": "pwd", "cwd": "/data/dir"})
		assert.Contains(t, res.stdout, "dir")
		// The file API also works on the drive.
		c.call("POST", session(one.Session.ID)+"/fs/mkdir", obj{"path": "/data/made"}, 200, nil)
		resp := c.send(c.request("POST", session(one.Session.ID)+"/fs/read", obj{"path": "/data/file"}))
		assert.Equal(t, 200, resp.StatusCode)

		var d wire.DriveResponse
		c.call("GET", "/v2/sandboxes/drives/data?projectId=prj", nil, 200, &d)
		assert.Equal(t, []string{"one", one.Session.ID}, []string{d.Drive.CurrentSandboxName, d.Drive.CurrentSessionID})
		c.refused("DELETE", "/v2/sandboxes/drives/data?projectId=prj", nil, 409, "conflict")
		c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "name": "two", "mounts": mounts}, 409, "conflict")
		c.get("two", "", 404)

		// Other sessions see its files once it has ended, and keep their own changes to
		// themselves.
		early := c.create(obj{"mounts": obj{"/data": mounted("data", "snapshot")}})
		assert.Empty(t, c.sh(early.Session.ID, "ls /data"))
		c.stop(one.Session.ID)
		back := c.get("one", "&resume=true", 200)
		reader := c.create(obj{"mounts": obj{"/data/": mounted("data", "snapshot"), "/again": mounted("data", "read-only")}})
		c.sh(back.Session.ID, "echo later > /data/file")
		assert.Equal(t, "first\nfirst\n", c.sh(reader.Session.ID, "cat /data/file /again/file; echo mine > /data/file"))
		assert.Equal(t, "snapshot", reader.Sandbox.Mounts["/again"].Mode)
		assert.Equal(t, "later\n", c.sh(back.Session.ID, "cat /data/file"))
		c.stop(reader.Session.ID)

		c.stop(back.Session.ID)
		two := c.create(obj{"name": "two", "mounts": mounts})
		assert.Equal(t, "later\ndir\nfile\nmade\n", c.sh(two.Session.ID, "cat /data/file; ls /data"))
		c.refused("GET", "/v2/sandboxes/one?projectId=prj&resume=true", nil, 409, "conflict")
		c.stop(two.Session.ID)
		back = c.get("one", "&resume=true", 200)
		assert.Equal(t, "later\nlocal\n", c.sh(back.Session.ID, "cat /data/file own"))

		// Mounts change with the next session, and a snapshot contains no drive.
		var up wire.UpdateResponse
		c.call("PATCH", "/v2/sandboxes/one?projectId=prj", obj{"mounts": obj{}}, 200, &up)
		assert.Empty(t, up.Sandbox.Mounts)
		assert.Equal(t, "later\n", c.sh(back.Session.ID, "cat /data/file"))
		c.stop(back.Session.ID)
		back = c.get("one", "&resume=true", 200)
		assert.Equal(t, "local\n", c.sh(back.Session.ID, "cat own; ls "+filepath.ToSlash("../..")+"/data 2>/dev/null || true"))
		c.call("DELETE", "/v2/sandboxes/drives/data?projectId=prj", nil, 200, nil)
		c.refused("PATCH", "/v2/sandboxes/one?projectId=prj", obj{"mounts": mounts}, 404, "not_found")
	})
}

func TestMountRefusals(t *testing.T) {
	t.Parallel()
	_, c := start(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	c.drive("a", nil, 201)
	c.drive("b", nil, 201)
	c.drive("west", obj{"region": "sfo1"}, 201)
	rw := mounted("a", "read-write")
	for name, bad := range map[string]obj{
		"five":         {"mounts": obj{"/1": rw, "/2": rw, "/3": rw, "/4": rw, "/5": rw}},
		"relative":     {"mounts": obj{"data": rw}},
		"root":         {"mounts": obj{"/": rw}},
		"dots":         {"mounts": obj{"/data/../x": rw}},
		"proc":         {"mounts": obj{"/proc/x": rw}},
		"overlap":      {"mounts": obj{"/data": rw, "/data/b": mounted("b", "read-write")}},
		"twice":        {"mounts": obj{"/data": rw, "/more": rw}},
		"no drive":     {"mounts": obj{"/data": obj{"mode": "snapshot"}}},
		"no mode":      {"mounts": obj{"/data": obj{"drive": "a"}}},
		"unknown mode": {"mounts": obj{"/data": mounted("a", "write")}},
		"region":       {"mounts": obj{"/data": mounted("west", "read-write")}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &raw{t, c.srv, c.client}
			bad["projectId"] = "prj"
			c.refused("POST", "/v2/sandboxes", bad, 400, "bad_request")
		})
	}
	c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "mounts": obj{"/x": mounted("none", "snapshot")}}, 404, "not_found")
	c.create(obj{"region": "sfo1", "mounts": obj{"/x": mounted("west", "read-write")}})
	assert.Len(t, c.list(url.Values{"project": {"prj"}}).Sandboxes, 1, "a refused creation leaves nothing")
}

func TestForkDrive(t *testing.T) {
	t.Parallel()
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, c *raw) {
		c.drive("a", obj{"region": "sfo1", "maxSizeBytes": 1 << 30}, 201)
		one := c.create(obj{"region": "sfo1", "mounts": obj{"/d": mounted("a", "read-write")}})
		c.sh(one.Session.ID, "echo base > /d/file; chmod 600 /d/file")
		c.stop(one.Session.ID)
		one = c.get(one.Sandbox.Name, "&resume=true", 200)
		c.sh(one.Session.ID, "echo uncommitted > /d/file")
		var out wire.DriveResponse
		c.call("POST", "/v2/sandboxes/drives/a/fork?projectId=prj", obj{"name": "b"}, 201, &out)
		assert.Equal(t, []any{"b", "sfo1", int64(1 << 30)}, []any{out.Drive.Name, out.Drive.Region, out.Drive.MaxSizeBytes})
		two := c.create(obj{"region": "sfo1", "mounts": obj{"/d": mounted("b", "read-write")}})
		assert.Equal(t, "base\n600\n", c.sh(two.Session.ID, "cat /d/file; stat -c %a /d/file; echo x >> /d/file"))
		c.refused("POST", "/v2/sandboxes/drives/a/fork?projectId=prj", obj{"name": "b"}, 409, "conflict")
		c.refused("POST", "/v2/sandboxes/drives/none/fork?projectId=prj", obj{"name": "c"}, 404, "not_found")
		c.refused("POST", "/v2/sandboxes/drives/a/fork?projectId=prj", obj{}, 400, "bad_request")
	})
}

func TestDrivesOutliveTheServer(t *testing.T) {
	t.Parallel()
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, probe *sandboxtest.Server, _ *raw) {
		opts := &sandboxtest.Options{Mode: probe.Mode(), Dir: t.TempDir()}
		mounts := obj{"/d": mounted("kept", "read-write")}
		srv, err := sandboxtest.NewServer(opts)
		require.NoError(t, err)
		c := newRaw(t, srv)
		made := c.drive("kept", nil, 201)
		c.sh(c.create(obj{"name": "one", "mounts": mounts}).Session.ID, "echo kept > /d/file")
		require.NoError(t, srv.Close())

		srv, err = sandboxtest.NewServer(opts)
		require.NoError(t, err)
		c = newRaw(t, srv)
		again := c.drive("kept", nil, 200)
		assert.Equal(t, made.ID, again.ID)
		assert.Empty(t, again.CurrentSandboxName)
		assert.Equal(t, "kept\n", c.sh(c.get("one", "&resume=true", 200).Session.ID, "cat /d/file"))
		require.NoError(t, srv.Close())
	})
}

// TestDriveAncestors: a forked drive names its source and the first drive of its line, on
// both paths of the API, and after a restart.
func TestDriveAncestors(t *testing.T) {
	t.Parallel()
	opts := sandboxtest.Options{Dir: t.TempDir(), Mode: sandboxtest.Folder}
	srv, err := sandboxtest.NewServer(&opts)
	require.NoError(t, err)
	c := newRaw(t, srv)
	var first, second, third wire.DriveResponse
	c.call("POST", "/v1/drives/first", obj{"projectId": "prj", "maxSizeBytes": 8192}, 201, &first)
	c.call("POST", "/v2/sandboxes/drives/first/fork?projectId=prj", obj{"name": "second"}, 201, &second)
	c.call("POST", "/v1/drives/second/fork?projectId=prj", obj{"name": "third"}, 201, &third)
	assert.Empty(t, first.Drive.ParentDriveID+first.Drive.RootDriveID)
	assert.Equal(t, []string{first.Drive.ID, first.Drive.ID}, []string{second.Drive.ParentDriveID, second.Drive.RootDriveID})
	assert.Equal(t, []string{second.Drive.ID, first.Drive.ID}, []string{third.Drive.ParentDriveID, third.Drive.RootDriveID})
	assert.EqualValues(t, 8192, third.Drive.MaxSizeBytes)
	require.NoError(t, srv.Close())

	srv, c = start(t, &opts)
	require.NotNil(t, srv)
	var again wire.DriveResponse
	c.call("GET", "/v1/drives/"+third.Drive.ID+"?projectId=prj", nil, 200, &again)
	assert.Equal(t, third, again)
	var page wire.DrivesPage
	c.call("GET", "/v1/drives?projectId=prj", nil, 200, &page)
	assert.Len(t, page.Drives, 3)
	c.call("DELETE", "/v1/drives/second?projectId=prj", nil, 200, nil)
	c.refused("GET", "/v1/drives/second?projectId=prj", nil, 404, "not_found")
	c.refused("GET", "/v1/drivesx", nil, 404, "not_found")
	c.refused("POST", "/v1/drives/first/fork?projectId=prj", obj{"name": "x", "region": "sfo1"}, 400, "bad_request")
	c.refused("POST", "/v1/drives/odd", obj{"projectId": "prj", "maxSizeBytes": 4097}, 400, "bad_request")
}
