package devserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/devserver"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// A service is a process of this test binary. It has a worker and the routes, and uses its
// own Temporal server in a folder, or the server of another process.
const (
	envService = "DURABLE_TEST_SERVICE" // a serviceConfig as JSON
	envServer  = "DURABLE_TEST_SERVER"  // a serverConfig as JSON: a Temporal server alone
	queue      = "sandbox"
)

type serviceConfig struct {
	Dir, Sandbox, Token, Team, Project string
	Addr                               string      // "" means a free port
	Temporal                           environment // the variables of a server in another process
	Build                              string      // the build of a versioned worker, or ""
	HistoryLimit                       int
	IdleAfter                          time.Duration
}

type serverConfig struct {
	Dir  string
	Port int
}

func (c serviceConfig) client() (*sandbox.Client, error) {
	return sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: c.Sandbox, Credentials: auth.Static(auth.Credentials{Token: c.Token, TeamID: c.Team, ProjectID: c.Project}),
	})
}

// environment contains the variables of a Temporal server as KEY=value.
type environment []string

func (e environment) Environ() []string { return e }

func (e environment) LookupEnv(name string) (string, bool) {
	for _, kv := range e {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// dial connects to the server that the variables name.
func (e environment) dial(ctx context.Context) (client.Client, error) {
	o, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{DisableFile: true, EnvLookup: e})
	if err != nil {
		return nil, err
	}
	o.Logger, o.ConnectionOptions.GetSystemInfoTimeout = quiet, time.Minute
	return client.DialContext(ctx, o)
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
	if text := os.Getenv(envServer); text != "" {
		var c serverConfig
		err := json.Unmarshal([]byte(text), &c)
		if err == nil {
			err = serveTemporal(c)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serveTemporal runs a Temporal server until it is killed, and prints its variables.
func serveTemporal(c serverConfig) error {
	srv, err := devserver.Start(context.Background(), c.Dir, c.Port)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(srv.Environ()); err != nil {
		return err
	}
	select {}
}

// startServer starts a process of serveTemporal.
func startServer(t *testing.T, c serverConfig) (*exec.Cmd, environment) {
	t.Helper()
	data, err := json.Marshal(c)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envServer+"="+string(data))
	var e environment
	require.NoError(t, json.Unmarshal([]byte(startProcess(t, cmd)), &e))
	return cmd, e
}

// startTemporal starts a server in this process and connects a client to it.
func startTemporal(t *testing.T) (*devserver.Server, client.Client) {
	t.Helper()
	srv, err := devserver.Start(t.Context(), filepath.Join(t.TempDir(), "temporal"), 0)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, srv.Close()) })
	c, err := srv.Dial(t.Context(), client.Options{Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return srv, c
}

var quiet = sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))

// serve runs a service until it is killed, and prints its address.
func serve(c serviceConfig) error {
	ctx := context.Background()
	sandboxes, err := c.client()
	if err != nil {
		return err
	}
	if c.Temporal == nil {
		srv, err := devserver.Start(ctx, filepath.Join(c.Dir, "temporal"), 0)
		if err != nil {
			return err
		}
		c.Temporal = srv.Environ()
	}
	temporal, err := c.Temporal.dial(ctx)
	if err != nil {
		return err
	}
	output := durable.Dir(filepath.Join(c.Dir, "output"))
	o := worker.Options{StickyScheduleToStartTimeout: time.Second}
	if c.Build != "" {
		o.DeploymentOptions = optionsOf(c.Build).DeploymentOptions
	}
	w := worker.New(temporal, queue, o)
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
		Page: true, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})) //nolint:gosec // of a test
}

// startService starts a process of serve.
func startService(t *testing.T, c serviceConfig) (*exec.Cmd, string) {
	t.Helper()
	data, err := json.Marshal(c)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envService+"="+string(data))
	return cmd, startProcess(t, cmd)
}

// startProcess starts a process and returns the first line that it prints. The end of the
// test kills the process.
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
