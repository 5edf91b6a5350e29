// Package device logs the user of a program in to Vercel through a browser, on this or another
// device. Package auth finds credentials without a user.
package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/oidc/login"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Code is what a user needs to log a program in with a browser, on this or
// another device.
type Code struct {
	// VerificationURL is the page to visit, where UserCode must be entered.
	VerificationURL string
	// VerificationURLComplete is the same page with the code filled in. It may
	// be empty.
	VerificationURLComplete string
	// UserCode is the code to enter.
	UserCode string
	// ExpiresAt is when the code stops working.
	ExpiresAt time.Time
}

// Login returns a provider like [auth.CLI] that, if there is no login or the
// login has expired for good, logs the user in through a browser (RFC 8628).
// The new login is stored in the CLI's file.
//
// prompt tells the user where to log in; [PromptOn] returns one that prints. If prompt fails, so
// does the login. It runs in the goroutine of the call that needs credentials and should return at
// once. The call then waits until the user has logged in, the code expires, or its context ends.
// Other calls wait for the same login and fail if it fails.
//
// [auth.Default] never asks a user to log in. A terminal program can add that:
//
//	auth.Chain(
//		auth.Default(nil),
//		device.Login(device.PromptOn(os.Stderr), nil),
//	)
func Login(prompt func(ctx context.Context, code Code) error, opts *auth.Options) auth.Refresher {
	o := *cmp.Or(opts, new(auth.Options))
	lookup := o.LookupEnv
	if lookup == nil {
		lookup = os.LookupEnv
	}
	getenv := func(key string) string { value, _ := lookup(key); return value }
	return &provider{prompt: prompt, host: oidc.NewHost(o.HTTPClient, getenv, o.Dir), cli: auth.CLI(&o)}
}

// PromptOn returns a prompt for [Login] that writes instructions for the user
// to w, such as os.Stderr.
func PromptOn(w io.Writer) func(context.Context, Code) error {
	return func(_ context.Context, code Code) error {
		direct := ""
		if code.VerificationURLComplete != "" {
			direct = redact.Printable(code.VerificationURLComplete) + "\nor "
		}
		_, err := fmt.Fprintf(w, "To log in to Vercel visit %s%s and type %s\n",
			direct, redact.Printable(code.VerificationURL), redact.Printable(code.UserCode))
		return err
	}
}

type provider struct {
	prompt func(context.Context, Code) error
	host   *oidc.Host
	cli    auth.Refresher

	mu      sync.Mutex
	pending *pendingLogin // nil if no login is in progress
}

// pendingLogin is a login in progress.
type pendingLogin struct {
	done chan struct{}
	// Set before done is closed: the outcome, and whether its caller gave up.
	err       error
	abandoned bool
}

func (p *provider) Credentials(ctx context.Context) (auth.Credentials, error) {
	return p.get(ctx, p.cli.Credentials)
}

func (p *provider) Refresh(ctx context.Context, stale auth.Credentials) (auth.Credentials, error) {
	return p.get(ctx, func(ctx context.Context) (auth.Credentials, error) { return p.cli.Refresh(ctx, stale) })
}

func (p *provider) get(ctx context.Context, stored func(context.Context) (auth.Credentials, error)) (auth.Credentials, error) {
	for {
		c, err := stored(ctx)
		if !errors.Is(err, auth.ErrNoCredentials) && !errors.Is(err, oidc.ErrRunOut) {
			return c, err
		}
		p.mu.Lock()
		pending := p.pending
		if pending == nil {
			pending = &pendingLogin{done: make(chan struct{})}
			p.pending = pending
			p.mu.Unlock()
			p.run(ctx, pending)
		} else {
			p.mu.Unlock()
			select {
			case <-pending.done:
			case <-ctx.Done():
				return auth.Credentials{}, ctx.Err()
			}
		}
		if ctx.Err() != nil {
			return auth.Credentials{}, ctx.Err()
		}
		// If the caller that ran the login gave up, the next one runs it.
		if pending.err != nil && !pending.abandoned {
			return auth.Credentials{}, pending.err
		}
	}
}

// run logs in, in the caller's goroutine and with the caller's context.
func (p *provider) run(ctx context.Context, pending *pendingLogin) {
	_, err := login.Device(ctx, p.host, func(ctx context.Context, code login.Code) error {
		return p.prompt(ctx, Code(code))
	})
	if err != nil {
		err = fmt.Errorf("sandbox: credentials: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = nil
	pending.err, pending.abandoned = err, ctx.Err() != nil
	close(pending.done)
}
