// Sandbox-sessions serves durable sandbox sessions and a page to use them. Stop it at any
// moment, also with kill -9, and start it again: sessions continue, and no command runs
// twice.
//
//	sandbox-sessions [-addr ADDR] [-dir DIR] [-emulator] [-idle DURATION]
//
// It prints the address of the page, with the token that every request needs: any user of
// the machine can reach a port.
//
// The Temporal server at TEMPORAL_ADDRESS, by default localhost:7233, keeps the sessions.
// TEMPORAL_NAMESPACE, TEMPORAL_API_KEY and the TEMPORAL_TLS_ variables are read as
// Temporal's own programs read them. Start a server with
//
//	temporal server start-dev --db-filename sessions.db
//
// or run this program by devserver, which starts one.
//
// Any number of these processes share the work if they share the server and DIR, which
// holds the token, the stored output and the emulator. DIR is this user's alone, and in
// the home directory by default.
package main

import (
	"cmp"
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
	if err != nil && !errors.Is(err, flag.ErrHelp) { // the user requested the help
		fmt.Fprintln(os.Stderr, "sandbox-sessions:", err)
		os.Exit(1)
	}
}

type config struct {
	addr, dir string
	emulator  bool
	idle      time.Duration
	verbose   bool
}

func flags(args []string, stderr io.Writer) (c config, err error) {
	flags := flag.NewFlagSet("sandbox-sessions", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.addr, "addr", "127.0.0.1:8088", "address to serve at")
	flags.StringVar(&c.dir, "dir", defaultDir(), "folder for the token, the output and the emulator")
	flags.BoolVar(&c.emulator, "emulator", false, "run sandboxes on this machine, without an account")
	flags.DurationVar(&c.idle, "idle", 30*time.Minute, "hibernate after")
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
	// Another user who could write there could choose the token and the emulator's address.
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
	var token string
	var emu *emulator
	leave := func() error { return nil }
	err = withLock(ctx, c.dir, func() (err error) {
		if token, err = folderToken(c.dir); err != nil || !c.emulator {
			return err
		}
		dir := filepath.Join(c.dir, "emulator")
		if err := private.Dir(dir); err != nil {
			return err
		}
		if emu, leave, err = joinEmulator(ctx, dir); err != nil {
			return fmt.Errorf("emulator: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	sandboxes, err := sandboxClient(emu, log)
	if err != nil {
		return err
	}
	temporal, err := temporalClient(ctx, log, stderr)
	if err != nil {
		return err
	}
	defer temporal.Close()

	output := durable.Dir(filepath.Join(c.dir, "output"))
	w := worker.New(temporal, queue, worker.Options{MaxConcurrentActivityExecutionSize: 1000, WorkerStopTimeout: 5 * time.Second, StickyScheduleToStartTimeout: time.Second})
	activities := &durable.Worker{Client: sandboxes, Output: output}
	session.Register(w, activities)
	follow := worker.New(temporal, followQueue, worker.Options{MaxConcurrentActivityExecutionSize: commandsAtOnce, WorkerStopTimeout: 5 * time.Second})
	activities.RegisterFollow(follow)
	for _, w := range []worker.Worker{w, follow} {
		if err := w.Start(); err != nil {
			return err
		}
		defer w.Stop()
	}

	sessions := session.New(temporal, &session.Options{
		TaskQueue: queue, Sandbox: sandboxes, Output: output, Policy: session.Policy{IdleAfter: c.idle}, Defaults: c.defaults(),
	})
	handler := sessions.Handler(&session.HandlerOptions{Page: true, Logger: log, Authorize: session.Token(token)})
	fmt.Fprintf(stdout, "http://%s/#token=%s\n", l.Addr(), token)
	return serve(ctx, l, handler)
}

// heartbeat is how long a process may be silent before another one takes over its commands.
const heartbeat = 5 * time.Second

// commandsAtOnce limits the running commands of all sessions of this process.
const commandsAtOnce = 10_000

// The task queues. Following a command takes a slot as long as the command runs, so it has
// its own queue.
const queue, followQueue = "sandbox", "sandbox-follow"

// defaults returns the options of new sandboxes. Sandboxes of an emulator run on this
// machine, but must not reach its other programs, including this one.
func (c config) defaults() durable.Options {
	o := durable.Options{Heartbeat: heartbeat, FollowQueue: followQueue}
	if c.emulator {
		o.NetworkPolicy = &sandbox.NetworkPolicy{
			Allow:        []string{"*"},
			AllowSubnets: []string{"0.0.0.0/0"}, DenySubnets: []string{machineAddr + "/32"},
		}
	}
	return o
}

// serve serves until ctx ends. That also ends streams; their clients reconnect.
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

// defaultDir returns a folder in the user's home, where nobody else can create it. It is
// empty if there is no home.
func defaultDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "sandbox-sessions")
}

// sandboxClient returns the client of an emulator, or of the environment if emu is nil.
func sandboxClient(emu *emulator, log *slog.Logger) (*sandbox.Client, error) {
	if emu == nil {
		return sandbox.NewClient(&sandbox.ClientOptions{Logger: log})
	}
	hc, err := emu.client()
	if err != nil {
		return nil, err
	}
	return sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: emu.URL, Credentials: auth.Static(auth.Credentials{Token: emu.Token, TeamID: emu.TeamID, ProjectID: emu.ProjectID}),
		HTTPClient: hc, Logger: log,
	})
}

// temporalClient connects to the Temporal server of the environment, and prints which
// server it trusts.
func temporalClient(ctx context.Context, log *slog.Logger, stderr io.Writer) (client.Client, error) {
	// Read only the environment: a configuration file of the temporal program must not choose
	// who can run commands here.
	opts, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{DisableFile: true})
	if err != nil {
		return nil, err
	}
	opts.HostPort = cmp.Or(opts.HostPort, client.DefaultHostPort)
	how := "by its certificate"
	if opts.ConnectionOptions.TLS == nil {
		how = "without TLS: any process that listens there can run commands in the sessions"
	}
	fmt.Fprintf(stderr, "sandbox-sessions: trusts the Temporal server at %s, %s\n", opts.HostPort, how)
	opts.Logger = sdklog.NewStructuredLogger(log)
	opts.ConnectionOptions.GetSystemInfoTimeout = dialTimeout
	t, err := client.DialContext(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("no Temporal server responds at %s: start one with `temporal server start-dev --db-filename sessions.db`, run this program by `devserver sandbox-sessions`, or set TEMPORAL_ADDRESS: %w", opts.HostPort, err)
	}
	return t, nil
}

// dialTimeout is for a server that has just started on a busy machine.
const dialTimeout = 20 * time.Second
