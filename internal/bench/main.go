// Command bench runs one case of the client performance harness with this SDK
// and prints its figures as one line of JSON.
//
//	bench CASE [key=value]...
//
// docs/performance.md says how it is run and what came out. The environment
// variables are the harness's: PERF_STUB is the server's address, PERF_DATA the
// folder of upload inputs, PERF_TMP one for downloads, PERF_CA a certificate.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
)

// run is one execution of a case. It marshals to what the harness reads.
type run struct {
	Case       string         `json:"case"`
	SDK        string         `json:"sdk"`
	Version    string         `json:"version"`
	Work       work           `json:"work"`
	Seconds    float64        `json:"seconds"`
	CPUSeconds float64        `json:"cpu_seconds"`
	PeakRSSMB  float64        `json:"peak_rss_mb"`
	Extra      map[string]any `json:"extra"`
	Error      string         `json:"error,omitempty"`

	args map[string]string
}

// work says how much a case did; the unit is "bytes" or "ops".
type work struct {
	Unit string `json:"unit"`
	N    int64  `json:"n"`
}

var cases = map[string]func(context.Context, *run) error{
	"startup":               startup,
	"rtt-seq":               roundTrips,
	"rtt-conc":              roundTrips,
	"logs-ascii":            waitedLogs,
	"logs-small":            waitedLogs,
	"logs-escapes":          waitedLogs,
	"logs-perline":          waitedLogs,
	"memory":                waitedLogs,
	"logs-detached":         detachedLogs,
	"logs-slow":             slowLogs,
	"upload-big":            uploadBytes,
	"upload-incompressible": uploadBytes,
	"upload-file":           uploadFile,
	"upload-many":           uploadMany,
	"download-stream":       downloadStream,
	"download-file":         downloadFile,
	"list":                  list,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bench(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func bench(ctx context.Context, args []string) error {
	if len(args) == 0 || cases[args[0]] == nil {
		return fmt.Errorf("usage: bench CASE [key=value]..., the case being one of %s",
			strings.Join(slices.Sorted(maps.Keys(cases)), " "))
	}
	r := &run{Case: args[0], SDK: "go", Version: sandbox.Version, Extra: map[string]any{}, args: map[string]string{}}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		r.args[key] = value
	}
	err := profiled(func() error { return cases[r.Case](ctx, r) })
	if err != nil {
		r.Error = err.Error()
	}
	r.PeakRSSMB = peakRSS()
	line, jsonErr := json.Marshal(r)
	if jsonErr != nil {
		return jsonErr
	}
	fmt.Println(string(line))
	return err
}

// profiled writes a CPU profile of f to the file that BENCH_CPUPROFILE names.
func profiled(f func() error) error {
	name := os.Getenv("BENCH_CPUPROFILE")
	if name == "" {
		return f()
	}
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return errors.Join(err, out.Close())
	}
	err = f()
	pprof.StopCPUProfile()
	return errors.Join(err, out.Close())
}

// int returns a number among the case's arguments.
func (r *run) int(key string) (int64, error) {
	n, err := strconv.ParseInt(r.args[key], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("argument %s: %w", key, err)
	}
	return n, nil
}

// timed measures f. Its figures become those of the run.
func (r *run) timed(f func() error) error {
	cpu, start := cpuSeconds(), time.Now()
	r.Extra["start_unix_ns"] = start.UnixNano()
	err := f()
	r.Seconds = time.Since(start).Seconds()
	r.CPUSeconds = cpuSeconds() - cpu
	return err
}

// percentiles records the latencies of a run's operations.
func (r *run) percentiles(latencies []time.Duration) {
	slices.Sort(latencies)
	at := func(p float64) float64 {
		i := min(len(latencies)-1, int(p*float64(len(latencies))))
		return float64(latencies[i].Nanoseconds()) / 1e3
	}
	r.Extra["p50_us"], r.Extra["p99_us"] = at(0.50), at(0.99)
	r.Extra["ops_per_s"] = float64(len(latencies)) / r.Seconds
}

// received records how many bytes came, and complains if they are not all.
func (r *run) received(got, want int64) {
	r.Extra["bytes_received"] = got
	if got != want {
		r.Extra["mismatch"] = fmt.Sprintf("received %d, want %d", got, want)
	}
}
