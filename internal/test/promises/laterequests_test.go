package promises_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// delayer is a transport that delays one request of an operation. The client gets a
// connection error or a gateway's status at once. The method deliver sends the request.
type delayer struct {
	next   http.RoundTripper
	mu     sync.Mutex
	match  func(*http.Request) bool // matches the requests of the operation
	status int                      // the status that the client gets; 0 for a connection error
	held   *http.Request
}

// hold delays the next request of the operation.
func (l *delayer) hold(op *api.Op, status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.match, l.status, l.held = isOp(op), status, nil
}

// isOp returns a function that reports whether a request belongs to an operation.
func isOp(op *api.Op) func(*http.Request) bool {
	path := regexp.MustCompile(regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(op.Path), "[^/]+") + "$")
	return func(req *http.Request) bool { return req.Method == op.Method && path.MatchString(req.URL.Path) }
}

func (l *delayer) RoundTrip(req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	if l.match == nil || l.held != nil || !l.match(req) {
		l.mu.Unlock()
		return l.next.RoundTrip(req)
	}
	defer l.mu.Unlock()
	late := req.Clone(context.WithoutCancel(req.Context()))
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
		late.Body, late.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	l.held = late
	if l.status != 0 {
		return canned.JSON(l.status, "bad gateway"), nil
	}
	return nil, errReset
}

// deliver sends the delayed request, reads the whole response, and returns its status.
func (l *delayer) deliver(t *testing.T) int {
	t.Helper()
	l.mu.Lock()
	late := l.held
	l.match = nil
	l.mu.Unlock()
	require.NotNil(t, late, "no request was delayed")
	resp, err := l.next.RoundTrip(late)
	require.NoError(t, err)
	if !testkit.IsLogs(late) { // the log of a running command does not end
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
	}
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// lateWorld contains the objects that late requests may change.
type lateWorld struct {
	*lostWorld
	reader *sandbox.Command // prints its input
	input  io.WriteCloser   // the reader's input
	looker *sandbox.Client  // a client for lookups, whose requests are not delayed
}

// lateRequest describes an operation whose first request arrives late: after the client
// has retried it, or has returned ErrOutcomeUnknown.
type lateRequest struct {
	unknown bool // the call returns ErrOutcomeUnknown
	call    func(ctx context.Context, w *lateWorld) error
	next    func(ctx context.Context, w *lateWorld) error // the program's next step, or nil
	status  int                                           // the status of the response to the late request; 0 means 200
	// changes lists the keys of lateWorld.state that the late request changes.
	changes string
}

// state returns the state of all objects, as the API and the running sandboxes show it.
func (w *lateWorld) state(t *testing.T) map[string]string {
	t.Helper()
	ctx, state := t.Context(), map[string]string{}
	for info, err := range w.looker.List(ctx, nil) {
		require.NoError(t, err)
		key := "sandbox " + info.Name
		state[key] = fmt.Sprint(info.CreatedAt.UnixNano(), info.Status, info.CurrentSessionID)
		state[key+": tags"] = fmt.Sprint(info.Tags)
		if info.Status != sandbox.StatusRunning {
			continue
		}
		sb, err := w.looker.Get(ctx, info.Name, &sandbox.GetOptions{NoResume: true})
		require.NoError(t, err)
		session := sb.CurrentSession()
		state[key+": timeout"] = session.Info().Timeout.String()
		state[key+": policy"] = fmt.Sprint(session.Info().NetworkPolicy)
		done, err := session.RunCommand(ctx, "find", []string{".", "-type", "d", "-print", "-o", "-type", "f", "-exec", "sha256sum", "{}", "+"}, nil)
		require.NoError(t, err)
		require.Zero(t, done.ExitCode)
		list, err := done.Stdout(ctx)
		require.NoError(t, err)
		state[key+": files"] = strings.Join(slices.Sorted(strings.Lines(list)), "")
		cmds, err := session.ListCommands(ctx)
		require.NoError(t, err)
		var ids []string
		for _, cmd := range cmds {
			if cmd.Name() == "find" {
				continue
			}
			now, err := session.GetCommand(ctx, cmd.ID())
			require.NoError(t, err)
			code, over := now.ExitStatus()
			ids = append(ids, fmt.Sprint(cmd.ID(), code, over))
		}
		slices.Sort(ids)
		state[key+": commands"] = strings.Join(ids, " ")
	}
	for drive, err := range w.looker.ListDrives(ctx, nil) {
		require.NoError(t, err)
		state["drive "+drive.Name] = drive.ID
	}
	for snapshot, err := range w.looker.ListSnapshots(ctx, nil) {
		require.NoError(t, err)
		state["snapshot "+snapshot.ID] = string(snapshot.Status)
	}
	return state
}

// difference lists the keys that differ between two states. It omits the generated names
// of new snapshots and new sandboxes.
func difference(before, after map[string]string) string {
	var keys []string
	for key := range before {
		if _, ok := after[key]; !ok {
			keys = append(keys, "no "+key)
		} else if before[key] != after[key] {
			keys = append(keys, key)
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok && !strings.Contains(key, ": ") {
			kind, name, _ := strings.Cut(key, " ")
			if kind == "snapshot" || kind == "sandbox" && strings.HasPrefix(name, "sandbox-") {
				key = kind
			}
			keys = append(keys, "new "+key)
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, ", ")
}

// lateRequests has a row for each operation.
func lateRequests() map[*api.Op]lateRequest {
	lost := lostResponses()
	// as returns the call of the operation in lostResponses.
	as := func(op *api.Op) func(context.Context, *lateWorld) error {
		return func(ctx context.Context, w *lateWorld) error { return lost[op].call(ctx, w.lostWorld) }
	}
	rows := map[*api.Op]lateRequest{}
	// A late read changes nothing.
	for _, op := range []*api.Op{
		api.ListSandboxes, api.GetSession, api.ListSessions, api.ListCommands, api.GetCommand, api.CommandLogs, api.ReadFile,
		api.ListDrives, api.GetDrive, api.ListSnapshots, api.SnapshotTree, api.GetSnapshot, api.OpenInteractive,
	} {
		rows[op] = lateRequest{call: as(op)}
	}
	const conflict, taken, notFound = http.StatusConflict, http.StatusBadRequest, http.StatusNotFound
	named := func(runtime string) func(context.Context, *lateWorld) error {
		return func(ctx context.Context, w *lateWorld) error {
			return errorOf(w.c.GetOrCreate(ctx, "new", &sandbox.CreateOptions{Runtime: runtime}))
		}
	}
	start := func(id string) func(context.Context, *lateWorld) error {
		return func(ctx context.Context, w *lateWorld) error {
			return errorOf(w.sb.StartCommand(ctx, "true", nil, &sandbox.StartOptions{ID: id}))
		}
	}
	run := func(id string) func(context.Context, *lateWorld) error {
		return func(ctx context.Context, w *lateWorld) error {
			return errorOf(w.sb.RunCommand(ctx, "true", nil, &sandbox.CommandOptions{ID: id}))
		}
	}
	tags := func(value string) func(context.Context, *lateWorld) error {
		return func(ctx context.Context, w *lateWorld) error {
			return w.sb.Update(ctx, &sandbox.UpdateOptions{Tags: map[string]string{"a": value}})
		}
	}
	policy := func(mode sandbox.PolicyMode) func(context.Context, *lateWorld) error {
		return func(ctx context.Context, w *lateWorld) error {
			return errorOf(w.sb.UpdateNetworkPolicy(ctx, &sandbox.NetworkPolicy{Mode: mode}))
		}
	}
	file := func(text string) func(context.Context, *lateWorld) error {
		return func(ctx context.Context, w *lateWorld) error {
			return w.sb.FS().WriteFile(ctx, "file", []byte(text), 0o644)
		}
	}
	write := func(text string) func(context.Context, *lateWorld) error {
		return func(_ context.Context, w *lateWorld) error { return errorOf(io.WriteString(w.input, text)) }
	}

	// The late request creates a sandbox with a generated name, which the program does not
	// know. The error tells the program that this can happen.
	rows[api.CreateSandbox] = lateRequest{unknown: true, call: as(api.CreateSandbox), changes: "new sandbox"}
	rows[api.CreateRuntime] = lateRequest{unknown: true, call: as(api.CreateRuntime), changes: "new sandbox"}
	rows[api.ForkSandbox] = lateRequest{unknown: true, call: as(api.ForkSandbox), changes: "new sandbox"}
	// A name can be used only once, so the API refuses the late request.
	rows[createNamed] = lateRequest{unknown: true, call: as(createNamed), next: named(""), status: taken}
	rows[createRuntimeNamed] = lateRequest{unknown: true, call: as(createRuntimeNamed), next: named("node24"), status: taken}
	rows[forkNamed] = lateRequest{unknown: true, call: as(forkNamed), next: as(forkNamed), status: taken}
	rows[api.ForkDrive] = lateRequest{unknown: true, call: as(api.ForkDrive), next: as(api.ForkDrive), status: conflict}
	rows[api.MakeDir] = lateRequest{unknown: true, call: as(api.MakeDir), next: as(api.MakeDir), status: taken}
	// The same applies to the ID of a session, a snapshot or a command.
	rows[api.StopSession] = lateRequest{call: as(api.StopSession), next: as(api.RunCommand)}
	rows[api.DeleteSnapshot] = lateRequest{call: as(api.DeleteSnapshot), status: http.StatusBadRequest}
	rows[api.StartCommand] = lateRequest{unknown: true, call: start("mine"), next: start("mine"), status: conflict}
	rows[api.RunCommand] = lateRequest{unknown: true, call: run("ours"), next: run("ours"), status: conflict}
	rows[api.KillCommand] = lateRequest{call: func(ctx context.Context, w *lateWorld) error {
		if err := w.cmd.Kill(ctx); err != nil {
			return err
		}
		return errorOf(w.cmd.Wait(ctx))
	}, status: notFound}
	// A write contains its offset, so the service ignores late data.
	rows[api.WriteStdin] = lateRequest{
		call: func(ctx context.Context, w *lateWorld) error {
			if err := write("one\n")(ctx, w); err != nil {
				return err
			}
			return errorOf(w.reader.WaitForLog(ctx, regexp.MustCompile("one")))
		},
		next: func(ctx context.Context, w *lateWorld) error {
			if err := write("two\n")(ctx, w); err != nil {
				return err
			}
			return errorOf(w.reader.WaitForLog(ctx, regexp.MustCompile("two")))
		},
	}
	// The client sends these requests only once. They take effect late, and the error
	// tells the program that this can happen.
	rows[api.ExtendTimeout] = lateRequest{unknown: true, call: as(api.ExtendTimeout), next: as(api.ExtendTimeout), changes: "sandbox work: timeout"}
	rows[api.CreateSnapshot] = lateRequest{unknown: true, call: as(api.CreateSnapshot), status: http.StatusCreated,
		changes: "new snapshot, no sandbox work: commands, no sandbox work: files, no sandbox work: policy, no sandbox work: timeout, sandbox work"}
	rows[api.SignalCommand] = lateRequest{unknown: true,
		call:    func(ctx context.Context, w *lateWorld) error { return w.cmd.Signal(ctx, sandbox.SIGTERM) },
		changes: "sandbox work: commands"}
	// The client can't prevent the effect of these late requests. Only the service could.
	rows[api.GetSandbox] = lateRequest{
		call: func(ctx context.Context, w *lateWorld) error {
			if _, err := w.sb.Stop(ctx, nil); err != nil {
				return err
			}
			return w.sb.Resume(ctx)
		},
		next:    as(api.StopSession),
		changes: "sandbox work",
	}
	rows[api.UpdateSandbox] = lateRequest{call: tags("old"), next: tags("new"), changes: "sandbox work: tags"}
	rows[api.SetPolicy] = lateRequest{call: policy("allow-all"), next: policy("deny-all"), changes: "sandbox work: policy"}
	rows[api.WriteFiles] = lateRequest{call: file("old"), next: file("new"), changes: "sandbox work: files"}
	rows[api.DeleteSandbox] = lateRequest{
		call: as(api.DeleteSandbox),
		next: func(ctx context.Context, w *lateWorld) error {
			return errorOf(w.c.Create(ctx, &sandbox.CreateOptions{Name: "work"}))
		},
		changes: "no sandbox work, no sandbox work: commands, no sandbox work: files, no sandbox work: policy, no sandbox work: tags, no sandbox work: timeout",
	}
	rows[api.GetOrCreateDrive] = lateRequest{
		call: as(api.GetOrCreateDrive),
		next: func(ctx context.Context, w *lateWorld) error {
			d, err := w.c.GetDrive(ctx, "another")
			if err == nil {
				err = d.Delete(ctx)
			}
			return err
		},
		status:  http.StatusCreated,
		changes: "new drive another",
	}
	rows[api.DeleteDrive] = lateRequest{
		call:    as(api.DeleteDrive),
		next:    func(ctx context.Context, w *lateWorld) error { return errorOf(w.c.GetOrCreateDrive(ctx, "data", nil)) },
		changes: "no drive data",
	}
	return rows
}

// lateUndos is like undos, and also undoes late requests.
func lateUndos() map[*api.Op]func(ctx context.Context, w *lostWorld) error {
	undo := undos()
	// Delete new sandboxes, so that state does not have to look at them in later rows.
	deletesNew := func(ctx context.Context, w *lostWorld) error {
		for info, err := range w.c.List(ctx, nil) {
			if err != nil {
				return err
			}
			if info.Name != "work" && info.Name != "kept" {
				if err := w.c.Delete(ctx, info.Name, nil); err != nil {
					return err
				}
			}
		}
		return nil
	}
	undo[api.CreateSandbox], undo[api.CreateRuntime], undo[api.ForkSandbox] = deletesNew, deletesNew, deletesNew
	undo[api.GetSandbox] = undo[api.StopSession]
	return undo
}

// newLateWorld creates the objects of newLostWorld, with a client that uses a delayer.
func newLateWorld(t *testing.T) (*lateWorld, *delayer) {
	t.Helper()
	srv := testkit.LightServer(t)
	late := &delayer{next: testkit.Transport(t)}
	w := &lateWorld{lostWorld: newLostWorld(t, srv), looker: testkit.Client(t, srv, sandbox.ClientOptions{})}
	c := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: late}, RetryWait: time.Millisecond})
	w.c = c
	c.Bind(w.sb)
	c.Bind(w.cmd)
	c.Bind(w.drive)
	return w, late
}

// startReader starts the command whose input arrives late.
func (w *lateWorld) startReader(t *testing.T) {
	t.Helper()
	reader, err := w.sb.StartCommand(t.Context(), "cat", nil, &sandbox.StartOptions{AttachStdin: true})
	require.NoError(t, err)
	w.reader, w.input = reader, reader.Stdin(t.Context())
}

// defaultLate lists the operations that TestLateRequests tests without SANDBOX_SLOW=1: one
// of each kind except for reads.
var defaultLate = []*api.Op{
	createNamed, api.ForkDrive, api.StartCommand, api.KillCommand, api.WriteStdin, api.SignalCommand, api.GetSandbox, api.WriteFiles, api.DeleteSandbox,
}

// TestLateRequests delays a request of each operation. It arrives after its retry and after
// the program's next step, and has only the effect that the table lists.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	rows := lateRequests()
	for how, status := range map[string]int{"reset": 0, "502": http.StatusBadGateway} {
		if !needs.Slow() && status != 0 {
			continue
		}
		// A row mostly waits, so run them in several worlds in parallel.
		worlds, ops := 4, inOrder()
		if !needs.Slow() {
			worlds, ops = 2, slices.DeleteFunc(ops, func(op *api.Op) bool { return !slices.Contains(defaultLate, op) })
		}
		for part := range worlds {
			t.Run(fmt.Sprintf("%s %d", how, part), func(t *testing.T) {
				t.Parallel()
				w, late := newLateWorld(t)
				for i, op := range ops {
					row, ok := rows[op]
					if !assert.True(t, ok, "%s %s has no row", op.Method, op.Path) || i%worlds != part {
						continue
					}
					t.Run(op.Name+" "+op.Path, func(t *testing.T) { testLateRequest(t, w, late, op, row, status) })
				}
			})
		}
	}
}

func testLateRequest(t *testing.T, w *lateWorld, late *delayer, op *api.Op, row lateRequest, status int) {
	if op == api.WriteStdin {
		w.startReader(t)
	}
	late.hold(op, status)
	err := row.call(t.Context(), w)
	if undo := lateUndos()[op]; undo != nil {
		defer func() { assert.NoError(t, undo(t.Context(), w.lostWorld)) }()
	}
	if row.unknown {
		require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
	} else {
		require.NoError(t, err)
	}
	if row.next != nil {
		require.NoError(t, row.next(t.Context(), w))
	}
	before := w.state(t)
	want := row.status
	if want == 0 {
		want = http.StatusOK
	}
	assert.Equal(t, want, late.deliver(t), "the response to the late request")
	assert.Equal(t, row.changes, difference(before, w.state(t)))
	if op == api.WriteStdin {
		require.NoError(t, w.input.Close())
		out, err := w.reader.Stdout(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "one\ntwo\n", out)
	}
}

// TestLateResume: OnResume runs for a session that a call has started, even if the response
// was lost. It does not run for a session that a late request or another client has
// started.
func TestLateResume(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{"retried", "given up"} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			srv := testkit.LightServer(t)
			other := testkit.Client(t, srv, sandbox.ClientOptions{})
			made, err := other.Create(t.Context(), &sandbox.CreateOptions{Name: "work"})
			require.NoError(t, err)
			_, err = made.Stop(t.Context(), nil)
			require.NoError(t, err)
			late := &delayer{next: testkit.Transport(t)}
			how := sandbox.ClientOptions{HTTPClient: &http.Client{Transport: late}, RetryWait: time.Millisecond}
			if outcome == "given up" {
				how.MaxRetries = -1
			}
			c := testkit.Client(t, srv, how)
			runs := 0
			opts := &sandbox.GetOptions{OnResume: func(context.Context, *sandbox.Sandbox) error {
				runs++
				return nil
			}}
			late.hold(api.GetSandbox, http.StatusBadGateway)
			sb, err := c.Get(t.Context(), "work", opts)
			if outcome == "given up" {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
				assert.Equal(t, 1, runs)
				_, err = sb.Stop(t.Context(), nil)
				require.NoError(t, err)
			}
			before := runs
			assert.Equal(t, http.StatusOK, late.deliver(t))
			for range 2 {
				if sb != nil {
					testkit.Output(t, sb, "true")
				}
				sb, err = c.Get(t.Context(), "work", opts)
				require.NoError(t, err)
			}
			assert.Equal(t, before, runs, "the late request started the session")
		})
	}
}

// TestLostResumeThatTakesTime: the response to a resume is lost, and the retry finds that
// the session is still starting. OnResume runs for this session.
func TestLostResumeThatTakesTime(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"Get", "a call"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			srv := testkit.LightServer(t)
			gate := &testkit.Gateway{Next: testkit.Transport(t)}
			c := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}, RetryWait: time.Millisecond})
			sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: "work"})
			require.NoError(t, err)
			_, err = sb.Stop(t.Context(), nil)
			require.NoError(t, err)
			runs := 0
			opts := &sandbox.GetOptions{OnResume: func(context.Context, *sandbox.Sandbox) error {
				runs++
				return nil
			}}
			if by == "a call" {
				opts.NoResume = true
				sb, err = c.Get(t.Context(), "work", opts)
				require.NoError(t, err)
			}
			lost, pending := false, false
			gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if err != nil || req.URL.Query().Get("resume") != "true" {
					return resp, err
				}
				if !lost {
					lost = true
					return nil, errors.Join(errReset, resp.Body.Close())
				}
				pending = true
				return resp, testkit.AsPending(resp)
			})
			if by == "Get" {
				sb, err = c.Get(t.Context(), "work", opts)
				require.NoError(t, err)
			}
			testkit.Output(t, sb, "true")
			assert.Equal(t, 1, runs)
			assert.True(t, pending, "the retry found the session while it was starting")
		})
	}
}

// TestLateJoin: a command of a FileWriter arrives after its retry. It does not change a
// file that was written or removed in the meantime, and leaves no temporary file. TestJoin
// of internal/coreutils runs the same scripts without a sandbox.
func TestLateJoin(t *testing.T) {
	needs.Long(t, "six FileWriters wait for a delayed command")
	t.Parallel()
	needs.GNU(t)
	for name, size := range map[string]int{"empty": 0, "small": 100, "pieces": 5 << 20} {
		for _, then := range []string{"written", "removed"} {
			t.Run(name+", then "+then, func(t *testing.T) {
				t.Parallel()
				srv := sandboxtest.New(t, nil)
				late := &delayer{next: testkit.Transport(t)}
				sb, err := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: late}}).Create(t.Context(), nil)
				require.NoError(t, err)
				write := func(data []byte) {
					w, err := sb.FS().Create(t.Context(), "file", nil)
					require.NoError(t, err)
					_, err = w.Write(data)
					require.NoError(t, err)
					require.NoError(t, w.Close())
				}
				late.hold(api.RunCommand, 0)
				write(bytes.Repeat([]byte("x"), size))
				if then == "removed" {
					require.NoError(t, sb.FS().Remove(t.Context(), "file"))
				} else {
					write([]byte("later"))
				}
				assert.Equal(t, http.StatusOK, late.deliver(t))
				if got, err := sb.FS().ReadFile(t.Context(), "file"); then == "removed" {
					assert.ErrorIs(t, err, fs.ErrNotExist)
				} else {
					require.NoError(t, err)
					assert.Equal(t, "later", string(got))
				}
				assert.Empty(t, testkit.Output(t, sb, "sh", "-c", "ls -A /tmp; ls -A | grep -v '^file$'; true"), "temporary files")
			})
		}
	}
}

// TestLateStart: a start arrives while the client looks the command up. The client finds
// the command, which runs once.
func TestLateStart(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	late, gate := &delayer{next: testkit.Transport(t)}, &testkit.Gateway{}
	gate.Next = late
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}}).Create(t.Context(), nil)
	require.NoError(t, err)
	looks := 0
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if testkit.IsLook(req) {
			if looks++; looks == 1 { // the first lookup has found nothing
				late.deliver(t)
			}
		}
		return resp, err
	})
	late.hold(api.RunCommand, 0)
	assert.Equal(t, "once\n", testkit.Output(t, sb, "sh", "-c", "echo once >> runs; cat runs"))
	assert.Greater(t, looks, 1)
}
