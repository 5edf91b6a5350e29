package devserver_test

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/devserver"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestRestored restores an earlier copy of Temporal's database in the middle of a session's
// life, ten times. The session never mistakes a lost command for a new one: it says that
// commands are lost, and runs the new ones.
func TestRestored(t *testing.T) {
	emulator := sandboxtest.New(t, nil)
	store := durable.Dir(t.TempDir())
	// serve runs the sessions on a database until play returns.
	serve := func(dir string, play func(sessions *session.Client)) {
		srv, err := devserver.Start(t.Context(), dir, 0)
		require.NoError(t, err)
		defer func() { assert.NoError(t, srv.Close()) }()
		c, err := srv.Dial(t.Context(), client.Options{Logger: quiet})
		require.NoError(t, err)
		defer c.Close()
		w := worker.New(c, queue, worker.Options{})
		session.Register(w, &durable.Worker{Client: emulator.Client(), Output: store})
		require.NoError(t, w.Start())
		defer w.Stop()
		play(session.New(c, &session.Options{Sandbox: emulator.Client(), Output: store, Defaults: durable.Options{Heartbeat: 2 * time.Second}}))
	}
	backup := filepath.Join(t.TempDir(), "backup")
	var cursor session.Cursor
	const id = "restored"
	serve(backup, func(sessions *session.Client) {
		_, err := sessions.Start(t.Context(), &session.StartOptions{ID: id})
		require.NoError(t, err)
		_, err = sessions.Command(t.Context(), id, session.Command{Command: "echo first"})
		require.NoError(t, err)
		for e, err := range sessions.Events(t.Context(), id, session.Cursor{}) {
			require.NoError(t, err)
			if cursor = e.Cursor; e.Type == session.TypeCommandEnd {
				break
			}
		}
	})
	adopted, said := 0, 0
	for n := range 11 {
		dir := filepath.Join(t.TempDir(), "database")
		require.NoError(t, os.CopyFS(dir, os.DirFS(backup)))
		require.NoError(t, os.Chmod(dir, 0o700)) //nolint:gosec // a folder
		serve(dir, func(sessions *session.Client) {
			next, stop := iter.Pull2(sessions.Events(t.Context(), id, cursor))
			defer stop()
			s := &recording{t: t, emulator: emulator, sessions: sessions, id: id, next: next}
			s.send(fmt.Sprintf("echo run %d | tee -a deployed; exit %d", n, n))
			if n > 0 {
				s.until(session.StateRewound)
				said++
			}
			var output string
			for {
				e, err, ok := next()
				require.True(t, ok)
				require.NoError(t, err)
				if output += e.Data; e.Type == session.TypeCommandEnd {
					if *e.ExitCode != n || output != fmt.Sprintf("run %d\n", n) {
						adopted++
					}
					return
				}
			}
		})
	}
	assert.Zero(t, adopted)
	assert.Equal(t, 10, said)
	sb, err := emulator.Client().Get(t.Context(), "durable-"+id, nil)
	require.NoError(t, err)
	deployed, err := sb.FS().ReadFile(t.Context(), "deployed")
	require.NoError(t, err)
	assert.Equal(t, "run 0\nrun 1\nrun 2\nrun 3\nrun 4\nrun 5\nrun 6\nrun 7\nrun 8\nrun 9\nrun 10\n", string(deployed), "each command ran once")
}
