package promises_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lostWorld contains the objects for calls whose responses are lost.
type lostWorld struct {
	c        *sandbox.Client
	sb       *sandbox.Sandbox
	cmd      *sandbox.Command // reads a line of its input, and sleeps
	drive    *sandbox.Drive
	snapshot string
	prefix   string // of the objects' names
}

// lostResponse describes a call whose first request takes effect, but whose response is
// lost: how many requests the client sends in total, and whether it returns
// ErrOutcomeUnknown.
type lostResponse struct {
	op      sandboxtest.Operation
	sent    int
	unknown bool
	call    func(ctx context.Context, w *lostWorld) error
}

func errorOf[T any](_ T, err error) error { return err }

// These are operations of api.Table, but with a name that the caller has chosen.
var createNamed, createRuntimeNamed, forkNamed = new(*api.CreateSandbox), new(*api.CreateRuntime), new(*api.ForkSandbox)

// operations returns all operations, including those with a name that the caller has chosen.
func operations() []*api.Op {
	return append(slices.Clone(api.Table), createNamed, createRuntimeNamed, forkNamed)
}

// lostResponses has a row for each operation.
func lostResponses() map[*api.Op]lostResponse {
	const again, once = 2, 1
	drain := func(r io.ReadCloser, err error) error {
		if err == nil {
			_, err = io.Copy(io.Discard, r)
			_ = r.Close()
		}
		return err
	}
	return map[*api.Op]lostResponse{
		api.CreateSandbox: {sandboxtest.CreateSandbox, once, true, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.Create(ctx, nil))
		}},
		createNamed: {sandboxtest.CreateSandbox, once, true, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.Create(ctx, &sandbox.CreateOptions{Name: "new"}))
		}},
		api.CreateRuntime: {sandboxtest.CreateSandbox, once, true, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.Create(ctx, &sandbox.CreateOptions{Runtime: "node24"}))
		}},
		createRuntimeNamed: {sandboxtest.CreateSandbox, once, true, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.Create(ctx, &sandbox.CreateOptions{Name: "new", Runtime: "node24"}))
		}},
		api.ForkSandbox: {sandboxtest.ForkSandbox, once, true, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.Fork(ctx, "kept", nil))
		}},
		forkNamed: {sandboxtest.ForkSandbox, once, true, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.Fork(ctx, "kept", &sandbox.ForkOptions{Name: "fork"}))
		}},
		api.GetSandbox: {sandboxtest.GetSandbox, again, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.Get(ctx, "work", nil))
		}},
		api.ListSandboxes: {sandboxtest.ListSandboxes, again, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.ListPage(ctx, nil))
		}},
		api.UpdateSandbox: {sandboxtest.UpdateSandbox, again, false, func(ctx context.Context, w *lostWorld) error {
			return w.sb.Update(ctx, &sandbox.UpdateOptions{Tags: map[string]string{"a": "b"}})
		}},
		api.DeleteSandbox: {sandboxtest.DeleteSandbox, once, false, func(ctx context.Context, w *lostWorld) error {
			return w.sb.Delete(ctx, nil)
		}},
		api.GetSession: {sandboxtest.GetSession, again, false, func(ctx context.Context, w *lostWorld) error {
			return w.sb.CurrentSession().Refresh(ctx)
		}},
		api.ListSessions: {sandboxtest.ListSessions, again, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.sb.ListSessionsPage(ctx, nil))
		}},
		api.StopSession: {sandboxtest.StopSession, again, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.sb.Stop(ctx, nil))
		}},
		api.ExtendTimeout: {sandboxtest.ExtendTimeout, once, true, func(ctx context.Context, w *lostWorld) error {
			return w.sb.ExtendTimeout(ctx, time.Minute)
		}},
		api.SetPolicy: {sandboxtest.SetPolicy, again, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.sb.CurrentSession().UpdateNetworkPolicy(ctx, &sandbox.NetworkPolicy{Mode: sandbox.PolicyDenyAll}))
		}},
		api.CreateSnapshot: {sandboxtest.CreateSnapshot, once, true, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.sb.Snapshot(ctx, nil))
		}},
		api.OpenInteractive: {sandboxtest.OpenInteractive, again, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.sb.OpenInteractive(ctx))
		}},
		api.RunCommand: {sandboxtest.RunCommand, once, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.sb.RunCommand(ctx, "true", nil, nil))
		}},
		api.StartCommand: {sandboxtest.RunCommand, once, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.sb.StartCommand(ctx, "true", nil, nil))
		}},
		api.ListCommands: {sandboxtest.ListCommands, again, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.sb.ListCommands(ctx))
		}},
		api.GetCommand: {sandboxtest.GetCommand, again + 1, false, func(ctx context.Context, w *lostWorld) error { // one more, because GetCommand also looks for the end
			return errorOf(w.sb.GetCommand(ctx, w.cmd.ID()))
		}},
		api.CommandLogs: {sandboxtest.CommandLogs, again, false, func(ctx context.Context, w *lostWorld) error {
			for range w.cmd.Logs(ctx) {
				break
			}
			return nil
		}},
		api.KillCommand: {sandboxtest.KillCommand, again, false, func(ctx context.Context, w *lostWorld) error {
			return w.cmd.Kill(ctx)
		}},
		api.SignalCommand: {sandboxtest.KillCommand, once, true, func(ctx context.Context, w *lostWorld) error {
			return w.cmd.Signal(ctx, sandbox.SIGSTOP) // a retry could arrive after a later SIGCONT
		}},
		api.WriteStdin: {sandboxtest.WriteStdin, again + 1, false, func(ctx context.Context, w *lostWorld) error { // one more, which asks how much has arrived
			in := w.cmd.Stdin(ctx)
			if _, err := io.WriteString(in, "x"); err != nil {
				return err
			}
			return in.Close()
		}},
		api.MakeDir: {sandboxtest.MakeDir, once, true, func(ctx context.Context, w *lostWorld) error { return w.sb.FS().Mkdir(ctx, "dir", 0o777) }},
		api.WriteFiles: {sandboxtest.WriteFiles, again, false, func(ctx context.Context, w *lostWorld) error {
			return w.sb.FS().WriteFile(ctx, "file", []byte("x"), 0o644)
		}},
		api.ReadFile: {sandboxtest.ReadFile, again, false, func(ctx context.Context, w *lostWorld) error {
			return drain(w.sb.FS().Open(ctx, "there", nil))
		}},
		api.ListDrives: {sandboxtest.ListDrives, again, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.ListDrivesPage(ctx, nil))
		}},
		api.GetOrCreateDrive: {sandboxtest.GetOrCreateDrive, again, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.GetOrCreateDrive(ctx, "another", nil))
		}},
		api.GetDrive: {sandboxtest.GetDrive, again, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.GetDrive(ctx, "data"))
		}},
		api.ForkDrive: {sandboxtest.ForkDrive, once, true, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.ForkDrive(ctx, w.drive.Name(), "forked"))
		}},
		api.DeleteDrive: {sandboxtest.DeleteDrive, once, false, func(ctx context.Context, w *lostWorld) error { return w.drive.Delete(ctx) }},
		api.ListSnapshots: {sandboxtest.ListSnapshots, again, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.ListSnapshotsPage(ctx, nil))
		}},
		api.SnapshotTree: {sandboxtest.SnapshotTree, again, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.SnapshotTreePage(ctx, w.snapshot, nil))
		}},
		api.GetSnapshot: {sandboxtest.GetSnapshot, again, false, func(ctx context.Context, w *lostWorld) error {
			return errorOf(w.c.GetSnapshot(ctx, w.snapshot))
		}},
		api.DeleteSnapshot: {sandboxtest.DeleteSnapshot, again, false, func(ctx context.Context, w *lostWorld) error {
			snapshot, err := w.c.GetSnapshot(ctx, w.snapshot)
			if err != nil {
				return err
			}
			return snapshot.Delete(ctx)
		}},
	}
}

// inOrder returns the operations in an order in which they can share a world: operations
// that delete an object come last.
func inOrder() []*api.Op {
	deletes := []*api.Op{api.DeleteSandbox, api.DeleteDrive, api.DeleteSnapshot}
	return append(slices.DeleteFunc(operations(), func(op *api.Op) bool { return slices.Contains(deletes, op) }), deletes...)
}

// undos returns functions that undo the effect of an operation before the next row.
func undos() map[*api.Op]func(ctx context.Context, w *lostWorld) error {
	deletes := func(name string) func(context.Context, *lostWorld) error {
		return func(ctx context.Context, w *lostWorld) error { return w.c.Delete(ctx, w.prefix+name, nil) }
	}
	deletesDrive := func(name string) func(context.Context, *lostWorld) error {
		return func(ctx context.Context, w *lostWorld) error {
			drive, err := w.c.GetDrive(ctx, w.prefix+name)
			if err == nil {
				err = drive.Delete(ctx)
			}
			return err
		}
	}
	restart := func(ctx context.Context, w *lostWorld) error {
		if err := w.cmd.Kill(ctx); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, sandbox.ErrStopped) {
			return err
		}
		return w.start(ctx)
	}
	return map[*api.Op]func(context.Context, *lostWorld) error{
		createNamed: deletes("new"), createRuntimeNamed: deletes("new"), forkNamed: deletes("fork"),
		api.StopSession: restart, api.CreateSnapshot: restart,
		api.KillCommand: restart, api.SignalCommand: restart, api.WriteStdin: restart,
		// Remove would need GNU's rm.
		api.MakeDir:          func(ctx context.Context, w *lostWorld) error { return w.sb.CommandContext(ctx, "rmdir", "dir").Run() },
		api.GetOrCreateDrive: deletesDrive("another"), api.ForkDrive: deletesDrive("forked"),
	}
}

// newLostWorld creates one of each object.
func newLostWorld(t *testing.T, srv *sandboxtest.Server) *lostWorld {
	t.Helper()
	c := testkit.Client(t, srv, sandbox.ClientOptions{RetryWait: time.Millisecond, Reattach: &sandbox.ReattachOptions{Wait: time.Millisecond}})
	kept, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: "kept"})
	require.NoError(t, err)
	stopped, err := kept.Stop(t.Context(), nil)
	require.NoError(t, err)
	drive, err := c.GetOrCreateDrive(t.Context(), "data", nil)
	require.NoError(t, err)
	sb, err := c.Create(t.Context(), testkit.Lasting(&sandbox.CreateOptions{Name: "work", Mounts: map[string]sandbox.Mount{"/mnt/data": drive.Mount(sandbox.MountReadWrite)}}))
	require.NoError(t, err)
	testkit.Output(t, sb, "sh", "-c", "echo x > /mnt/data/x; echo x > there")
	_, err = sb.Stop(t.Context(), nil) // detaches the drive, so that it can be forked and deleted
	require.NoError(t, err)
	require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{Mounts: map[string]sandbox.Mount{}}))
	w := &lostWorld{c: c, sb: sb, drive: drive, snapshot: stopped.Snapshot.ID}
	require.NoError(t, w.start(t.Context()))
	return w
}

// start starts the command of the world, also after it has ended.
func (w *lostWorld) start(ctx context.Context) (err error) {
	w.cmd, err = w.sb.StartCommand(ctx, "sh", []string{"-c", "echo up; read -r line; exec sleep 1000"}, &sandbox.StartOptions{AttachStdin: true})
	return err
}

// TestLostResponses loses the response to each operation of api.Table, after it has taken
// effect. The client retries operations that change nothing, looks up the result of others,
// and returns ErrOutcomeUnknown for the rest. All rows use the same world, one after
// another, because creating a world is slow. By default each row loses its response in only
// one way.
func TestLostResponses(t *testing.T) {
	t.Parallel()
	rows, undo := lostResponses(), undos()
	kinds := []struct {
		name  string
		fault sandboxtest.Fault
	}{{"502", sandboxtest.Fault{ActThenStatus: http.StatusBadGateway}}, {"dropped", sandboxtest.Fault{DropAfter: true}}}
	for round := range kinds {
		if round > 0 && !needs.Slow() {
			break
		}
		srv := testkit.LightServer(t)
		w := newLostWorld(t, srv)
		for i, op := range inOrder() {
			kind := kinds[(i+round)%len(kinds)]
			how, fault := kind.name, kind.fault
			row, ok := rows[op]
			if !assert.True(t, ok, "%s %s has no row", op.Method, op.Path) {
				continue
			}
			t.Run(op.Name+" "+op.Path+" "+how, func(t *testing.T) {
				before := testkit.Count(srv, row.op)
				fault.Operation, fault.Times = row.op, 1
				remove := srv.Inject(fault)
				err := row.call(t.Context(), w)
				sent := testkit.Count(srv, row.op) - before
				remove()
				if undo := undo[op]; undo != nil {
					defer func() { assert.NoError(t, undo(t.Context(), w)) }()
				}
				if row.unknown {
					require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
				} else {
					require.NoError(t, err)
				}
				assert.Equal(t, row.sent, sent, "requests")
			})
		}
	}
}

// TestDeleteDriveOnlyOurs: the response to a delete is lost, and another client then
// creates a drive with the same name. The client does not delete the new drive.
func TestDeleteDriveOnlyOurs(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	other := testkit.Client(t, srv, sandbox.ClientOptions{})
	gate := &testkit.Gateway{Next: testkit.Transport(t)}
	c := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}})
	drive, err := c.GetOrCreateDrive(t.Context(), "data", nil)
	require.NoError(t, err)
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil || req.Method != http.MethodDelete {
			return resp, err
		}
		resp.Body.Close()
		_, err = other.GetOrCreateDrive(t.Context(), "data", nil)
		assert.NoError(t, err)
		return nil, errReset
	})
	require.NoError(t, drive.Delete(t.Context()))
	theirs, err := other.GetDrive(t.Context(), "data")
	require.NoError(t, err, "the client has deleted another client's drive")
	assert.NotEqual(t, drive.Info().ID, theirs.Info().ID)
}

// TestDeleteArrivesLate: the connection of a delete breaks, and a lookup still finds the
// sandbox or the drive. Then the delete arrives, and the retry finds nothing. The call
// succeeds.
func TestDeleteArrivesLate(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	gate := &testkit.Gateway{Next: testkit.Transport(t)}
	c := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}})
	sb, err := c.Create(t.Context(), nil)
	require.NoError(t, err)
	drive, err := c.GetOrCreateDrive(t.Context(), "data", nil)
	require.NoError(t, err)
	for _, remove := range []func() error{func() error { return sb.Delete(t.Context(), nil) }, func() error { return drive.Delete(t.Context()) }} {
		deletes := 0
		gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if req.Method != http.MethodDelete {
				return next.RoundTrip(req)
			}
			if deletes++; deletes == 1 {
				return nil, errReset
			}
			late, err := next.RoundTrip(req.Clone(req.Context()))
			if assert.NoError(t, err) {
				late.Body.Close()
				assert.Equal(t, http.StatusOK, late.StatusCode)
			}
			return next.RoundTrip(req)
		})
		require.NoError(t, remove())
		assert.Equal(t, 2, deletes)
	}
}
