package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/observe"
	"github.com/go-vercel/sandbox/otelsandbox"
	"github.com/go-vercel/sandbox/tools/perf/kit"
)

// observerNamed returns the observer with a name: no observer, one that does nothing, or the one
// for OpenTelemetry with metrics and without sampled spans.
func observerNamed(name string) (observe.Observer, error) {
	switch name {
	case "", "none":
		return nil, nil
	case "silent":
		return silent{}, nil
	case "otel":
		return otelsandbox.New(&otelsandbox.Options{
			TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())),
			MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
		})
	}
	return nil, fmt.Errorf("unknown observer %q: use none, silent or otel", name)
}

type silent struct{}

func (silent) Begin(ctx context.Context, _ observe.Event) context.Context { return ctx }
func (silent) End(context.Context, observe.Event)                         {}

// round is the cost of one round, which is one half of a pair.
type round struct {
	seconds, cpu, mallocs float64
}

// observedPairs compares round trips with and without an observer. It alternates short rounds in
// one process, so that a slow phase of the machine affects both rounds of a pair.
func observedPairs(r *kit.Run) error {
	ctx := r.Context()
	ops, workers, pairs := r.Int("ops"), r.Int("workers"), int(r.Int("pairs"))
	var sandboxes [2]*sandbox.Sandbox
	for i, name := range []string{"none", r.Str("observer")} {
		o, err := observerNamed(name)
		if err != nil {
			return err
		}
		if sandboxes[i], err = create(ctx, o); err != nil {
			return err
		}
	}
	var rounds [2][]round
	r.Ops(2 * int64(pairs) * ops)
	err := r.Timed(func() error {
		for pair := range pairs + 1 {
			for turn := range 2 {
				which := (pair + turn) % 2 // alternate which of the two begins
				one, err := measureRound(ctx, sandboxes[which], ops, workers)
				if err != nil {
					return err
				}
				if pair > 0 { // ignore the first pair, which warms up
					rounds[which] = append(rounds[which], one)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name, of := range map[string]func(round) float64{
		"time": func(x round) float64 { return x.seconds }, "cpu": func(x round) float64 { return x.cpu },
	} {
		ratios := make([]float64, pairs)
		for i := range ratios {
			ratios[i] = of(rounds[1][i]) / of(rounds[0][i])
		}
		slices.Sort(ratios)
		for key, at := range map[string]float64{"p25": 0.25, "p50": 0.5, "p75": 0.75} {
			r.Extra[name+"_ratio_"+key] = ratios[int(at*float64(pairs-1)+0.5)]
		}
	}
	for i, name := range []string{"none", "observed"} {
		var mallocs float64
		cpu := make([]float64, pairs)
		for j, x := range rounds[i] {
			cpu[j] = x.cpu / float64(ops) * 1e6
			mallocs += x.mallocs
		}
		slices.Sort(cpu)
		r.Extra[name+"_cpu_us_p10"], r.Extra[name+"_cpu_us_p50"] = cpu[pairs/10], cpu[pairs/2]
		r.Extra[name+"_allocs"] = mallocs / float64(pairs) / float64(ops)
	}
	return nil
}

func measureRound(ctx context.Context, sb *sandbox.Sandbox, ops, workers int64) (round, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cpu, start := kit.CPUSeconds(), time.Now()
	err := kit.AtOnce(workers, ops, func(int64) error { return hello(ctx, sb) })
	x := round{seconds: time.Since(start).Seconds(), cpu: kit.CPUSeconds() - cpu}
	runtime.ReadMemStats(&after)
	x.mallocs = float64(after.Mallocs - before.Mallocs)
	return x, err
}
