// Observability runs commands in some sandboxes. It serves the client's metrics to
// Prometheus, and a page with the panels of dashboard.json, which Grafana reads, too.
//
// From this folder, each in a terminal, without an account:
//
//	go run -C ../../.. ./cmd/sandbox-emulator go run -C examples/modules/observability . -for 10m -trouble
//	prometheus --config.file=prometheus.yml --storage.tsdb.path="$(mktemp -d)"
//
// Then open http://127.0.0.1:9464.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/otelsandbox"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
)

//go:embed dashboard.json
var dashboard []byte

//go:embed dashboard.html
var page []byte

func main() {
	listen := flag.String("listen", "127.0.0.1:9464", "address of /metrics and of the page")
	database := flag.String("prometheus", "http://127.0.0.1:9090", "address of Prometheus, for the page")
	sandboxes := flag.Int("sandboxes", 4, "number of sandboxes")
	lasts := flag.Duration("for", time.Minute, "how long to work")
	bad := flag.Bool("trouble", false, "let some requests fail and some streams break, to see it in the metrics")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *lasts)
	defer cancel()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	if err := run(ctx, listener, *database, *sandboxes, *bad); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listener net.Listener, database string, sandboxes int, bad bool) error {
	defer listener.Close()
	exporter, err := prometheus.New()
	if err != nil {
		return err
	}
	observer, err := otelsandbox.New(&otelsandbox.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter))})
	if err != nil {
		return err
	}
	opts := &sandbox.ClientOptions{Observer: observer}
	if bad {
		opts.HTTPClient = &http.Client{Transport: trouble{http.DefaultTransport}}
	}
	client, err := sandbox.NewClient(opts)
	if err != nil {
		return err
	}
	prometheusURL, err := url.Parse(database)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.Handle("GET /api/v1/query_range", httputil.NewSingleHostReverseProxy(prometheusURL))
	mux.HandleFunc("GET /dashboard.json", serve("application/json", dashboard))
	mux.HandleFunc("GET /{$}", serve("text/html; charset=utf-8", page))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer server.Close()
	go func() { _ = server.Serve(listener) }() // ends with Close
	fmt.Printf("Metrics on http://%s/metrics\n", listener.Addr())

	var all sync.WaitGroup
	errs := make([]error, sandboxes)
	for i := range sandboxes {
		all.Go(func() { errs[i] = work(ctx, client, fmt.Sprintf("observed-%d", i)) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func serve(kind string, content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(content)
	}
}

// work uses a sandbox until the context ends, and deletes it.
func work(ctx context.Context, client *sandbox.Client, name string) (err error) {
	sb, err := client.GetOrCreate(ctx, name, nil)
	if err != nil {
		return err
	}
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, sb.Delete(late, nil))
	}()
	for ctx.Err() == nil {
		switch rand.IntN(12) {
		case 0: // the next call resumes it
			_, err = sb.Stop(ctx, nil)
		case 1, 2:
			err = sb.FS().WriteFiles(ctx, []sandbox.File{{Path: "data", Content: make([]byte, rand.IntN(1<<20))}}, nil)
		case 3:
			_, err = sb.FS().ReadFile(ctx, "/etc/os-release")
		default:
			_, err = sb.RunCommand(ctx, "sh", []string{"-c", "seq 1000; sleep 0." + fmt.Sprint(rand.IntN(10))}, nil)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}
