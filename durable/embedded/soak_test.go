package embedded_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/embedded"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/internal/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// A service is a process of this test binary: a worker and the routes, with a
// server of its own in a folder, or that of another process.
const (
	envService = "DURABLE_TEST_SERVICE" // as JSON
	envServer  = "DURABLE_TEST_SERVER"  // a Temporal server alone, in that folder
	queue      = "sandbox"
)

type serviceConfig struct {
	Dir, Temporal, Sandbox, Token, Team, Project string
	Addr                                         string // empty means a free one
	Key                                          []byte // of Temporal
	HistoryLimit                                 int
	IdleAfter                                    time.Duration
}

func (c serviceConfig) client() (*sandbox.Client, error) {
	return sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: c.Sandbox, Credentials: auth.Static(auth.Credentials{Token: c.Token, TeamID: c.Team, ProjectID: c.Project}),
	})
}

func TestMain(m *testing.M) {
	if text := os.Getenv(envService); text != "" {
		var c serviceConfig
		err := json.Unmarshal([]byte(text), &c)
		if err == nil {
			err = serve(c)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if text := os.Getenv(envAgent); text != "" {
		var c serviceConfig
		err := json.Unmarshal([]byte(text), &c)
		if err == nil {
			err = converse(c)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if dir := os.Getenv(envServer); dir != "" {
		srv, err := embedded.Start(context.Background(), &embedded.Options{Dir: dir})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(srv.Address())
		select {} // until it is killed
	}
	os.Exit(m.Run())
}

var quiet = sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))

// serve is such a process. It prints its address and goes on until it is killed.
func serve(c serviceConfig) error {
	ctx := context.Background()
	sandboxes, err := c.client()
	if err != nil {
		return err
	}
	var temporal client.Client
	if c.Temporal != "" {
		var secure *tls.Config
		if secure, err = embedded.TLS(c.Key); err != nil {
			return err
		}
		temporal, err = client.DialContext(ctx, client.Options{
			HostPort: c.Temporal, Logger: quiet, ConnectionOptions: client.ConnectionOptions{TLS: secure, GetSystemInfoTimeout: time.Minute},
		})
	} else {
		var srv *embedded.Server
		if srv, err = embedded.Start(ctx, &embedded.Options{Dir: filepath.Join(c.Dir, "temporal")}); err != nil {
			return err
		}
		temporal, err = srv.Dial(ctx, client.Options{Logger: quiet})
	}
	if err != nil {
		return err
	}
	output := durable.Dir(filepath.Join(c.Dir, "output"))
	w := worker.New(temporal, queue, worker.Options{StickyScheduleToStartTimeout: time.Second})
	session.Register(w, &durable.Worker{Client: sandboxes, Output: output})
	if err := w.Start(); err != nil {
		return err
	}
	sessions := session.New(temporal, &session.Options{
		Sandbox: sandboxes, Output: output, Policy: session.Policy{HistoryLimit: c.HistoryLimit, QueueLimit: 1000, IdleAfter: c.IdleAfter},
		Defaults: durable.Options{Heartbeat: 2 * time.Second},
	})
	if c.Addr == "" {
		c.Addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	return http.Serve(l, sessions.Handler(&session.HandlerOptions{
		Page: true, PingInterval: time.Second, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})) //nolint:gosec // of a test
}

// service starts such a process.
func startService(t *testing.T, c serviceConfig) (*exec.Cmd, string) {
	t.Helper()
	data, err := json.Marshal(c)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envService+"="+string(data))
	return cmd, startProcess(t, cmd)
}

// startProcess starts a process, which is killed when the test ends, and returns
// the line that it prints once it is ready.
func startProcess(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "%s did not start", cmd.Path)
	return strings.TrimSpace(line)
}

func startEmulator(t *testing.T) (*sandboxtest.Server, serviceConfig) {
	srv := sandboxtest.New(t, nil)
	c := srv.Credentials()
	return srv, serviceConfig{Dir: t.TempDir(), Sandbox: srv.URL, Token: c.Token, Team: c.TeamID, Project: c.ProjectID}
}

// post sends a request until it is answered, whatever happens to the service.
func post(t *testing.T, base func() string, path string, body any) map[string]any {
	t.Helper()
	data, err := json.Marshal(body)
	assert.NoError(t, err)
	failed := false
	for began := time.Now(); ; testkit.Linger(50 * time.Millisecond) {
		if time.Since(began) > 10*time.Minute {
			t.Errorf("%s is not answered", path)
			return nil
		}
		resp, err := http.Post(base()+path, "application/json", bytes.NewReader(data))
		if err != nil {
			failed = true
			continue
		}
		var response map[string]any
		err = json.NewDecoder(resp.Body).Decode(&response)
		resp.Body.Close()
		if err != nil || resp.StatusCode >= 500 {
			failed = true
			continue
		}
		if failed && path == "/destroy" && resp.StatusCode == http.StatusGone {
			return response // it was taken all the same
		}
		assert.Equal(t, 200, resp.StatusCode, "%s: %v", path, response)
		return response
	}
}

// viewer follows a session through every break, as the guide's client does, and
// keeps what it saw.
type viewer struct {
	mu     sync.Mutex
	seqs   []int
	output map[string]string
	ends   map[string]session.Event
	cursor string
	breaks int
	over   chan struct{}
}

func view(ctx context.Context, base func() string, id string) *viewer {
	v := &viewer{output: map[string]string{}, ends: map[string]session.Event{}, over: make(chan struct{})}
	go func() {
		defer close(v.over)
		for ctx.Err() == nil && !v.read(ctx, base(), id) {
			testkit.Linger(20 * time.Millisecond)
		}
	}()
	return v
}

// read reads one stream, and reports whether the session is over.
func (v *viewer) read(ctx context.Context, base, id string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/events?runId="+id+"&cursor="+v.cursor, nil)
	if err != nil {
		return true
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return false
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e session.Event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Type == "ping" {
			continue
		}
		v.mu.Lock()
		v.cursor = e.Cursor.String()
		switch e.Type {
		case session.TypeCommandOutput:
			v.output[e.ID] += e.Data
		case session.TypeCommandEnd:
			v.ends[e.ID] = e
		}
		if e.Type != session.TypeCommandOutput {
			v.seqs = append(v.seqs, e.Seq)
		}
		v.mu.Unlock()
		if e.Type == session.TypeResult {
			return true
		}
	}
	v.mu.Lock()
	v.breaks++
	v.mu.Unlock()
	return false
}

// wrote returns what is seen of a command's output.
func (v *viewer) wrote(command string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.output[command]
}

func (v *viewer) done() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.ends)
}

func number(t *testing.T, name string, short, normal int) int {
	if text := os.Getenv(name); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	if testing.Short() {
		return short
	}
	return normal
}

// TestKilledService kills the service at random moments while sessions run
// commands: each command runs once by the sandbox's own record, each event and
// each byte of output comes once. SANDBOX_DURABLE_KILLS and
// SANDBOX_DURABLE_COMMANDS make it longer.
func TestKilledService(t *testing.T) {
	kills, commands := number(t, "SANDBOX_DURABLE_KILLS", 4, 15), number(t, "SANDBOX_DURABLE_COMMANDS", 20, 100)
	emu, config := startEmulator(t)
	config.HistoryLimit = 150 // continue as new on the way
	random := rand.New(rand.NewPCG(testkit.Seed(t), 1))

	var mu sync.Mutex
	var base string
	get := func() string {
		mu.Lock()
		defer mu.Unlock()
		return base
	}
	cmd, addr := startService(t, config)
	base = addr

	const sessions = 5
	ids := make([]string, sessions)
	views := make([]*viewer, sessions)
	for i := range ids {
		resp, err := http.Post(get()+"/start", "application/json", nil)
		require.NoError(t, err)
		ids[i] = resp.Header.Get("X-Workflow-Run-Id")
		resp.Body.Close()
		require.NotEmpty(t, ids[i])
		views[i] = view(t.Context(), get, ids[i])
	}
	var wg sync.WaitGroup
	var once sync.Mutex // the random source
	for _, id := range ids {
		wg.Go(func() {
			for n := range commands / sessions {
				once.Lock()
				pause := time.Duration(random.IntN(400)) * time.Millisecond
				lines := 1 + random.IntN(20)
				once.Unlock()
				script := fmt.Sprintf(`echo %d >> "$HOME/record"; for i in $(seq %d); do echo "line $i of %d"; sleep 0.0%d; done; exit %d`, n, lines, n, n%6, n%3)
				post(t, get, "/command", map[string]any{"runId": id, "command": script, "key": fmt.Sprintf("k%d", n)})
				testkit.Linger(pause)
			}
		})
	}
	for range kills {
		once.Lock()
		pause := 300*time.Millisecond + time.Duration(random.IntN(1700))*time.Millisecond
		once.Unlock()
		testkit.Linger(pause)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		next, addr := startService(t, config)
		mu.Lock()
		base = addr
		mu.Unlock()
		cmd = next
	}
	wg.Wait()
	each := commands / sessions
	for i, v := range views {
		require.Eventually(t, func() bool { return v.done() == each }, 10*time.Minute, 50*time.Millisecond, "session %d", i)
	}
	breaks := 0
	for i, id := range ids {
		sb, err := emu.Client().Get(t.Context(), "durable-"+id, nil)
		require.NoError(t, err)
		record, err := sb.FS().ReadFile(t.Context(), homeOf(t, sb)+"/record")
		require.NoError(t, err)
		var want strings.Builder
		for n := range each {
			fmt.Fprintln(&want, n)
		}
		assert.Equal(t, want.String(), string(record), "each command of session %d ran once, in order", i)
		post(t, get, "/destroy", map[string]any{"runId": id})
		<-views[i].over
		v := views[i]
		for n, seq := range v.seqs {
			require.Equal(t, n, seq, "events of session %d: each once, none missing", i)
		}
		for n := range each {
			e := v.ends[fmt.Sprintf("cmd-%d", n+1)]
			require.Equal(t, durable.Exited, e.Outcome)
			require.NotNil(t, e.ExitCode)
			assert.Equal(t, n%3, *e.ExitCode)
			assert.EqualValues(t, e.Bytes, len(v.output[e.ID]), "each byte of command %d once", n)
		}
		breaks += v.breaks
	}
	t.Logf("%d kills, %d commands in %d sessions, %d broken streams", kills, commands, sessions, breaks)
}

func homeOf(t *testing.T, sb *sandbox.Sandbox) string {
	done, err := sb.RunCommand(t.Context(), "bash", []string{"-c", `printf %s "$HOME"`}, nil)
	require.NoError(t, err)
	out, err := done.Stdout(t.Context())
	require.NoError(t, err)
	return out
}

// held is a script that counts to n, and from the sixth number on only when it is
// released.
func held(file string, n int) string {
	return fmt.Sprintf(`for i in $(seq %d); do echo $i; [ $i != 5 ] || until [ -e %s ]; do sleep 0.05; done; sleep 0.02; done`, n, file)
}

// release lets a script of held in a session go on.
func release(t *testing.T, emulator *sandboxtest.Server, session, file string) {
	t.Helper()
	sb, err := emulator.Client().Get(t.Context(), "durable-"+session, nil)
	require.NoError(t, err)
	done, err := sb.RunCommand(t.Context(), "touch", []string{file}, nil)
	require.NoError(t, err)
	require.Zero(t, done.ExitCode)
}

// TestTwoServices: two processes share a server. One is killed while it follows a
// command; the other takes over, and a viewer goes on there at its cursor.
func TestTwoServices(t *testing.T) {
	emulator, config := startEmulator(t)
	srv, err := embedded.Start(t.Context(), nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, srv.Close()) }()
	config.Temporal, config.Key = srv.Address(), srv.Key()
	first, one := startService(t, config)
	resp, err := http.Post(one+"/start", "application/json", nil)
	require.NoError(t, err)
	id := resp.Header.Get("X-Workflow-Run-Id")
	resp.Body.Close()
	at := one
	var mu sync.Mutex
	base := func() string {
		mu.Lock()
		defer mu.Unlock()
		return at
	}
	v := view(t.Context(), base, id)
	post(t, base, "/command", map[string]any{"runId": id, "command": held("a", 30), "key": "a"})
	require.Eventually(t, func() bool { return strings.Contains(v.wrote("cmd-1"), "5\n") }, 5*time.Minute, 20*time.Millisecond)
	_, two := startService(t, config)
	mu.Lock()
	at = two
	mu.Unlock()
	killed := time.Now()
	require.NoError(t, first.Process.Kill())
	release(t, emulator, id, "a")
	require.Eventually(t, func() bool { return v.done() == 1 }, 5*time.Minute, 20*time.Millisecond)
	t.Logf("the end was seen %v after the kill", time.Since(killed).Round(10*time.Millisecond))
	var want strings.Builder
	for i := range 30 {
		fmt.Fprintln(&want, i+1)
	}
	assert.Equal(t, want.String(), v.output["cmd-1"])
	post(t, base, "/destroy", map[string]any{"runId": id})
	<-v.over
}

// TestFolder: a folder serves one server at a time, of one version, from one
// start to the next.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	srv, err := embedded.Start(t.Context(), &embedded.Options{Dir: dir})
	require.NoError(t, err)
	_, err = embedded.Start(t.Context(), &embedded.Options{Dir: dir})
	require.ErrorIs(t, err, embedded.ErrInUse)
	c, err := srv.Dial(t.Context(), client.Options{Logger: quiet})
	require.NoError(t, err)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "waits", TaskQueue: "nobody"}, "none")
	require.NoError(t, err)
	c.Close()
	require.NoError(t, srv.Close())

	_, text, err := net.SplitHostPort(srv.Address())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	again, err := embedded.Start(t.Context(), &embedded.Options{Dir: dir, Port: port})
	require.NoError(t, err)
	assert.Equal(t, srv.Address(), again.Address(), "workers find it again")
	srv = again
	c, err = srv.Dial(t.Context(), client.Options{Logger: quiet})
	require.NoError(t, err)
	d, err := c.DescribeWorkflowExecution(t.Context(), "waits", "")
	require.NoError(t, err)
	assert.Equal(t, run.GetRunID(), d.GetWorkflowExecutionInfo().GetExecution().GetRunId())
	c.Close()
	require.NoError(t, srv.Close())

	require.NoError(t, os.WriteFile(filepath.Join(dir, "version"), []byte("0.0.1\n"), 0o600))
	_, err = embedded.Start(t.Context(), &embedded.Options{Dir: dir})
	require.ErrorIs(t, err, embedded.ErrVersion)
	if info, err := os.Stat(filepath.Join(dir, "temporal.db")); assert.NoError(t, err) {
		assert.Positive(t, info.Size(), "what is there is kept")
	}
}

// TestSweep: a sandbox whose workflow was terminated is found and stopped; one
// whose workflow lives is left alone, and so are all of another Temporal with the
// same project, which does not know their workflows.
func TestSweep(t *testing.T) {
	emu := sandboxtest.New(t, nil)
	temporal := func() (client.Client, *session.Client) {
		srv, err := embedded.Start(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, srv.Close()) })
		c, err := srv.Dial(t.Context(), client.Options{Logger: quiet})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		w := worker.New(c, queue, worker.Options{})
		session.Register(w, &durable.Worker{Client: emu.Client()})
		require.NoError(t, w.Start())
		t.Cleanup(w.Stop)
		return c, session.New(c, nil)
	}
	c, sessions := temporal()
	for _, id := range []string{"lives", "terminated"} {
		_, err := sessions.Start(t.Context(), &session.StartOptions{ID: id})
		require.NoError(t, err)
		for e, err := range sessions.Events(t.Context(), id, session.Cursor{}) {
			require.NoError(t, err)
			if e.State == session.StateActive {
				break
			}
		}
	}
	require.NoError(t, c.TerminateWorkflow(t.Context(), "terminated", "", "the test says so"))
	sweep := func(c client.Client) (n int) {
		run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, durable.SweepWorkflow)
		require.NoError(t, err)
		require.NoError(t, run.Get(t.Context(), &n))
		return n
	}
	status := func() map[string]sandbox.Status {
		all := map[string]sandbox.Status{}
		for info, err := range emu.Client().List(t.Context(), nil) {
			require.NoError(t, err)
			all[info.Name] = info.Status
		}
		return all
	}
	stranger, _ := temporal()
	assert.Zero(t, sweep(stranger))
	assert.Equal(t, map[string]sandbox.Status{"durable-lives": sandbox.StatusRunning, "durable-terminated": sandbox.StatusRunning}, status())
	assert.Equal(t, 1, sweep(c))
	assert.Equal(t, map[string]sandbox.Status{"durable-lives": sandbox.StatusRunning, "durable-terminated": sandbox.StatusStopped}, status())

	_, err := (&durable.Worker{Client: emu.Client()}).Sweep(t.Context(), c)
	require.ErrorIs(t, err, sandbox.ErrInvalid, "outside of an activity nobody knows whose sandboxes are meant")
}

// TestRefusals: what the routes say to what they can't do.
func TestRefusals(t *testing.T) {
	_, config := startEmulator(t)
	_, base := startService(t, config)
	request := func(method, path, body, origin string) (int, string) {
		req, err := http.NewRequest(method, base+path, strings.NewReader(body))
		require.NoError(t, err)
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		var b bytes.Buffer
		_, err = b.ReadFrom(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, b.String()
	}
	for _, c := range []struct {
		method, path, body, origin string
		want                       int
	}{
		{"POST", "/command", `{"runId":"ses-nobody","command":"x"}`, "", 410},
		{"POST", "/command", `{"command":"x"}`, "", 400},
		{"POST", "/command", `{"runId":"a","command":""}`, "", 400},
		{"POST", "/command", `{`, "", 400},
		{"POST", "/command", `{"runId":"../../etc","command":"x"}`, "", 410},
		{"POST", "/command", `{"runId":"a","command":"` + strings.Repeat("x", 300<<10) + `"}`, "", 413},
		{"POST", "/interrupt", `{"runId":"a","signal":"SIGNOTHING"}`, "", 400},
		{"GET", "/events?runId=ses-nobody", "", "", 410},
		{"GET", "/events?runId=a&cursor=x", "", "", 400},
		{"GET", "/session?runId=ses-nobody", "", "", 410},
		{"POST", "/start", "", "https://evil.example", 403},
		{"GET", "/nothing", "", "", 404},
	} {
		status, text := request(c.method, c.path, c.body, c.origin)
		assert.Equal(t, c.want, status, "%s %s %.60s: %s", c.method, c.path, c.body, text)
	}
	if status, text := request("GET", "/", "", ""); assert.Equal(t, 200, status) {
		assert.Contains(t, text, "Sandbox sessions")
	}
}
