package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestEnsureCommand: concurrent callers with two clients get the same command. A new
// command is started in each session, and when the previous one has ended.
func TestEnsureCommand(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	clients := []*sandbox.Client{testkit.Client(t, srv, sandbox.ClientOptions{}), testkit.Client(t, srv, sandbox.ClientOptions{})}
	made, err := clients[0].Create(t.Context(), testkit.Lasting(&sandbox.CreateOptions{Name: "x"}))
	require.NoError(t, err)
	callers := 8
	if !needs.Slow() {
		callers = 4
	}
	ensure := func() *sandbox.Command {
		t.Helper()
		var group sync.WaitGroup
		found := make([]*sandbox.Command, callers)
		for i := range found {
			group.Go(func() {
				sb, err := clients[i%2].Get(t.Context(), "x", nil)
				if assert.NoError(t, err) {
					found[i], err = sb.EnsureCommand(t.Context(), "server", "sh", []string{"-c", "echo start >>starts; exec sleep 1000"}, nil)
					assert.NoError(t, err)
				}
			})
		}
		group.Wait()
		for _, cmd := range found {
			require.NotNil(t, cmd)
			assert.Equal(t, found[0].ID(), cmd.ID())
		}
		return found[0]
	}
	starts := func() int {
		return len(strings.Fields(testkit.Output(t, made, "sh", "-c", "sleep 0.2; cat starts")))
	}
	first := ensure()
	again, err := made.EnsureCommand(t.Context(), "server", "sh", []string{"-c", "echo other"}, nil)
	require.ErrorIs(t, err, sandbox.ErrConflict)
	assert.ErrorContains(t, err, `"server" of "x" is already sh with other arguments, command `+first.ID())
	assert.NotContains(t, err.Error(), "sleep", "arguments may be secret")
	assert.Equal(t, first.ID(), again.ID())
	again, err = made.EnsureCommand(t.Context(), "server", "true", nil, nil)
	require.ErrorIs(t, err, sandbox.ErrConflict)
	assert.Equal(t, first.ID(), again.ID())
	before := len(srv.Requests())
	again, err = made.EnsureCommand(t.Context(), "server", "sh", first.Args(), nil)
	require.NoError(t, err)
	assert.Equal(t, first.ID(), again.ID())
	assert.LessOrEqual(t, len(srv.Requests())-before, 2, "requests to find the running command")
	assert.Equal(t, 1, starts())
	require.NoError(t, first.Kill(t.Context()))
	_, err = first.Wait(t.Context())
	require.NoError(t, err)
	second := ensure()
	assert.NotEqual(t, first.ID(), second.ID())
	assert.Equal(t, 2, starts())
	_, err = made.Stop(t.Context(), nil)
	require.NoError(t, err)
	third := ensure()
	assert.NotEqual(t, second.SessionID(), third.SessionID())
	assert.Equal(t, 3, starts())
}

// TestEnsureCommandOfAnotherID: if the API responds with a different command than the
// requested one, EnsureCommand fails and starts nothing.
func TestEnsureCommandOfAnotherID(t *testing.T) {
	t.Parallel()
	sb := canned.API(func(req *http.Request) (*http.Response, error) {
		assert.Equal(t, http.MethodGet, req.Method, req.URL.Path)
		return canned.JSON(200, fmt.Sprintf(canned.Command, "null")), nil
	}).Sandbox(t)
	cmd, err := sb.EnsureCommand(t.Context(), "server", "true", nil, nil)
	assert.Nil(t, cmd)
	assert.ErrorContains(t, err, "server-")
	assert.NotErrorIs(t, err, sandbox.ErrConflict, "a command with another ID is not a conflict")
}

// TestEnsureCommandEndsAlways: a program that ends each time costs few requests, even
// after many starts.
func TestEnsureCommandEndsAlways(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	starts := 20
	if !needs.Slow() {
		starts = 9 // one more than 8: the search for the last start looks up 1, 2, 4 and 8
	}
	seen := map[string]bool{}
	for n := 1; n <= starts; n++ {
		before := len(srv.Requests())
		cmd, err := sb.EnsureCommand(t.Context(), "server", "true", nil, nil)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(srv.Requests())-before, 16)
		assert.False(t, seen[cmd.ID()])
		assert.True(t, strings.HasSuffix(cmd.ID(), "-"+strconv.Itoa(n)), cmd.ID())
		seen[cmd.ID()] = true
		_, err = cmd.Wait(t.Context())
		require.NoError(t, err)
	}
	last, err := sb.EnsureCommand(t.Context(), "server", "sleep", []string{"1000"}, nil)
	require.NoError(t, err)
	again, err := sb.EnsureCommand(t.Context(), "server", "sleep", []string{"1000"}, nil)
	require.NoError(t, err)
	assert.Equal(t, last.ID(), again.ID())
}

// TestEnsureCommandReady: EnsureCommand returns once the command's port responds or its
// log contains a matching line. If the program ends earlier, the error contains its output.
func TestEnsureCommandReady(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3")
	port := needs.Port(t)
	sb := share(t, &sandbox.CreateOptions{Ports: []int{port}})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	serve := fmt.Sprintf("sleep 0.3; echo serving; exec python3 -m http.server %d", port)
	sessions := 1
	if needs.Slow() {
		sessions = 2
	}
	for range sessions {
		_, err := sb.EnsureCommand(ctx, "web", "sh", []string{"-c", serve}, &sandbox.EnsureOptions{Port: port, Log: regexp.MustCompile("^serving$")})
		require.NoError(t, err)
		address, err := sb.URL(port)
		require.NoError(t, err)
		resp, err := http.Get(address)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		_, err = sb.Stop(ctx, nil)
		require.NoError(t, err)
	}
	for _, o := range []sandbox.EnsureOptions{{Port: port}, {Log: regexp.MustCompile("ready")}} {
		_, err := sb.EnsureCommand(ctx, "broken", "sh", []string{"-c", "echo address in use; exit 7"}, &o)
		require.ErrorContains(t, err, "exit code 7")
		assert.ErrorContains(t, err, "address in use")
		assert.ErrorContains(t, err, strconv.Quote(sb.Name()))
		assert.Equal(t, o.Log != nil, strings.Contains(err.Error(), "a line that matches"), "%v", err)
	}
	_, err := sb.EnsureCommand(ctx, "daemon", "sh", []string{"-c", "sleep 1000 >/dev/null 2>&1 &"}, &sandbox.EnsureOptions{Port: port})
	require.ErrorContains(t, err, "in the foreground")
	_, err = sb.EnsureCommand(ctx, "aside", "sleep", []string{"1000"}, &sandbox.EnsureOptions{Port: port + 1})
	require.ErrorIs(t, err, sandbox.ErrNoRoute)
	all, err := sb.ListCommands(ctx)
	require.NoError(t, err)
	for _, cmd := range all {
		assert.NotEqual(t, "sleep", cmd.Name(), "a command was started although its port has no route")
	}
	why := errors.New("the caller has given up")
	late, stop := context.WithCancelCause(ctx)
	go func() {
		testkit.Linger(50 * time.Millisecond)
		stop(why)
	}()
	_, err = sb.EnsureCommand(late, "slow", "sleep", []string{"1000"}, &sandbox.EnsureOptions{Log: regexp.MustCompile("ready")})
	assert.ErrorIs(t, err, why)
}

func TestEnsureCommandOptions(t *testing.T) {
	t.Parallel()
	sb := shareIsolated(t, nil)
	done, err := sb.RunCommand(t.Context(), "sh", []string{"-c", `test "$(id -u)" = 0`}, &sandbox.CommandOptions{Sudo: true})
	require.NoError(t, err)
	sudo := done.ExitCode == 0
	cmd, err := sb.EnsureCommand(t.Context(), "id", "sh", []string{"-c", `echo "$(pwd) $MARK $(id -u)"; exec sleep 1000`},
		&sandbox.EnsureOptions{Cwd: "/tmp", Env: sandbox.Env{"MARK": "here"}, Sudo: sudo})
	require.NoError(t, err)
	line, err := cmd.WaitForLog(t.Context(), regexp.MustCompile("here"))
	require.NoError(t, err)
	assert.Regexp(t, `/tmp here \d+$`, line)
	if sudo {
		assert.Regexp(t, ` 0$`, line)
	}
}

// TestEnsureCommandNoIDs: if clients can't choose the IDs of commands, later calls can't
// find a command. EnsureCommand then leaves none running.
func TestEnsureCommandNoIDs(t *testing.T) {
	t.Parallel()
	for _, ids := range []sandboxtest.CommandIDs{sandboxtest.CommandIDsIgnored, sandboxtest.CommandIDsRefused} {
		if ids == sandboxtest.CommandIDsRefused && !needs.Slow() {
			continue
		}
		srv := sandboxtest.New(t, &sandboxtest.Options{CommandIDs: ids})
		sb, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Create(t.Context(), nil)
		require.NoError(t, err)
		_, err = sb.EnsureCommand(t.Context(), "server", "sleep", []string{"1000"}, nil)
		require.ErrorIs(t, err, sandbox.ErrCommandIDs, "%q", ids)
		cmds, err := sb.ListCommands(t.Context())
		require.NoError(t, err)
		for _, cmd := range cmds {
			if cmd.Name() == "sleep" {
				done, err := cmd.Wait(t.Context())
				require.NoError(t, err)
				assert.Equal(t, 137, done.ExitCode)
			}
		}
	}
	sb := share(t, nil)
	for _, id := range []string{"", "a b", "../x", strings.Repeat("x", 41)} {
		_, err := sb.EnsureCommand(t.Context(), id, "true", nil, nil)
		assert.ErrorIs(t, err, sandbox.ErrInvalid, "%q", id)
	}
}
