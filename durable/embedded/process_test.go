package embedded_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/embedded"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// A service is a process of this test binary: a worker and the routes, with a
// server of its own in a folder, or that of another process.
const (
	envService = "DURABLE_TEST_SERVICE" // as JSON
	envServer  = "DURABLE_TEST_SERVER"  // a Temporal server alone, in that folder, always on one port
	queue      = "sandbox"
)

type serviceConfig struct {
	Dir, Temporal, Sandbox, Token, Team, Project string
	Addr                                         string // empty means a free one
	Key                                          []byte // of Temporal
	KeyFile                                      string // has it instead, also after a start
	Build                                        string // of a versioned worker; "1" decides as older ones did
	HistoryLimit                                 int
	IdleAfter                                    time.Duration
}

func (c serviceConfig) client() (*sandbox.Client, error) {
	return sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: c.Sandbox, Credentials: auth.Static(auth.Credentials{Token: c.Token, TeamID: c.Team, ProjectID: c.Project}),
	})
}

// dial connects to Temporal.
func (c serviceConfig) dial(ctx context.Context) (client.Client, error) {
	secure, err := c.secure()
	if err != nil {
		return nil, err
	}
	return client.DialContext(ctx, client.Options{
		HostPort: c.Temporal, Logger: quiet, ConnectionOptions: client.ConnectionOptions{TLS: secure, GetSystemInfoTimeout: time.Minute},
	})
}

// secure is for a server that may make another key at its next start.
func (c serviceConfig) secure() (*tls.Config, error) {
	if c.KeyFile == "" {
		return embedded.TLS(c.Key)
	}
	now := func() (*tls.Config, error) {
		key, err := os.ReadFile(c.KeyFile)
		if err != nil {
			return nil, err
		}
		return embedded.TLS(key)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			secure, err := now()
			if err != nil {
				return nil, err
			}
			return &secure.Certificates[0], nil
		},
		InsecureSkipVerify: true, //nolint:gosec // here it is verified:
		VerifyConnection: func(s tls.ConnectionState) error {
			secure, err := now()
			if err == nil {
				_, err = s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: secure.RootCAs})
			}
			return err
		},
	}, nil
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
		fmt.Fprintln(os.Stderr, serveTemporal(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serveTemporal is a Temporal server. It prints its address and goes on until it is
// killed.
func serveTemporal(dir string) error {
	last := filepath.Join(dir, "port")
	text, err := os.ReadFile(last)
	port := 0
	if err == nil {
		if port, err = strconv.Atoi(string(text)); err != nil {
			return err
		}
	}
	srv, err := embedded.Start(context.Background(), &embedded.Options{Dir: dir, Port: port})
	if err != nil {
		return err
	}
	at, err := netip.ParseAddrPort(srv.Address())
	if err != nil {
		return err
	}
	if err := os.WriteFile(last, []byte(strconv.Itoa(int(at.Port()))), 0o600); err != nil {
		return err
	}
	fmt.Println(srv.Address())
	select {}
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
		temporal, err = c.dial(ctx)
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
	o := worker.Options{StickyScheduleToStartTimeout: time.Second}
	if c.Build != "" {
		o.DeploymentOptions = optionsOf(c.Build).DeploymentOptions
	}
	if c.Build == "1" {
		o.Interceptors = []interceptor.WorkerInterceptor{&older{all: true}}
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
