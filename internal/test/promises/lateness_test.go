package promises_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// additionalTime returns the maximum time between the end of a method's context and its
// return if the API does not respond, according to docs/reliability.md.
func additionalTime(typ, method string) time.Duration {
	runs := method == "DownloadDir"
	switch typ {
	case "Client":
		if method == "Fork" {
			return 10 * time.Second // to delete an empty fork
		}
	case "Command":
		if method == "SignalTree" {
			return time.Second // to continue the processes that it has stopped
		}
	case "FileSystem":
		runs = method != "ReadFile" && method != "WriteFile" && method != "Open"
	case "User":
		runs = runs || method == "ReadFile" || method == "DownloadFile"
	}
	if runs {
		return 5 * time.Second // to kill its command
	}
	return 0
}

// withoutRequest lists the methods that make no request, but keep their context for later.
var withoutRequest = map[string]bool{
	"Sandbox.CommandContext": true, "Session.CommandContext": true, "FileSystem.IOFS": true, "FileSystem.Create": true,
	"Command.Stdin": true, "Command.WaitOutput": true, "Command.Done": true, "User.CommandContext": true,
}

// handles returns one value of each type whose methods take a context. The values use the
// given API.
func handles(t *testing.T, service http.RoundTripper) []any {
	t.Helper()
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		HTTPClient: &http.Client{Transport: service}, BaseURL: "https://api.test",
		Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}),
	})
	require.NoError(t, err)
	box := strings.Replace(canned.RunningSandbox, `"routes":[]`, `"routes":[{"url":"https://a-1000.example.com","subdomain":"a","port":1000}]`, 1)
	first := canned.API(func(req *http.Request) (*http.Response, error) {
		if testkit.IsRun(req) {
			return canned.JSON(200, canned.Begun), nil
		}
		return canned.JSON(200, box), nil
	}).Client(t)
	sb, err := first.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	cmd, err := sb.StartCommand(t.Context(), "x", nil, nil)
	require.NoError(t, err)
	c.Bind(sb)
	c.Bind(cmd)
	snapshot := &sandbox.Snapshot{}
	require.NoError(t, json.Unmarshal([]byte(`{"snapshot":{"id":"snap_1"}}`), snapshot))
	c.Bind(snapshot)
	drive := &sandbox.Drive{}
	require.NoError(t, json.Unmarshal([]byte(`{"drive":{"name":"drive","id":"drive_1"}}`), drive))
	c.Bind(drive)
	user, err := sb.AsUser("alice")
	require.NoError(t, err)
	return []any{c, sb, sb.CurrentSession(), sb.FS(), cmd, snapshot, drive, user}
}

// callsWithContext returns the names of all methods that take a context and make a request
// with it.
func callsWithContext(t *testing.T) (names []string) {
	t.Helper()
	for _, h := range []any{&sandbox.Client{}, &sandbox.Sandbox{}, &sandbox.Session{}, &sandbox.FileSystem{}, &sandbox.Command{}, &sandbox.Snapshot{}, &sandbox.Drive{}, &sandbox.User{}} {
		typ := reflect.TypeOf(h)
		for m := range typ.Methods() {
			name := typ.Elem().Name() + "." + m.Name
			if m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]() && !withoutRequest[name] {
				names = append(names, name)
			}
		}
	}
	assert.Greater(t, len(names), 90)
	return names
}

// callByName calls a method of one of the handles and returns its last result. If given is
// true, it chooses valid arguments by their types. Otherwise it passes zero values.
func callByName(ctx context.Context, t *testing.T, handles []any, typ, method string, given bool) reflect.Value {
	t.Helper()
	var call reflect.Value
	for _, h := range handles {
		if reflect.TypeOf(h).Elem().Name() == typ {
			call = reflect.ValueOf(h).MethodByName(method)
		}
	}
	in := []reflect.Value{reflect.ValueOf(&ctx).Elem()}
	for i := 1; i < call.Type().NumIn() && !(call.Type().IsVariadic() && i == call.Type().NumIn()-1); i++ {
		if given {
			in = append(in, canned.Argument(t, method, i, call.Type().In(i)))
		} else {
			in = append(in, reflect.Zero(call.Type().In(i)))
		}
	}
	return resultOf(call.Call(in))
}

// resultOf returns the last result of a call, or the last error of an iterator.
func resultOf(out []reflect.Value) reflect.Value {
	last := out[len(out)-1]
	if last.Kind() == reflect.Func {
		for _, err := range last.Seq2() {
			last = err
		}
	}
	return last
}

// TestEveryCallReturns: if the API does not respond, every method that takes a context
// returns the context's error when its context ends.
func TestEveryCallReturns(t *testing.T) {
	t.Parallel()
	const deadline = 300 * time.Millisecond
	for _, name := range callsWithContext(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				typ, method, _ := strings.Cut(name, ".")
				all := handles(t, canned.Silent{})
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				begin := time.Now()
				last := callByName(ctx, t, all, typ, method, true)
				late := time.Since(begin) - deadline
				if method == "KeepAlive" {
					assert.True(t, last.IsNil(), "%v", last)
				} else {
					err, _ := reflect.TypeAssert[error](last)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					assert.NotErrorIs(t, err, context.Canceled)
				}
				assert.GreaterOrEqual(t, late, time.Duration(0))
				assert.LessOrEqual(t, late, additionalTime(typ, method))
			})
		})
	}
}

// TestEndedContextSendsNothing: if the context has ended before the call, a method sends no
// request.
func TestEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	for _, name := range callsWithContext(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				typ, method, _ := strings.Cut(name, ".")
				all := handles(t, canned.RoundTripper(func(req *http.Request) (*http.Response, error) {
					t.Errorf("%s %s is sent", req.Method, req.URL.Path)
					return nil, context.Canceled
				}))
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				begin := time.Now()
				last := callByName(ctx, t, all, typ, method, true)
				assert.Zero(t, time.Since(begin))
				if method != "KeepAlive" {
					err, _ := reflect.TypeAssert[error](last)
					assert.ErrorIs(t, err, context.Canceled)
				}
			})
		})
	}
}

// TestNilContext: if the context is nil, every method returns an error. It does not panic,
// send a request, or check its other arguments first.
func TestNilContext(t *testing.T) {
	t.Parallel()
	for _, name := range append(callsWithContext(t), slices.Sorted(maps.Keys(withoutRequest))...) {
		t.Run(name, func(t *testing.T) {
			typ, method, _ := strings.Cut(name, ".")
			all := handles(t, canned.RoundTripper(func(req *http.Request) (*http.Response, error) {
				t.Errorf("%s %s is sent", req.Method, req.URL.Path)
				return nil, context.Canceled
			}))
			for _, given := range []bool{true, false} {
				assert.NotPanics(t, func() {
					last := callByName(nil, t, all, typ, method, given) //nolint:staticcheck // the nil context is the mistake under test
					err, _ := reflect.TypeAssert[error](last)
					switch kept := last.Interface().(type) {
					case <-chan struct{}: // Done returns no error, only Wait does
						<-kept
						return
					case *sandbox.Cmd:
						err = kept.Run()
					case io.WriteCloser: // from Command.Stdin
						err = kept.Close()
					case fs.FS:
						_, err = fs.Stat(kept, ".")
					}
					assert.ErrorIs(t, err, sandbox.ErrInvalid)
					assert.ErrorContains(t, err, "ctx: is nil")
				})
			}
		})
	}
}

// sandboxAndClient is a sandbox and its client.
type sandboxAndClient struct {
	*sandbox.Sandbox
	client *sandbox.Client
}

// isWaited reports whether a request starts a command and asks for the stream of its
// output.
func isWaited(t *testing.T, req *http.Request) bool {
	body, err := req.GetBody()
	require.NoError(t, err)
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	return bytes.Contains(text, []byte(`"wait":true`))
}

// TestLateReturns: a call returns within the documented time after its context has ended.
func TestLateReturns(t *testing.T) {
	t.Parallel()
	const deadline = 300 * time.Millisecond
	kill := &sandbox.CommandOptions{KillOnCancel: true}
	all := func(*http.Request) bool { return true }
	run := func(c *sandbox.Cmd) error { return c.Run() }
	for name, c := range map[string]struct {
		silent  func(*http.Request) bool // matches the requests without a response; if nil, all except the start
		allowed time.Duration
		call    func(context.Context, sandboxAndClient) error
	}{
		"RunCommand, KillOnCancel": {all, 5 * time.Second, func(ctx context.Context, sb sandboxAndClient) error {
			_, err := sb.RunCommand(ctx, "x", nil, kill)
			return err
		}},
		"RunCommand, KillOnCancel, started": {nil, 5 * time.Second, func(ctx context.Context, sb sandboxAndClient) error {
			_, err := sb.RunCommand(ctx, "x", nil, kill)
			return err
		}},
		"StartCommand, KillOnCancel": {all, 5 * time.Second, func(ctx context.Context, sb sandboxAndClient) error {
			_, err := sb.StartCommand(ctx, "x", nil, &sandbox.StartOptions{KillOnCancel: true})
			return err
		}},
		"Cmd.Start": {all, 5 * time.Second, func(ctx context.Context, sb sandboxAndClient) error { return sb.CommandContext(ctx, "x").Start() }},
		"Cmd.Start, file as Stdin": {all, 5 * time.Second, func(ctx context.Context, sb sandboxAndClient) error {
			c := sb.CommandContext(ctx, "x")
			c.Stdin = strings.NewReader("text")
			return c.Start()
		}},
		"Cmd.Run": {nil, 5 * time.Second, func(ctx context.Context, sb sandboxAndClient) error { return run(sb.CommandContext(ctx, "x")) }},
		"Cmd.Run, kill answered": {func(req *http.Request) bool { return !testkit.IsRun(req) && !strings.HasSuffix(req.URL.Path, "/kill") }, 35 * time.Second, func(ctx context.Context, sb sandboxAndClient) error {
			return run(sb.CommandContext(ctx, "x"))
		}},
		"Cmd.Run, WaitDelay": {func(req *http.Request) bool { return !testkit.IsRun(req) && !strings.HasSuffix(req.URL.Path, "/kill") }, 6 * time.Second, func(ctx context.Context, sb sandboxAndClient) error {
			c := sb.CommandContext(ctx, "x")
			c.WaitDelay = time.Second
			return run(c)
		}},
		"Cmd.Run, pipe as Stdin": {nil, 5 * time.Second, func(ctx context.Context, sb sandboxAndClient) error {
			c := sb.CommandContext(ctx, "x")
			c.Stdin = io.MultiReader(strings.NewReader("text"))
			return run(c)
		}},
		"FileWriter": {all, 5 * time.Second, func(ctx context.Context, sb sandboxAndClient) error {
			w, err := sb.FS().Create(ctx, "x", nil)
			if err != nil {
				return err
			}
			_, err = w.Write(make([]byte, 5<<20))
			return errors.Join(err, w.Close())
		}},
		"GetOrCreate, OnCreate failed": {func(req *http.Request) bool { return req.URL.Query().Get("resume") == "false" }, 10 * time.Second, func(ctx context.Context, sb sandboxAndClient) error {
			_, err := sb.client.GetOrCreate(ctx, "new", &sandbox.CreateOptions{OnCreate: func(ctx context.Context, _ *sandbox.Sandbox) error {
				<-ctx.Done()
				return ctx.Err()
			}})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := canned.API(func(req *http.Request) (*http.Response, error) {
					switch {
					case c.silent == nil && !testkit.IsRun(req), c.silent != nil && c.silent(req):
						return canned.Unanswered(req)
					case testkit.IsRun(req) && isWaited(t, req):
						return canned.Forgotten(req, canned.Begun)
					case req.Method == http.MethodGet:
						return canned.JSON(404, `{"error":{"code":"not_found","message":"not found"}}`), nil
					case strings.HasSuffix(req.URL.Path, "/sandboxes"):
						return canned.JSON(200, strings.ReplaceAll(canned.RunningSandbox, `"name":"box"`, `"name":"new"`)), nil
					}
					return canned.JSON(200, canned.Begun), nil
				})
				sb := sandboxAndClient{api.Sandbox(t), api.Client(t)}
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				begin := time.Now()
				err := c.call(ctx, sb)
				late := time.Since(begin) - deadline
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.GreaterOrEqual(t, late, time.Duration(0))
				assert.LessOrEqual(t, late, c.allowed)
			})
		})
	}
}
