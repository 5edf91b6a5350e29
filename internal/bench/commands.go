package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/api"
)

// newClient returns a client of the harness's server, as a user of the SDK
// would make it.
func newClient() (*sandbox.Client, error) {
	opts := &sandbox.ClientOptions{
		BaseURL:     os.Getenv("PERF_STUB") + "/api",
		Credentials: sandbox.StaticCredentials(sandbox.Credentials{Token: "stub-token", TeamID: "team_stub", ProjectID: "prj_stub"}),
	}
	if name := os.Getenv("PERF_CA"); name != "" {
		pem, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", name)
		}
		tr := api.DefaultTransport()
		tr.TLSClientConfig = &tls.Config{RootCAs: roots}
		opts.HTTPClient = &http.Client{Transport: tr}
	}
	return sandbox.NewClient(opts)
}

func create(ctx context.Context) (*sandbox.Sandbox, error) {
	c, err := newClient()
	if err != nil {
		return nil, err
	}
	return c.Create(ctx, nil)
}

func hello(ctx context.Context, sb *sandbox.Sandbox) error {
	done, err := sb.RunCommand(ctx, "echo", []string{"hello"}, nil)
	if err != nil {
		return err
	}
	out, err := done.Stdout(ctx)
	if err == nil && out != "hello\n" {
		err = fmt.Errorf("the output was %q", out)
	}
	return err
}

func startup(ctx context.Context, r *run) error {
	r.Work = work{"ops", 1}
	return r.timed(func() error {
		sb, err := create(ctx)
		if err != nil {
			return err
		}
		return hello(ctx, sb)
	})
}

// roundTrips runs commands, in one goroutine unless the case has workers.
func roundTrips(ctx context.Context, r *run) error {
	n, err := r.int("ops")
	if err != nil {
		return err
	}
	workers := int64(1)
	if r.args["workers"] != "" {
		if workers, err = r.int("workers"); err != nil {
			return err
		}
	}
	sb, err := create(ctx)
	if err != nil {
		return err
	}
	r.Work = work{"ops", n}
	latencies := make([]time.Duration, n)
	var next atomic.Int64
	errs := make([]error, workers)
	err = r.timed(func() error {
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for errs[w] == nil {
					i := next.Add(1) - 1
					if i >= n {
						return
					}
					start := time.Now()
					errs[w] = hello(ctx, sb)
					latencies[i] = time.Since(start)
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
	if err == nil {
		r.percentiles(latencies)
	}
	return err
}

func emitArgs(r *run) []string {
	args := []string{r.args["bytes"], r.args["line"], r.args["mode"]}
	if chunk, ok := r.args["chunk"]; ok {
		args = append(args, chunk)
	}
	return args
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func waitedLogs(ctx context.Context, r *run) error {
	want, err := r.int("bytes")
	if err != nil {
		return err
	}
	sb, err := create(ctx)
	if err != nil {
		return err
	}
	r.Work = work{"bytes", want}
	var got counter
	err = r.timed(func() error {
		_, err := sb.RunCommand(ctx, "emit", emitArgs(r), &sandbox.CommandOptions{Stdout: &got})
		return err
	})
	r.received(int64(got), want)
	return err
}

// detachedLogs reads the log of a command that nobody waited for, as chunks or,
// if the argument keep is given, as lines that could be kept.
func detachedLogs(ctx context.Context, r *run) error {
	want, err := r.int("bytes")
	if err != nil {
		return err
	}
	cmd, err := startEmit(ctx, r)
	if err != nil {
		return err
	}
	r.Work = work{"bytes", want}
	var got int64
	err = r.timed(func() error {
		if r.args["keep"] == "" {
			for chunk, err := range cmd.LogChunks(ctx) {
				if err != nil {
					return err
				}
				got += int64(len(chunk.Data))
			}
			return nil
		}
		for line, err := range cmd.Logs(ctx) {
			if err != nil {
				return err
			}
			got += int64(len(line.Data))
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.received(got, want)
	done, err := cmd.Wait(ctx)
	if err == nil && done.ExitCode != 0 {
		err = fmt.Errorf("exit code %d", done.ExitCode)
	}
	return err
}

func startEmit(ctx context.Context, r *run) (*sandbox.Command, error) {
	sb, err := create(ctx)
	if err != nil {
		return nil, err
	}
	return sb.StartCommand(ctx, "emit", emitArgs(r), nil)
}

// slowLogs pauses after every 16th line and leaves when it has read enough.
func slowLogs(ctx context.Context, r *run) error {
	want, err := r.int("read")
	if err != nil {
		return err
	}
	cmd, err := startEmit(ctx, r)
	if err != nil {
		return err
	}
	r.Work = work{"bytes", want}
	var got int64
	err = r.timed(func() error {
		lines := 0
		for line, err := range cmd.Logs(ctx) {
			if err != nil {
				return err
			}
			if got += int64(len(line.Data)); got >= want {
				break
			}
			if lines++; lines%16 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		return nil
	})
	r.received(got, want)
	return err
}

func list(ctx context.Context, r *run) error {
	total, err := r.int("total")
	if err != nil {
		return err
	}
	limit, err := r.int("limit")
	if err != nil {
		return err
	}
	c, err := newClient()
	if err != nil {
		return err
	}
	r.Work = work{"ops", total}
	var got int64
	err = r.timed(func() error {
		opts := &sandbox.ListOptions{Limit: int(limit), NamePrefix: fmt.Sprintf("gen-%d-", total)}
		for _, err := range c.List(ctx, opts) {
			if err != nil {
				return err
			}
			got++
		}
		return nil
	})
	if got != total {
		r.Extra["mismatch"] = fmt.Sprintf("listed %d, want %d", got, total)
	}
	return err
}
