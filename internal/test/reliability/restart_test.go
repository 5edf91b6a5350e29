package reliability_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// restartEnv makes this test binary the program that is killed and restarted.
const restartEnv = "SANDBOX_TEST_RESTART"

// restartJob tells that program what to do: to run a command once, whatever
// happened to its predecessors.
type restartJob struct {
	URL     string
	Token   string
	Team    string
	Project string
	Session json.RawMessage
	ID      string
	// Point is where it kills itself; -1 is nowhere.
	Point int
}

// runOnce is that program. It returns its exit code.
func runOnce(job string) int {
	var j restartJob
	err := json.Unmarshal([]byte(job), &j)
	if err == nil {
		err = j.run(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func (j *restartJob) run(ctx context.Context) error {
	self := &mortal{point: j.Point}
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: j.URL, Credentials: auth.Static(auth.Credentials{Token: j.Token, TeamID: j.Team, ProjectID: j.Project}), HTTPClient: &http.Client{Transport: &http.Transport{DialContext: self.dial}},
	})
	if err != nil {
		return err
	}
	session := &sandbox.Session{}
	if err := json.Unmarshal(j.Session, session); err != nil {
		return err
	}
	client.Bind(session)
	for {
		cmd, err := session.GetCommand(ctx, j.ID)
		if errors.Is(err, sandbox.ErrNotFound) {
			cmd, err = session.StartCommand(ctx, "sh", []string{"-c", `echo "$0" >> started; exit 3`, j.ID}, &sandbox.StartOptions{ID: j.ID})
		}
		if errors.Is(err, sandbox.ErrConflict) {
			continue // the start of the previous process has arrived meanwhile
		}
		if err != nil {
			return err
		}
		done, err := cmd.Wait(ctx)
		if err != nil {
			return err
		}
		fmt.Println("exit code", done.ExitCode)
		return nil
	}
}

// mortal counts the process's network operations, and kills it at a point:
// before a connection, before, within or after a write, or after a read.
type mortal struct {
	mu    sync.Mutex
	point int
}

// passes counts a point and does not return from the last one.
func (m *mortal) passes() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.point == 0 {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill() // with SIGKILL
		}
		if err != nil {
			panic(err)
		}
		select {}
	}
	m.point--
}

func (m *mortal) dial(ctx context.Context, network, address string) (net.Conn, error) {
	m.passes()
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	return &mortalConn{conn, m}, err
}

type mortalConn struct {
	net.Conn
	m *mortal
}

func (c *mortalConn) Write(p []byte) (int, error) {
	c.m.passes()
	n, err := c.Conn.Write(p[:len(p)/2])
	if err != nil {
		return n, err
	}
	c.m.passes()
	rest, err := c.Conn.Write(p[len(p)/2:])
	if err == nil {
		c.m.passes()
	}
	return n + rest, err
}

func (c *mortalConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.m.passes()
	return n, err
}

// TestKilledAtEveryPoint: a program that keeps an ID is killed at every point
// of a start and restarted: its command runs exactly once.
func TestKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.Start(t, nil)
	c := srv.Credentials()
	session, err := json.Marshal(sb.CurrentSession())
	require.NoError(t, err)
	job := restartJob{URL: srv.URL, Token: c.Token, Team: c.TeamID, Project: c.ProjectID, Session: session}
	begin := func(point int) (string, *exec.ExitError) {
		job.Point = point
		text, err := json.Marshal(job)
		require.NoError(t, err)
		program := exec.CommandContext(t.Context(), os.Args[0])
		program.Env = append(os.Environ(), restartEnv+"="+string(text))
		out, err := program.CombinedOutput()
		failed, _ := errors.AsType[*exec.ExitError](err)
		require.True(t, err == nil || failed != nil, "%v", err)
		return string(out), failed
	}
	point := 0
	for ; ; point++ {
		job.ID = fmt.Sprintf("point-%d", point)
		out, failed := begin(point)
		if failed == nil { // it ended before that point
			assert.Equal(t, "exit code 3\n", out)
			break
		}
		status, ok := failed.Sys().(syscall.WaitStatus)
		require.True(t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "point %d: %v\n%s", point, failed, out)
		out, failed = begin(-1)
		require.Nil(t, failed, "point %d: %s", point, out)
		assert.Equal(t, "exit code 3\n", out, "point %d", point)
	}
	started := testkit.Output(t, sb, "cat", "started")
	for i := range point + 1 {
		assert.Equal(t, 1, strings.Count(started, fmt.Sprintf("point-%d\n", i)), "the command of point %d", i)
	}
	assert.Greater(t, point, 12, "a start is at least four writes and reads")
	t.Logf("killed at %d points of a start", point)
}
