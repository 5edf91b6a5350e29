package client_test

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// A drive is created once and found afterwards, unless its region or size
// differs.
func TestDriveGetOrCreate(t *testing.T) {
	t.Parallel()
	c := testkit.Client(t, newServer(t), sandbox.ClientOptions{})
	ctx := t.Context()
	_, err := c.GetDrive(ctx, "data")
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	assert.ErrorContains(t, err, "'data' not found")
	made, err := c.GetOrCreateDrive(ctx, "data", &sandbox.DriveOptions{Region: "sfo1", MaxSizeBytes: 1 << 30})
	require.NoError(t, err)
	info := made.Info()
	assert.Equal(t, []any{"data", "sfo1", int64(1 << 30)}, []any{info.Name, info.Region, info.MaxSizeBytes})
	assert.Empty(t, info.CurrentSandboxName)

	again, err := c.GetOrCreateDrive(ctx, "data", nil)
	require.NoError(t, err)
	assert.Equal(t, info, again.Info())
	for _, id := range []string{"data", made.Info().ID} {
		found, err := c.GetDrive(ctx, id)
		require.NoError(t, err)
		assert.Equal(t, info, found.Info(), id)
	}
	for _, other := range []sandbox.DriveOptions{{Region: "iad1"}, {MaxSizeBytes: 1 << 31}} {
		_, err := c.GetOrCreateDrive(ctx, "data", &other)
		assert.ErrorIs(t, err, sandbox.ErrConflict)
		assert.ErrorContains(t, err, "already exists with another region or size")
	}

	require.NoError(t, made.Delete(ctx))
	err = made.Delete(ctx)
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	assert.ErrorContains(t, err, "'data' not found")
	anew, err := c.GetOrCreateDrive(ctx, "data", nil)
	require.NoError(t, err)
	assert.NotEqual(t, info.ID, anew.Info().ID)
	assert.Equal(t, "iad1", anew.Info().Region)
}

func TestListDrives(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	for _, name := range []string{"logs-b", "data", "logs-a", "logs-d", "logs-c"} {
		_, err := c.GetOrCreateDrive(t.Context(), name, nil)
		require.NoError(t, err)
		srv.Advance(1e9)
	}
	for _, want := range []struct {
		opts  *sandbox.ListDrivesOptions
		names []string
		pages int
	}{
		{nil, []string{"logs-c", "logs-d", "logs-a", "data", "logs-b"}, 1},
		{&sandbox.ListDrivesOptions{Limit: 2}, []string{"logs-c", "logs-d", "logs-a", "data", "logs-b"}, 3},
		{&sandbox.ListDrivesOptions{SortBy: sandbox.DrivesByUpdatedAt, SortOrder: sandbox.Ascending, Limit: 4}, []string{"logs-b", "data", "logs-a", "logs-d", "logs-c"}, 2},
		{&sandbox.ListDrivesOptions{NamePrefix: "logs-", SortOrder: sandbox.Ascending, Limit: 3}, []string{"logs-a", "logs-b", "logs-c", "logs-d"}, 2},
		{&sandbox.ListDrivesOptions{NamePrefix: "nothing"}, nil, 1},
	} {
		before := testkit.Count(srv, sandboxtest.ListDrives)
		var names []string
		for d, err := range c.ListDrives(t.Context(), want.opts) {
			require.NoError(t, err)
			names = append(names, d.Name)
		}
		assert.Equal(t, want.names, names)
		assert.Equal(t, want.pages, testkit.Count(srv, sandboxtest.ListDrives)-before, "requests for %+v", want.opts)
	}
	// Another program can continue the listing with the cursor of the last page.
	page, err := c.ListDrivesPage(t.Context(), &sandbox.ListDrivesOptions{Limit: 2})
	require.NoError(t, err)
	page, err = c.ListDrivesPage(t.Context(), &sandbox.ListDrivesOptions{Limit: 2, Cursor: page.Next})
	require.NoError(t, err)
	assert.Equal(t, []string{"logs-a", "data"}, []string{page.Items[0].Name, page.Items[1].Name})
	_, err = c.ListDrivesPage(t.Context(), &sandbox.ListDrivesOptions{NamePrefix: "logs-", SortBy: sandbox.DrivesByCreatedAt})
	require.ErrorIs(t, err, sandbox.ErrRefused)
	asked := len(srv.Requests())
	_, err = c.ListDrivesPage(t.Context(), &sandbox.ListDrivesOptions{Limit: 51})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.Len(t, srv.Requests(), asked)
}

// TestDriveMounts creates, forks and updates sandboxes with mounts of a drive.
func TestDriveMounts(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	ctx := t.Context()
	drive, err := c.GetOrCreateDrive(ctx, "data", nil)
	require.NoError(t, err)
	at := func(m sandbox.Mount) map[string]sandbox.Mount { return map[string]sandbox.Mount{"/data": m} }
	told := func(m sandbox.Mount) map[string]sandbox.Mount { return at(sandbox.Mount{Drive: m.Drive, Mode: m.Mode}) }
	sh := func(sb *sandbox.Sandbox, script string) string {
		t.Helper()
		done, err := sb.RunCommand(ctx, "sh", []string{"-c", script}, nil)
		require.NoError(t, err)
		out, err := done.CombinedOutput(ctx)
		require.NoError(t, err)
		return out
	}

	// A mount without a mode is read-write.
	writer, err := c.Create(ctx, &sandbox.CreateOptions{Name: "writer", Mounts: at(sandbox.Mount{Drive: "data"})})
	require.NoError(t, err)
	assert.Equal(t, told(drive.Mount(sandbox.MountReadWrite)), writer.Info().Mounts)
	sh(writer, "echo first > /data/file; echo own > own")
	drive, err = c.GetDrive(ctx, "data")
	require.NoError(t, err)
	assert.Equal(t, []string{"writer", writer.CurrentSession().ID()}, []string{drive.Info().CurrentSandboxName, drive.Info().CurrentSessionID})

	// No other sandbox can write to the drive now, and no client can delete it.
	_, err = c.Create(ctx, &sandbox.CreateOptions{Name: "second", Mounts: at(drive.Mount(sandbox.MountReadWrite))})
	assert.ErrorIs(t, err, sandbox.ErrConflict)
	assert.ErrorContains(t, err, "attached to the sandbox 'writer'")
	_, err = c.Get(ctx, "second", nil)
	require.ErrorIs(t, err, sandbox.ErrNotFound, "the second sandbox was not created")
	err = drive.Delete(ctx)
	assert.ErrorIs(t, err, sandbox.ErrConflict)
	assert.ErrorContains(t, err, "'data' is attached to a sandbox")

	// A snapshot mount shows the data of the sessions that ended before it was created.
	early, err := c.Create(ctx, &sandbox.CreateOptions{Mounts: at(drive.Mount(sandbox.MountSnapshot))})
	require.NoError(t, err)
	assert.Empty(t, sh(early, "ls /data"))
	_, err = writer.Stop(ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, sh(early, "ls /data"), "an existing snapshot mount does not change")
	late, err := c.Fork(ctx, "writer", &sandbox.ForkOptions{Name: "late", Mounts: at(drive.Mount(sandbox.MountSnapshot))})
	require.NoError(t, err)
	assert.Equal(t, told(drive.Mount(sandbox.MountSnapshot)), late.Info().Mounts)
	assert.Equal(t, "first\nown\n", sh(late, "cat /data/file own; echo mine > /data/file 2>/dev/null || true"))
	drive, err = c.GetDrive(ctx, "data")
	require.NoError(t, err)
	assert.Empty(t, drive.Info().CurrentSandboxName, "a snapshot mount does not attach the drive")

	// A fork does not inherit mounts. The fork of a stopped sandbox can mount the same
	// drive, and the sandbox's next session sees the fork's data. Data written to a
	// snapshot mount is lost.
	bare, err := c.Fork(ctx, "writer", &sandbox.ForkOptions{Name: "bare"})
	require.NoError(t, err)
	assert.Empty(t, bare.Info().Mounts)
	heir, err := c.Fork(ctx, "writer", &sandbox.ForkOptions{Name: "heir", Mounts: at(drive.Mount(sandbox.MountReadWrite))})
	require.NoError(t, err)
	assert.Equal(t, told(drive.Mount(sandbox.MountReadWrite)), heir.Info().Mounts)
	assert.Equal(t, "first\n", sh(heir, "cat /data/file; echo heir >> /data/file"))
	require.NoError(t, heir.Delete(ctx, nil))
	assert.Equal(t, "first\nheir\n", sh(writer, "cat /data/file"))

	// An update applies to the next session.
	require.NoError(t, writer.Update(ctx, &sandbox.UpdateOptions{Mounts: map[string]sandbox.Mount{}}))
	assert.Empty(t, writer.Info().Mounts)
	assert.Equal(t, "first\nheir\n", sh(writer, "cat /data/file"))
	_, err = writer.Stop(ctx, nil)
	require.NoError(t, err)
	assert.Equal(t, "own\n", sh(writer, "cat own /data/file 2>/dev/null"))
	require.NoError(t, writer.Update(ctx, &sandbox.UpdateOptions{Mounts: map[string]sandbox.Mount{"/shared": drive.Mount(sandbox.MountReadWrite)}}))
	_, err = writer.Stop(ctx, nil)
	require.NoError(t, err)
	assert.Equal(t, "first\nheir\n", sh(writer, "cat /shared/file"))

	// Files on the drive can be read like any other.
	data, err := writer.FS().ReadFile(ctx, "/shared/file")
	require.NoError(t, err)
	assert.Equal(t, "first\nheir\n", string(data))
	_, err = writer.FS().ReadFile(ctx, "/shared/none")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, writer.FS().WriteFile(ctx, "/shared/more", []byte("more"), 0o644))
	_, err = writer.FS().Stat(ctx, "/shared/more")
	require.NoError(t, err)

	copied, err := c.ForkDrive(ctx, drive.Name(), "copy")
	require.NoError(t, err)
	require.NoError(t, writer.Delete(ctx, nil))
	reader, err := c.Create(ctx, &sandbox.CreateOptions{Mounts: map[string]sandbox.Mount{"/a": drive.Mount(sandbox.MountSnapshot), "/b": copied.Mount(sandbox.MountSnapshot)}})
	require.NoError(t, err)
	assert.Equal(t, "file more \nfile \n", sh(reader, "echo $(ls /a) ''; echo $(ls /b) ''"))
	_, err = c.ForkDrive(ctx, "data", "copy")
	assert.ErrorIs(t, err, sandbox.ErrConflict)
	require.NoError(t, drive.Delete(ctx))
}

// This package refuses the invalid mounts that it recognizes, and the API refuses others.
// Neither creates a sandbox.
func TestDriveMountsRefused(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	ctx := t.Context()
	west, err := c.GetOrCreateDrive(ctx, "west", &sandbox.DriveOptions{Region: "sfo1"})
	require.NoError(t, err)
	_, err = c.Create(ctx, &sandbox.CreateOptions{Name: "source", Region: "sfo1", Mounts: map[string]sandbox.Mount{"/d": west.Mount(sandbox.MountReadWrite)}})
	require.NoError(t, err, "a drive can be mounted in its own region")
	create := func(o sandbox.CreateOptions) error { _, err := c.Create(ctx, &o); return err }

	err = create(sandbox.CreateOptions{Mounts: map[string]sandbox.Mount{"/d": {Drive: "none"}}})
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	assert.ErrorContains(t, err, "Drive 'none' not found")
	err = create(sandbox.CreateOptions{Mounts: map[string]sandbox.Mount{"/d": west.Mount("")}})
	assert.Equal(t, 400, testkit.APIError(t, err).Status)
	assert.ErrorContains(t, err, "The drive 'west' is in the region 'sfo1', the sandbox in 'iad1'.")

	asked := len(srv.Requests())
	five := map[string]sandbox.Mount{}
	for _, at := range []string{"/1", "/2", "/3", "/4", "/5"} {
		five[at] = sandbox.Mount{Drive: "west", Mode: "snapshot"}
	}
	for words, err := range map[string]error{
		"at most 4":                         create(sandbox.CreateOptions{Mounts: five}),
		`"drives" can't be the name of a`:   create(sandbox.CreateOptions{Name: "drives"}),
		`"features" can't be the name of a`: create(sandbox.CreateOptions{Name: "features"}),
		`".." can't be the name of a`:       create(sandbox.CreateOptions{Mounts: map[string]sandbox.Mount{"/d": {Drive: ".."}}}),
	} {
		require.ErrorIs(t, err, sandbox.ErrInvalid, words)
		assert.ErrorContains(t, err, words)
	}
	assert.Len(t, srv.Requests(), asked, "refused before a request")
	assert.Equal(t, []string{"source"}, slices.Collect(func(yield func(string) bool) {
		for sb, err := range c.List(ctx, nil) {
			if !yield(sb.Name) || !assert.NoError(t, err) {
				return
			}
		}
	}))
}

// If drives are not enabled for a project, the error says so, even if the API's does not.
func TestDrivesNotEnabled(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.GetOrCreateDrive, Status: 403, Code: "forbidden", Message: "Not authorized", Times: 1})
	_, err := c.GetOrCreateDrive(t.Context(), "data", nil)
	require.ErrorIs(t, err, sandbox.ErrUnauthorized)
	assert.ErrorContains(t, err, "Not authorized")
	assert.ErrorContains(t, err, "drives are not enabled for this project")

	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.CreateSandbox, Status: 403, Code: "forbidden", Message: "Not authorized", Times: 1})
	_, err = c.Create(t.Context(), nil)
	require.ErrorIs(t, err, sandbox.ErrUnauthorized)
	assert.NotContains(t, err.Error(), "drives", "the request did not concern drives")
}
