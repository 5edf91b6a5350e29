// Sandbox-sessions serves durable sandbox sessions and a page to use them, in one
// process. Stop it at any moment, also with kill -9, and start it again: sessions
// go on, and no command runs twice. The page wants the new address.
//
//	sandbox-sessions [-addr ADDR] [-host NAME,…] [-dir DIR] [-emulator] [-idle DURATION]
//
// It prints an address with a token, which every request needs: any user of the
// machine can reach a port. The token is made up for each run. DIR is this user's
// alone, and in the home directory unless it is given.
//
// With TEMPORAL_ADDRESS in the environment (and TEMPORAL_NAMESPACE,
// TEMPORAL_API_KEY, TEMPORAL_TLS_CLIENT_CERT_PATH and what else Temporal's tools
// read there) sessions live on that cluster, which any number of these processes
// can share if they share DIR, where a token is kept for all of them. Without it they
// live in an embedded server, which is for trying things out, development, CI and
// one small machine.
package main

import (
	"context"
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
	"go.temporal.io/sdk/contrib/envconfig"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/embedded"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/internal/private"
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
	if err != nil && !errors.Is(err, flag.ErrHelp) { // which was asked for
		fmt.Fprintln(os.Stderr, "sandbox-sessions:", err)
		os.Exit(1)
	}
}

type config struct {
	addr, dir, queue string
	hosts            string
	emulator         bool
	idle, heartbeat  time.Duration
	keepOutput       time.Duration
	verbose          bool
}

func flags(args []string, stderr io.Writer) (c config, err error) {
	flags := flag.NewFlagSet("sandbox-sessions", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.addr, "addr", "127.0.0.1:8088", "address to serve at")
	flags.StringVar(&c.hosts, "host", "", "comma-separated host names to serve in addition to localhost and numeric addresses")
	flags.StringVar(&c.dir, "dir", defaultDir(), "folder for the token, the embedded server, the output and the emulator")
	flags.StringVar(&c.queue, "queue", "sandbox", "Temporal task queue")
	flags.BoolVar(&c.emulator, "emulator", false, "run sandboxes on this machine, without an account")
	flags.DurationVar(&c.idle, "idle", 30*time.Minute, "hibernate after")
	flags.DurationVar(&c.heartbeat, "heartbeat", 5*time.Second, "take over from a process that was silent for")
	flags.DurationVar(&c.keepOutput, "keep-output", 0, "remove stored output after; 0 keeps it")
	flags.BoolVar(&c.verbose, "v", false, "log more")
	return c, flags.Parse(args)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	c, err := flags(args, stderr)
	if err != nil {
		return err
	}
	if c.dir == "" {
		return errors.New("there is no home directory to keep files in; set HOME, or name a folder with -dir")
	}
	// Who could write there could choose the token, and where the emulator is.
	if err := private.Dir(c.dir); err != nil {
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
	token, err := doorToken(c.dir, os.Getenv("TEMPORAL_ADDRESS") != "")
	if err != nil {
		return err
	}

	output := durable.ExpiringDir(filepath.Join(c.dir, "output"), c.keepOutput)
	w := worker.New(temporal, c.queue, worker.Options{MaxConcurrentActivityExecutionSize: 1000, WorkerStopTimeout: 5 * time.Second, StickyScheduleToStartTimeout: time.Second})
	activities := &durable.Worker{Client: sandboxes, Output: output}
	session.Register(w, activities)
	follow := worker.New(temporal, c.followQueue(), worker.Options{MaxConcurrentActivityExecutionSize: commandsAtOnce, WorkerStopTimeout: 5 * time.Second})
	activities.RegisterFollow(follow)
	for _, w := range []worker.Worker{w, follow} {
		if err := w.Start(); err != nil {
			return err
		}
		defer w.Stop()
	}

	sessions := session.New(temporal, &session.Options{
		TaskQueue: c.queue, Sandbox: sandboxes, Output: output, Policy: session.Policy{IdleAfter: c.idle}, Defaults: c.defaults(),
	})
	handler := onlyHosts(c.hosts, sessions.Handler(&session.HandlerOptions{Page: true, Logger: log, Authorize: session.Token(token)}))
	fmt.Fprintf(stdout, "http://%s/#token=%s\n", l.Addr(), token)
	return serve(ctx, l, handler)
}

// commandsAtOnce is how many commands may run, of all sessions of this process.
const commandsAtOnce = 10_000

// followQueue is for following commands alone, which takes as long as they run.
func (c config) followQueue() string { return c.queue + "-follow" }

// defaults are for new sandboxes. Those of an emulator run on this machine, and
// have nothing to do with its other programs, this one among them.
func (c config) defaults() durable.Options {
	o := durable.Options{Heartbeat: c.heartbeat, FollowQueue: c.followQueue()}
	if c.emulator {
		o.NetworkPolicy = &sandbox.NetworkPolicy{
			Allow:        []string{"*"},
			AllowSubnets: []string{"0.0.0.0/0"}, DenySubnets: []string{machineAddr + "/32"},
		}
	}
	return o
}

// serve serves until ctx ends. Requests end with it, streams too: their clients
// ask again.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	serving, stop := context.WithCancel(context.Background())
	defer stop()
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return serving },
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case <-ctx.Done():
	case err := <-failed:
		return err
	}
	stop()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return srv.Shutdown(grace)
}

// defaultDir is in the user's home; empty without one. It is nowhere that others can
// make it.
func defaultDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "sandbox-sessions")
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
	hc, err := emu.client()
	if err != nil {
		return nil, nil, err
	}
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: emu.URL, Credentials: auth.Static(auth.Credentials{Token: emu.Token, TeamID: emu.TeamID, ProjectID: emu.ProjectID}),
		HTTPClient: hc, Logger: log,
	})
	return client, emu.stop, err
}

// temporalClient connects to the cluster of the environment, or to an embedded
// server.
func temporalClient(ctx context.Context, c config, log *slog.Logger) (client.Client, func() error, error) {
	// The environment alone: a file of the command line's does not make a cluster
	// of a program that works without one.
	opts, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{DisableFile: true})
	if err != nil {
		return nil, nil, err
	}
	opts.Logger = sdklog.NewStructuredLogger(log)
	if opts.HostPort != "" {
		t, err := client.DialContext(ctx, opts)
		if err != nil {
			return nil, nil, fmt.Errorf("TEMPORAL_ADDRESS=%s: %w", opts.HostPort, err)
		}
		return t, func() error { t.Close(); return nil }, nil
	}
	opts = client.Options{Logger: opts.Logger, Namespace: opts.Namespace}
	o := &embedded.Options{Dir: filepath.Join(c.dir, "temporal"), Namespace: opts.Namespace}
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
	log.Info("embedded Temporal server", "address", srv.Address(), "key", filepath.Join(o.Dir, embedded.KeyFile))
	return t, func() error { t.Close(); return srv.Close() }, nil
}
