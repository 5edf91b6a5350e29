package promises_test

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

type (
	local = map[string]func(*testing.T, *world, method)
	plain = map[string]func(*testing.T)
)

// calls are the methods with options, except for those that create or update a sandbox.
var calls = []method{
	{
		name: "Get", opts: &sandbox.GetOptions{}, request: "GET /v2/sandboxes/SANDBOX", before: running, silent: true,
		call: func(w *world, opts any) (any, error) { return w.client.Get(w.ctx, "box", opts.(*sandbox.GetOptions)) },
		rows: []row{
			{field: "NoResume", value: true, sent: "?resume=false"},
			{field: "Extra", value: map[string]any{"__one": "a"}, sent: "?__one=a"},
		},
		local: local{"OnResume": onResume},
	},
	{
		name: "List", opts: &sandbox.ListOptions{Limit: 2, SortBy: sandbox.SortByName}, request: "GET /v2/sandboxes", before: boxes, silent: true,
		call: func(w *world, opts any) (any, error) {
			page, err := w.client.ListPage(w.ctx, opts.(*sandbox.ListOptions))
			if err == nil && page.Next != "" {
				w.cursor = page.Next
			}
			return page, err
		},
		rows: []row{
			{field: "Limit", value: 1, sent: "?limit=1", reads: names("c")},
			{field: "SortBy", value: sandbox.SortByCreatedAt, sent: "?sortBy=createdAt", reads: names("b", "c")},
			{field: "Status", value: sandbox.StatusRunning, and: map[string]any{"SortBy": sandbox.SortByCreatedAt}, sent: "?status=running", reads: names("b", "c")},
			{field: "SortOrder", value: sandbox.Ascending, sent: "?sortOrder=asc", reads: names("a", "b")},
			{field: "NamePrefix", value: "b", sent: "?namePrefix=b", reads: names("b")},
			{field: "Tags", value: map[string]string{"kind": "x"}, sent: "?tags=kind:x", reads: names("a")},
			{field: "Cursor", value: func(w *world) any { return w.cursor }, sent: "?cursor=CURSOR", reads: names("a")},
		},
	},
	{
		name: "ListSessions", opts: &sandbox.PageOptions{}, request: "GET /v2/sandboxes/sessions", before: running, silent: true,
		call: func(w *world, opts any) (any, error) {
			page, err := w.box.ListSessionsPage(w.ctx, opts.(*sandbox.PageOptions))
			if err == nil && page.Next != "" {
				w.cursor = page.Next
			}
			return page, err
		},
		rows: []row{
			{field: "Limit", value: 1, sent: "?limit=1", reads: items(1)},
			{field: "Cursor", value: func(w *world) any { return w.cursor }, sent: "?cursor=CURSOR", reads: items(1)},
			{field: "SortOrder", value: sandbox.Ascending, sent: "?sortOrder=asc", reads: items(2)},
		},
	},
	{
		name: "ListSnapshots", opts: &sandbox.ListSnapshotsOptions{}, request: "GET /v2/sandboxes/snapshots", before: snapshots, silent: true,
		call: func(w *world, opts any) (any, error) {
			page, err := w.client.ListSnapshotsPage(w.ctx, opts.(*sandbox.ListSnapshotsOptions))
			if err == nil && page.Next != "" {
				w.cursor = page.Next
			}
			return page, err
		},
		rows: []row{
			{field: "Sandbox", value: "box", sent: "?name=box", reads: items(2)},
			{field: "Limit", value: 1, sent: "?limit=1", reads: items(1)},
			{field: "Cursor", value: func(w *world) any { return w.cursor }, sent: "?cursor=CURSOR", reads: items(2)},
			{field: "SortOrder", value: sandbox.Ascending, sent: "?sortOrder=asc", reads: items(3)},
		},
	},
	{
		name: "SnapshotTree", opts: &sandbox.SnapshotTreeOptions{}, request: "GET /v2/sandboxes/snapshots/tree", before: snapshots, silent: true,
		call: func(w *world, opts any) (any, error) {
			return w.client.SnapshotTreePage(w.ctx, w.snapshot, opts.(*sandbox.SnapshotTreeOptions))
		},
		rows: []row{
			{field: "Limit", value: 1, sent: "?limit=1"},
			{field: "SortOrder", value: sandbox.Ascending, sent: "?sortOrder=asc"},
		},
	},
	{
		name: "ListDrives", opts: &sandbox.ListDrivesOptions{Limit: 1, SortBy: sandbox.DrivesByName}, request: "GET /v2/sandboxes/drives", silent: true,
		call: func(w *world, opts any) (any, error) {
			page, err := w.client.ListDrivesPage(w.ctx, opts.(*sandbox.ListDrivesOptions))
			if err == nil && page.Next != "" {
				w.cursor = page.Next
			}
			return page, err
		},
		rows: []row{
			{field: "Limit", value: 2, sent: "?limit=2", reads: items(2)},
			{field: "SortBy", value: sandbox.DrivesByCreatedAt, sent: "?sortBy=createdAt", reads: items(1)},
			{field: "SortOrder", value: sandbox.Ascending, sent: "?sortOrder=asc", reads: drives("disk")},
			{field: "NamePrefix", value: "disk2", sent: "?namePrefix=disk2", reads: drives("disk2")},
			{field: "Cursor", value: func(w *world) any { return w.cursor }, sent: "?cursor=CURSOR", reads: drives("disk")},
		},
	},
	{
		name: "GetOrCreateDrive", opts: &sandbox.DriveOptions{}, request: "POST /v2/sandboxes/drives/new", before: noDrive,
		call: func(w *world, opts any) (any, error) {
			return w.client.GetOrCreateDrive(w.ctx, "new", opts.(*sandbox.DriveOptions))
		},
		rows: []row{
			{field: "Region", value: "fra1", sent: `{"region":"fra1"}`},
			{field: "MaxSizeBytes", value: int64(5 << 30), sent: `{"maxSizeBytes":5368709120}`},
		},
	},
	{
		name: "Snapshot", opts: &sandbox.SnapshotOptions{}, request: "POST /v2/sandboxes/sessions/SESSION/snapshot", before: running, silent: true,
		call: func(w *world, opts any) (any, error) { return w.box.Snapshot(w.ctx, opts.(*sandbox.SnapshotOptions)) },
		rows: []row{
			{field: "Expiration", value: 48 * time.Hour, sent: `{"expiration":172800000}`, reads: func(t *testing.T, _ *world, handle any) {
				info := handle.(*sandbox.Snapshot).Info()
				assert.Equal(t, 48*time.Hour, info.ExpiresAt.Sub(info.CreatedAt).Round(time.Minute))
			}},
			{field: "Expiration", value: sandbox.Forever, sent: `{"expiration":0}`, reads: func(t *testing.T, _ *world, handle any) {
				assert.Zero(t, handle.(*sandbox.Snapshot).Info().ExpiresAt)
			}},
		},
	},
	{
		name: "Stop", opts: &sandbox.StopOptions{}, request: "POST /v2/sandboxes/sessions/SESSION/stop", before: running,
		call: func(w *world, opts any) (any, error) { return w.box.Stop(w.ctx, opts.(*sandbox.StopOptions)) },
		held: []string{"NoWait"},
	},
	{
		name: "Delete", opts: &sandbox.DeleteOptions{}, request: "DELETE /v2/sandboxes/box", before: oneMore, silent: true,
		call: func(w *world, opts any) (any, error) {
			return nil, w.client.Delete(w.ctx, "box", opts.(*sandbox.DeleteOptions))
		},
		rows: []row{{field: "DeleteOrphanSnapshots", value: true, sent: "?deleteOrphanSnapshots=true"}},
	},
	{
		name: "RunCommand", opts: &sandbox.CommandOptions{ID: "same"}, request: "POST /v2/sandboxes/sessions/SESSION/cmd", before: fresh, silent: true,
		call: func(w *world, opts any) (any, error) {
			done, err := w.box.RunCommand(w.ctx, "sh", []string{"-c", "pwd; echo $FIELD; id -u; cat"}, opts.(*sandbox.CommandOptions))
			if err != nil {
				return nil, err
			}
			return done.Stdout(w.ctx)
		},
		rows: commandRows,
		held: commandHeld,
	},
	{
		name: "StartCommand", opts: &sandbox.StartOptions{ID: "same"}, request: "POST /v2/sandboxes/sessions/SESSION/cmd", before: fresh, silent: true,
		call: func(w *world, opts any) (any, error) {
			cmd, err := w.box.StartCommand(w.ctx, "sh", []string{"-c", "pwd; echo $FIELD; id -u"}, opts.(*sandbox.StartOptions))
			if err != nil {
				return nil, err
			}
			return cmd.Stdout(w.ctx)
		},
		rows:  commandRows,
		byDay: 2,
		held:  commandHeld,
		local: local{
			"AttachStdin": func(t *testing.T, w *world, m method) {
				makeBox(t, w)
				w.recorded()
				c, err := w.box.StartCommand(t.Context(), "cat", nil, &sandbox.StartOptions{AttachStdin: true})
				require.NoError(t, err)
				mark := fmt.Sprintf(`"GO_SANDBOX_COMMAND":"%s/%s"`, c.SessionID(), c.ID())
				assert.JSONEq(t, `{"command":"cat","args":[],"env":{`+mark+`},"sudo":false,"attachStdin":true}`, w.recorded()[0].body)
				in := c.Stdin(t.Context())
				_, err = in.Write([]byte("through"))
				require.NoError(t, err)
				require.NoError(t, in.Close())
				out, err := c.Stdout(t.Context())
				require.NoError(t, err)
				assert.Equal(t, "through", out)
			},
		},
	},
	{
		name: "Open", opts: &sandbox.OpenOptions{}, request: "POST /v2/sandboxes/sessions/SESSION/fs/read", before: file, silent: true,
		call: func(w *world, opts any) (any, error) {
			r, err := w.box.FS().Open(w.ctx, "field.txt", opts.(*sandbox.OpenOptions))
			if err != nil {
				return nil, err
			}
			return nil, r.Close()
		},
		rows: []row{{field: "Cwd", value: "/tmp", sent: `{"cwd":"/tmp"}`}},
		local: local{"NoSizeCheck": func(t *testing.T, w *world, _ method) {
			makeBox(t, w)
			// Too long for net/http to set a length by itself.
			require.NoError(t, w.box.FS().WriteFile(t.Context(), "data", make([]byte, 100_000), 0o644))
			for _, no := range []bool{true, false} {
				before := len(w.srv.Requests())
				r, err := w.box.FS().Open(t.Context(), "data", &sandbox.OpenOptions{NoSizeCheck: no})
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, r)
				require.NoError(t, errors.Join(err, r.Close()))
				assert.Equal(t, no, len(w.srv.Requests())-before == 1)
			}
		}},
	},
}

// commandRows are the fields that RunCommand and StartCommand share. Other tests set
// commandHeld.
var (
	commandRows = []row{
		{field: "Cwd", value: "/tmp", sent: `{"cwd":"/tmp"}`, reads: prints(`(^|\n)\S*/tmp\n`)},
		{field: "Env", value: sandbox.Env{"FIELD": "value"}, sent: `{"env":{"FIELD":"value"}}`, reads: prints(`\nvalue\n`)},
		{field: "Sudo", value: true, sent: `{"sudo":true}`, reads: func(t *testing.T, w *world, out any) {
			if w.srv.Mode() != sandboxtest.Folder { // there, commands have one user
				assert.Regexp(t, `\n0\n`, out)
			}
		}},
		{field: "Timeout", value: 90 * time.Second, sent: `{"timeout":90000}`},
		{field: "ID", value: "other", sent: "?cmdId=other", reads: func(t *testing.T, w *world, _ any) {
			c, err := w.box.GetCommand(t.Context(), "other")
			require.NoError(t, err)
			assert.Equal(t, "sh", c.Name())
		}},
	}
	commandHeld = []string{"Binary", "Stdout", "Stderr", "KillOnCancel"}
)

func TestCalls(t *testing.T) {
	t.Parallel()
	for _, m := range calls {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.test(t)
		})
	}
}

// boxes creates three sandboxes, whose order by age differs from that by name.
func boxes(t *testing.T, w *world) {
	if w.box != nil {
		return
	}
	for _, o := range []sandbox.CreateOptions{{Name: "a", Tags: map[string]string{"kind": "x"}}, {Name: "c"}, {Name: "b"}} {
		var err error
		w.box, err = w.client.Create(t.Context(), &o)
		require.NoError(t, err)
	}
}

// snapshots creates two snapshots of one sandbox and one of another.
func snapshots(t *testing.T, w *world) {
	if w.box != nil {
		return
	}
	other, err := w.client.Create(t.Context(), nil)
	require.NoError(t, err)
	_, err = other.Snapshot(t.Context(), nil)
	require.NoError(t, err)
	running(t, w)
	again, err := w.box.Snapshot(t.Context(), nil)
	require.NoError(t, err)
	w.snapshot = again.ID()
}

func oneMore(t *testing.T, w *world) {
	_, err := w.client.Create(t.Context(), &sandbox.CreateOptions{Name: "box"})
	require.NoError(t, err)
}

func noDrive(t *testing.T, w *world) {
	if d, err := w.client.GetDrive(t.Context(), "new"); err == nil {
		_ = d.Delete(t.Context())
	}
}

// fresh replaces the sandbox by a new one, in which no command has an ID yet.
func fresh(t *testing.T, w *world) {
	if w.box != nil {
		require.NoError(t, w.box.Delete(t.Context(), nil))
		w.box = nil
	}
	makeBox(t, w)
}

// file creates an empty file of the same name in two directories.
func file(t *testing.T, w *world) {
	makeBox(t, w)
	require.NoError(t, w.box.WriteFiles(t.Context(), []sandbox.File{{Path: "field.txt"}, {Path: "/tmp/field.txt"}}, nil))
}

func names(want ...string) func(*testing.T, *world, any) {
	return func(t *testing.T, _ *world, page any) {
		var got []string
		for _, info := range page.(*sandbox.Page[sandbox.Info]).Items {
			got = append(got, info.Name)
		}
		assert.Equal(t, want, got)
	}
}

func drives(want ...string) func(*testing.T, *world, any) {
	return func(t *testing.T, _ *world, page any) {
		var got []string
		for _, info := range page.(*sandbox.Page[sandbox.DriveInfo]).Items {
			got = append(got, info.Name)
		}
		assert.Equal(t, want, got)
	}
}

func items(n int) func(*testing.T, *world, any) {
	return func(t *testing.T, _ *world, page any) {
		assert.Equal(t, n, reflect.ValueOf(page).Elem().FieldByName("Items").Len())
	}
}

func prints(want string) func(*testing.T, *world, any) {
	return func(t *testing.T, _ *world, out any) { assert.Regexp(t, want, out) }
}
