package local

import (
	"errors"
	"os/signal"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// ignoreLimit makes a write beyond the file size limit fail. By default, SIGXFSZ ends the
// process.
func ignoreLimit() { signal.Ignore(unix.SIGXFSZ) }

func clientOf(t *testing.T, c *Connection) *sandbox.Client {
	t.Helper()
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: c.Address.URL, Credentials: auth.Static(auth.Credentials{Token: c.Address.Token, TeamID: c.Address.TeamID, ProjectID: c.Address.ProjectID}),
	})
	require.NoError(t, err)
	return client
}

// TestStopSaves: a daemon whose sandboxes can't be saved says so and continues, with
// their files.
func TestStopSaves(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := start(t, dir, "1h")
	ctx := t.Context()
	sb, err := clientOf(t, c).Create(ctx, &sandbox.CreateOptions{Name: "work"})
	require.NoError(t, err)
	require.NoError(t, sb.FS().WriteFile(ctx, "days", []byte("three days"), 0o644))
	// Limit the size of files to 0, so that writes fail as on a full disk.
	var had unix.Rlimit
	require.NoError(t, unix.Prlimit(c.Address.PID, unix.RLIMIT_FSIZE, nil, &had))
	require.NoError(t, unix.Prlimit(c.Address.PID, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: had.Max}, nil))

	require.ErrorIs(t, Stop(ctx, dir), ErrUnsaved)
	again, err := Use(ctx, dir)
	require.NoError(t, err)
	assert.Equal(t, c.Address.PID, again.Address.PID)
	data, err := sb.FS().ReadFile(ctx, "days")
	require.NoError(t, err)
	assert.Equal(t, "three days", string(data))

	require.NoError(t, unix.Prlimit(c.Address.PID, unix.RLIMIT_FSIZE, &had, nil))
	require.NoError(t, again.Close())
	require.NoError(t, c.Close())
	require.NoError(t, Stop(ctx, dir))
	later := start(t, dir, "1h")
	defer func() { assert.NoError(t, errors.Join(later.Close(), Stop(ctx, dir))) }()
	sb, err = clientOf(t, later).Get(ctx, "work", nil)
	require.NoError(t, err)
	data, err = sb.FS().ReadFile(ctx, "days")
	require.NoError(t, err)
	assert.Equal(t, "three days", string(data))
}
