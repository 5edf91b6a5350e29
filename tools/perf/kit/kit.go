// Package kit has the code that all Go programs of this harness need: the arguments of a case,
// timing, and the line of JSON at the end.
package kit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Work is the amount of work of a case.
type Work struct {
	Unit string `json:"unit"` // "bytes" or "ops"
	N    int64  `json:"n"`
}

// Run is one execution of a case. Its JSON is the line that the harness reads.
type Run struct {
	Case       string         `json:"case"`
	SDK        string         `json:"sdk"`
	Version    string         `json:"version"`
	Work       Work           `json:"work"`
	Seconds    float64        `json:"seconds"`
	CPUSeconds float64        `json:"cpu_seconds"`
	PeakRSSMB  float64        `json:"peak_rss_mb"`
	Extra      map[string]any `json:"extra"`
	Error      string         `json:"error,omitempty"`

	args map[string]string
	ctx  context.Context
}

// Context returns a context that ends at an interrupt.
func (r *Run) Context() context.Context { return r.ctx }

// Cases maps the names of cases to their functions.
type Cases map[string]func(*Run) error

// Main parses "case key=value...", runs the case, and prints the line. It exits if the case
// fails.
func Main(sdk, version string, args []string, cases Cases) {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: bench <case> [key=value]...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := &Run{ctx: ctx, Case: args[0], SDK: sdk, Version: version, Extra: map[string]any{}, args: map[string]string{}}
	for _, a := range args[1:] {
		k, v, _ := strings.Cut(a, "=")
		r.args[k] = v
	}
	fn := cases[r.Case]
	if fn == nil {
		fmt.Fprintf(os.Stderr, "unknown case %s\n", r.Case)
		os.Exit(2)
	}
	err := profiled(func() error { return fn(r) })
	if err != nil {
		r.Error = err.Error()
	}
	r.PeakRSSMB = peakRSS()
	line, _ := json.Marshal(r)
	fmt.Println(string(line))
	if err != nil {
		os.Exit(1)
	}
}

// profiled calls f, and writes a CPU profile to the file that BENCH_CPUPROFILE names, if any.
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

// Str returns an argument of the case.
func (r *Run) Str(key string) string { return r.args[key] }

// Int returns an argument of the case that is a number. It exits if it is not one.
func (r *Run) Int(key string) int64 {
	n, err := strconv.ParseInt(r.args[key], 10, 64)
	if err != nil {
		fmt.Fprintf(os.Stderr, "argument %s: %v\n", key, err)
		os.Exit(2)
	}
	return n
}

// Bytes and Ops set the amount of work.
func (r *Run) Bytes(n int64) { r.Work = Work{"bytes", n} }
func (r *Run) Ops(n int64)   { r.Work = Work{"ops", n} }

// Timed runs fn as the timed region of the case.
func (r *Run) Timed(fn func() error) error {
	c0, t0 := CPUSeconds(), time.Now()
	r.Extra["start_unix_ns"] = t0.UnixNano()
	err := fn()
	r.Seconds = time.Since(t0).Seconds()
	r.CPUSeconds = CPUSeconds() - c0
	return err
}

// RoundTrips times the operations of the case, one call of do each. It uses as many goroutines
// as the case has workers, or one.
func (r *Run) RoundTrips(do func() error) error {
	n, workers := r.Int("ops"), int64(1)
	if r.Str("workers") != "" {
		workers = r.Int("workers")
	}
	r.Ops(n)
	latencies := make([]time.Duration, n)
	err := r.Timed(func() error {
		return AtOnce(workers, n, func(i int64) error {
			start := time.Now()
			err := do()
			latencies[i] = time.Since(start)
			return err
		})
	})
	if err == nil {
		r.percentiles(latencies)
	}
	return err
}

// AtOnce calls do with 0 to n-1, in several goroutines.
func AtOnce(workers, n int64, do func(i int64) error) error {
	var next atomic.Int64
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for errs[w] == nil {
				i := next.Add(1) - 1
				if i >= n {
					return
				}
				errs[w] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// percentiles records percentiles of latencies.
func (r *Run) percentiles(d []time.Duration) {
	slices.Sort(d)
	us := func(p float64) float64 {
		return float64(d[min(len(d)-1, int(float64(len(d))*p))].Nanoseconds()) / 1e3
	}
	r.Extra["p50_us"] = us(0.50)
	r.Extra["p99_us"] = us(0.99)
	r.Extra["ops_per_s"] = float64(len(d)) / r.Seconds
}

// EmitArgs returns the arguments of the command emit.
func (r *Run) EmitArgs() []string {
	args := []string{r.Str("bytes"), r.Str("line"), r.Str("mode")}
	if chunk := r.Str("chunk"); chunk != "" {
		args = append(args, chunk)
	}
	return args
}

// Expect records the number of received bytes, and a mismatch if it is not the wanted number.
func (r *Run) Expect(got, want int64) {
	r.Extra["bytes_received"] = got
	if got != want {
		r.Extra["mismatch"] = fmt.Sprintf("received %d, want %d", got, want)
	}
}

// These functions return the variables that the harness sets, and paths that depend on them.
func StubURL() string          { return os.Getenv("PERF_STUB") }
func DataFile(n string) string { return filepath.Join(os.Getenv("PERF_DATA"), n) }
func TempFile(n string) string { return filepath.Join(os.Getenv("PERF_TMP"), n) }
func ManyName(i int) string    { return fmt.Sprintf("many/%05d.txt", i) }

// TLS returns the configuration that trusts the harness's server, or nil if it has no
// certificate.
func TLS() (*tls.Config, error) {
	name := os.Getenv("PERF_CA")
	if name == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(name)
	roots := x509.NewCertPool()
	if err == nil && !roots.AppendCertsFromPEM(pem) {
		err = fmt.Errorf("%s contains no certificate", name)
	}
	return &tls.Config{RootCAs: roots}, err
}
