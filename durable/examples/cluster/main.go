// Cluster is the service of example session for a cluster. Run any number of these processes,
// on any number of machines, with one Temporal server. When a deployment stops or kills some
// of them, the sessions and their viewers continue at the others.
//
//	TEMPORAL_ADDRESS=temporal.internal:7233 go run ./examples/cluster -addr :8088 -output /mnt/shared/output
//
// TEMPORAL_NAMESPACE and TEMPORAL_API_KEY are for Temporal Cloud;
// TEMPORAL_TLS_CLIENT_CERT_PATH, TEMPORAL_TLS_CLIENT_KEY_PATH and
// TEMPORAL_TLS_SERVER_CA_CERT_PATH for a cluster behind mutual TLS. The output's
// folder is a volume that all of them share. With a durable.OutputStore in S3, as in
// the example of that type, they share nothing but Temporal.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
)

const taskQueue, followQueue = "sandbox", "sandbox-follow"

func main() {
	addr := flag.String("addr", "127.0.0.1:8088", "address to serve at; TOKEN in the environment is what requests need")
	output := flag.String("output", "output", "folder of the commands' output, shared by all processes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *addr, durable.Dir(*output))
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr string, store durable.OutputStore) (err error) {
	sandboxes, err := sandbox.NewClient(nil)
	if err != nil {
		return err
	}
	c, err := dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := sweepEvery(ctx, c, 15*time.Minute); err != nil {
		return err
	}

	w := worker.New(c, taskQueue, worker.Options{
		// A process that is told to stop hands its commands over at once. This time is
		// for requests in flight.
		WorkerStopTimeout: 10 * time.Second,
		// How long Temporal waits for the process that has a session in memory before it
		// asks another one.
		StickyScheduleToStartTimeout: time.Second,
	})
	activities := &durable.Worker{Client: sandboxes, Output: store}
	session.Register(w, activities)
	// Following a command takes a slot for as long as it runs.
	follow := worker.New(c, followQueue, worker.Options{MaxConcurrentActivityExecutionSize: 10_000, WorkerStopTimeout: 10 * time.Second})
	activities.RegisterFollow(follow)
	for _, w := range []worker.Worker{w, follow} {
		if err := w.Start(); err != nil {
			return err
		}
		defer w.Stop()
	}

	sessions := session.New(c, &session.Options{
		TaskQueue: taskQueue, Sandbox: sandboxes, Output: store, Policy: session.Policy{IdleAfter: 15 * time.Minute},
		Defaults: durable.Options{FollowQueue: followQueue},
	})
	mux := http.NewServeMux() // it redirects /api/sandbox to the page
	mux.Handle("/api/sandbox/", http.StripPrefix("/api/sandbox", sessions.Handler(&session.HandlerOptions{
		Page: true, Authorize: session.Token(os.Getenv("TOKEN")), // without a token, all requests are refused
	})))
	return serve(ctx, addr, mux)
}

// serve serves until ctx ends. That ends streams too; their viewers continue at another process.
func serve(ctx context.Context, addr string, h http.Handler) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return serving }}
	fmt.Printf("http://%s/api/sandbox/\n", l.Addr())
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	end()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return srv.Shutdown(grace)
}

func dial(ctx context.Context) (client.Client, error) {
	o, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{DisableFile: true})
	if err != nil {
		return nil, err
	}
	o.Logger = sdklog.NewStructuredLogger(slog.Default())  // to standard error
	o.ConnectionOptions.GetSystemInfoTimeout = time.Minute // the cluster may be busy, or just starting
	if o.HostPort == "" {
		return nil, errors.New("set TEMPORAL_ADDRESS to the host and port of the cluster's frontend")
	}
	c, err := client.DialContext(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("TEMPORAL_ADDRESS=%s: %w", o.HostPort, err)
	}
	return c, nil
}

// sweepEvery creates the schedule by which the cluster stops machines without a session. The
// first process creates it for all.
func sweepEvery(ctx context.Context, c client.Client, every time.Duration) error {
	_, err := c.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID:     "sandbox-sweep",
		Spec:   client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}},
		Action: &client.ScheduleWorkflowAction{ID: "sandbox-sweep", Workflow: "sandbox.Sweep", TaskQueue: taskQueue},
		// Run at once: a new cluster may have old sandboxes.
		TriggerImmediately: true,
	})
	if err != nil && !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return fmt.Errorf("creating the schedule: %w", err)
	}
	return nil
}
