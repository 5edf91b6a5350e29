package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
)

// DeviceCode is what a user needs to log a program in with a browser, on this
// or another device.
type DeviceCode struct {
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

// Device returns a provider like [CLI] that, if there is no login or the
// login has expired for good, logs the user in through a browser (RFC 8628).
// The new login is stored in the CLI's file.
//
// prompt tells the user where to go; [PromptOn] returns one that prints. If it
// fails, so does the login. It is called by the goroutine of the call that
// needs credentials and should return at once; the call then waits until the
// user has logged in, the code expires, or its context ends. Other calls wait
// for the same login, and fail if it does.
//
// [Default] never asks anyone to log in. A program for terminals can add that:
//
//	auth.Chain(
//		auth.Default(nil),
//		auth.Device(auth.PromptOn(os.Stderr), nil),
//	)
func Device(prompt func(ctx context.Context, code DeviceCode) error, opts *Options) Refresher {
	return &device{prompt: prompt, cli: newCLI(opts.orDefault())}
}

// PromptOn returns a prompt for [Device] that writes instructions for the user
// to w, such as os.Stderr.
func PromptOn(w io.Writer) func(context.Context, DeviceCode) error {
	return func(_ context.Context, code DeviceCode) error {
		direct := ""
		if code.VerificationURLComplete != "" {
			direct = redact.Printable(code.VerificationURLComplete) + "\nor "
		}
		_, err := fmt.Fprintf(w, "To log in to Vercel visit %s%s and type %s\n",
			direct, redact.Printable(code.VerificationURL), redact.Printable(code.UserCode))
		return err
	}
}

type device struct {
	prompt func(context.Context, DeviceCode) error
	cli    *found

	mu    sync.Mutex
	login *deviceLogin // nil if no login is in progress
}

// deviceLogin is a login in progress.
type deviceLogin struct {
	done chan struct{}
	// Set before done is closed: the outcome, and whether its caller gave up.
	err       error
	abandoned bool
}

func (p *device) Credentials(ctx context.Context) (Credentials, error) {
	return p.get(ctx, "")
}

func (p *device) Refresh(ctx context.Context, stale Credentials) (Credentials, error) {
	return p.get(ctx, stale.Token)
}

func (p *device) get(ctx context.Context, refused string) (Credentials, error) {
	for {
		c, err := p.cli.get(ctx, refused)
		if !errors.Is(err, ErrNoCredentials) && !errors.Is(err, oidc.ErrRunOut) {
			return c, err
		}
		p.mu.Lock()
		login := p.login
		if login == nil {
			login = &deviceLogin{done: make(chan struct{})}
			p.login = login
			p.mu.Unlock()
			p.run(ctx, login)
		} else {
			p.mu.Unlock()
			select {
			case <-login.done:
			case <-ctx.Done():
				return Credentials{}, ctx.Err()
			}
		}
		if ctx.Err() != nil {
			return Credentials{}, ctx.Err()
		}
		// If the caller that ran the login gave up, the next one runs it.
		if login.err != nil && !login.abandoned {
			return Credentials{}, login.err
		}
	}
}

// run logs in, in the caller's goroutine and with the caller's context.
func (p *device) run(ctx context.Context, login *deviceLogin) {
	_, err := p.cli.host.DeviceLogin(ctx, func(ctx context.Context, code oidc.DeviceCode) error {
		return p.prompt(ctx, DeviceCode{
			VerificationURL:         code.VerificationURI,
			VerificationURLComplete: code.VerificationURIComplete,
			UserCode:                code.UserCode,
			ExpiresAt:               code.Expiry,
		})
	})
	if err != nil {
		err = fmt.Errorf("sandbox: credentials: %w", err)
	} else {
		p.cli.cache().forget()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.login = nil
	login.err, login.abandoned = err, ctx.Err() != nil
	close(login.done)
}
