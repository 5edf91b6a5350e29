package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/observe"
	"github.com/go-vercel/sandbox/tools/perf/kit"
)

// newClient returns a client of the harness's server. It creates it like a user of the SDK.
func newClient(o observe.Observer) (*sandbox.Client, error) {
	opts := &sandbox.ClientOptions{
		Observer:    o,
		BaseURL:     kit.StubURL() + "/api",
		Credentials: auth.Static(auth.Credentials{Token: "stub-token", TeamID: "team_stub", ProjectID: "prj_stub"}),
	}
	config, err := kit.TLS()
	if err != nil {
		return nil, err
	}
	if config != nil {
		tr := api.DefaultTransport()
		tr.TLSClientConfig = config
		opts.HTTPClient = &http.Client{Transport: tr}
	}
	return sandbox.NewClient(opts)
}

func create(ctx context.Context, o observe.Observer) (*sandbox.Sandbox, error) {
	c, err := newClient(o)
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

func startup(r *kit.Run) error {
	ctx := r.Context()
	r.Ops(1)
	return r.Timed(func() error {
		sb, err := create(ctx, nil)
		if err != nil {
			return err
		}
		return hello(ctx, sb)
	})
}

// roundTrips runs commands with the observer that the case names.
func roundTrips(r *kit.Run) error {
	ctx := r.Context()
	o, err := observerNamed(r.Str("observer"))
	if err != nil {
		return err
	}
	sb, err := create(ctx, o)
	if err != nil {
		return err
	}
	return r.RoundTrips(func() error { return hello(ctx, sb) })
}

// counter is a writer that counts bytes.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func waitedLogs(r *kit.Run) error {
	ctx := r.Context()
	want := r.Int("bytes")
	sb, err := create(ctx, nil)
	if err != nil {
		return err
	}
	r.Bytes(want)
	var got counter
	err = r.Timed(func() error {
		_, err := sb.RunCommand(ctx, "emit", r.EmitArgs(), &sandbox.CommandOptions{Stdout: &got})
		return err
	})
	r.Expect(int64(got), want)
	return err
}

// detachedLogs reads the log of a detached command: with the argument keep as lines, and
// otherwise as chunks.
func detachedLogs(r *kit.Run) error {
	ctx := r.Context()
	want := r.Int("bytes")
	cmd, err := startEmit(ctx, r)
	if err != nil {
		return err
	}
	r.Bytes(want)
	var got int64
	err = r.Timed(func() error {
		if r.Str("keep") == "" {
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
	r.Expect(got, want)
	done, err := cmd.Wait(ctx)
	if err == nil && done.ExitCode != 0 {
		err = fmt.Errorf("exit code %d", done.ExitCode)
	}
	return err
}

func startEmit(ctx context.Context, r *kit.Run) (*sandbox.Command, error) {
	sb, err := create(ctx, nil)
	if err != nil {
		return nil, err
	}
	return sb.StartCommand(ctx, "emit", r.EmitArgs(), nil)
}

// slowLogs reads a log, pauses after every 16th line, and stops after the bytes that the
// case asks for.
func slowLogs(r *kit.Run) error {
	ctx := r.Context()
	want := r.Int("read")
	cmd, err := startEmit(ctx, r)
	if err != nil {
		return err
	}
	r.Bytes(want)
	var got int64
	err = r.Timed(func() error {
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
	r.Expect(got, want)
	return err
}

func list(r *kit.Run) error {
	ctx := r.Context()
	total := r.Int("total")
	limit := r.Int("limit")
	c, err := newClient(nil)
	if err != nil {
		return err
	}
	r.Ops(total)
	var got int64
	err = r.Timed(func() error {
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
