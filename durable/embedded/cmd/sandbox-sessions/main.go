// Sandbox-sessions serves durable sandbox sessions and a page to use them, in one
// process. Stop it at any moment, also with kill -9, and start it again: sessions
// go on, and no command runs twice.
//
//	sandbox-sessions [-addr ADDR] [-dir DIR] [-emulator] [-idle DURATION]
//
// With TEMPORAL_ADDRESS in the environment (and TEMPORAL_NAMESPACE and
// TEMPORAL_API_KEY if need be) sessions live on that cluster, which any number
// of these processes can share if they share the output's folder. Without it
// they live in an embedded server, which is for trying things out, development,
// CI and one small machine.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/embedded"
	"github.com/go-vercel/sandbox/durable/session"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if len(os.Args) == 3 && os.Args[1] == emulatorArg {
		err = serveEmulator(ctx, os.Args[2])
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	cancel()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox-sessions:", err)
		os.Exit(1)
	}
}

type config struct {
	addr, dir, queue string
	emulator         bool
	idle, heartbeat  time.Duration
	verbose          bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	var c config
	flags := flag.NewFlagSet("sandbox-sessions", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.addr, "addr", "127.0.0.1:8088", "address to serve at; whoever reaches it can start sandboxes")
	flags.StringVar(&c.dir, "dir", filepath.Join(cacheDir(), "sandbox-sessions"), "folder for the embedded server, the output and the emulator")
	flags.StringVar(&c.queue, "queue", "sandbox", "Temporal task queue")
	flags.BoolVar(&c.emulator, "emulator", false, "run sandboxes on this machine, without an account")
	flags.DurationVar(&c.idle, "idle", 30*time.Minute, "hibernate after")
	flags.DurationVar(&c.heartbeat, "heartbeat", 5*time.Second, "take over from a process that was silent for")
	flags.BoolVar(&c.verbose, "v", false, "log more")
	if err := flags.Parse(args); err != nil {
		return err
	}
	level := slog.LevelWarn
	if c.verbose {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))

	l, err := net.Listen("tcp", c.addr)
	if err != nil {
		return err
	}
	defer l.Close()
	sandboxes, closeSandboxes, err := sandboxClient(ctx, c, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSandboxes()) }()
	temporal, closeTemporal, err := temporalClient(ctx, c, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeTemporal()) }()

	output := durable.Dir(filepath.Join(c.dir, "output"))
	w := worker.New(temporal, c.queue, worker.Options{MaxConcurrentActivityExecutionSize: 1000, WorkerStopTimeout: 5 * time.Second, StickyScheduleToStartTimeout: time.Second})
	session.Register(w, &durable.Worker{Client: sandboxes, Output: output})
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()

	sessions := session.New(temporal, &session.Options{
		TaskQueue: c.queue, Sandbox: sandboxes, Output: output, Policy: session.Policy{IdleAfter: c.idle},
		Defaults: durable.Options{Heartbeat: c.heartbeat},
	})
	if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		fmt.Fprintf(stderr, "warning: %s is not loopback: everybody who reaches it can start sandboxes. Put something in front that knows its users.\n", l.Addr())
	}
	// Requests end with the process, streams too: their clients ask again.
	serving, stop := context.WithCancel(context.Background())
	defer stop()
	srv := &http.Server{
		Handler:           onlyHost(l.Addr(), sessions.Handler(&session.HandlerOptions{Page: true, Logger: log})),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return serving },
	}
	fmt.Fprintf(stdout, "http://%s/\n", l.Addr())
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case <-ctx.Done():
	case err = <-failed:
		return err
	}
	stop()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return srv.Shutdown(grace)
}

func cacheDir() string {
	if dir, err := os.UserCacheDir(); err == nil {
		return dir
	}
	return os.TempDir()
}

// onlyHost refuses names that a page could have pointed to this machine.
func onlyHost(addr net.Addr, next http.Handler) http.Handler {
	if !addr.(*net.TCPAddr).IP.IsLoopback() {
		return next // it has a name of its own
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "this server accepts requests to localhost only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sandboxClient returns the client of the sandboxes: of an emulator on this
// machine, or of the environment.
func sandboxClient(ctx context.Context, c config, log *slog.Logger) (*sandbox.Client, func() error, error) {
	if !c.emulator {
		client, err := sandbox.NewClient(&sandbox.ClientOptions{Logger: log})
		return client, func() error { return nil }, err
	}
	emu, err := startEmulator(ctx, filepath.Join(c.dir, "emulator"))
	if err != nil {
		return nil, nil, fmt.Errorf("emulator: %w", err)
	}
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: emu.URL, Credentials: auth.Static(auth.Credentials{Token: emu.Token, TeamID: emu.TeamID, ProjectID: emu.ProjectID}), Logger: log,
	})
	return client, emu.stop, err
}

// temporalClient connects to the cluster of the environment, or to an embedded
// server.
func temporalClient(ctx context.Context, c config, log *slog.Logger) (client.Client, func() error, error) {
	opts := client.Options{Logger: sdklog.NewStructuredLogger(log), HostPort: os.Getenv("TEMPORAL_ADDRESS"), Namespace: os.Getenv("TEMPORAL_NAMESPACE")}
	if opts.HostPort != "" {
		if key := os.Getenv("TEMPORAL_API_KEY"); key != "" {
			opts.Credentials = client.NewAPIKeyStaticCredentials(key)
			opts.ConnectionOptions.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		t, err := client.DialContext(ctx, opts)
		if err != nil {
			return nil, nil, fmt.Errorf("TEMPORAL_ADDRESS=%s: %w", opts.HostPort, err)
		}
		return t, func() error { t.Close(); return nil }, nil
	}
	o := &embedded.Options{Dir: filepath.Join(c.dir, "temporal")}
	if c.verbose {
		o.Logger = log
	}
	srv, err := embedded.Start(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	t, err := srv.Dial(ctx, opts)
	if err != nil {
		return nil, nil, errors.Join(err, srv.Close())
	}
	log.Info("embedded Temporal server", "address", srv.Address())
	return t, func() error { t.Close(); return srv.Close() }, nil
}
