// Package sessiontest tests programs that use sessions: with real processes, with
// skipped time, and without a server. A test of a week takes a second.
package sessiontest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/durable/durabletest"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Options configures [New]. The zero value works.
type Options struct {
	// Env is for the environment: the emulator, the store, the time that a test may
	// take.
	Env durabletest.Options
	// Session is for the Client. Its Sandbox and Output are those of Env.
	Session session.Options
}

// Format prints the options without secrets of the emulator, for every verb.
func (o Options) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// Env is the test environment of one session. Plan with At what happens, start the
// session with Client, and Run it.
type Env struct {
	*durabletest.Env
	// Client is for the program that is tested. Until Run it can start the session, of
	// which it has one; in functions of At it can do whatever needs no stream; once Run
	// has returned it can read events and the state.
	Client *session.Client

	temporal *temporal
	tb       testing.TB
	planned  sync.WaitGroup
}

// New returns an environment. The emulator is closed when the test ends. opts may be
// nil.
func New(tb testing.TB, opts *Options) *Env {
	tb.Helper()
	var o Options
	if opts != nil {
		o = *opts
	}
	env := durabletest.New(tb, &o.Env)
	session.RegisterOnly(env, env.Worker)
	o.Session.Sandbox, o.Session.Output = env.Worker.Client, env.Worker.Output
	t := newTemporal(env)
	return &Env{Env: env, Client: session.New(t, &o.Session), temporal: t, tb: tb}
}

// At plans f for a time after the session's start, by the session's clock. That
// stands still but for the time in which f waits for an answer of Client: f must not
// wait for what comes later. It is not called if the session ends before.
func (e *Env) At(d time.Duration, f func()) {
	e.Env.At(d, func() {
		e.temporal.busy(1)
		e.planned.Go(func() {
			defer e.temporal.busy(-1)
			f()
		})
		e.temporal.stand()
	})
}

// Run runs the session that Client has started until it ends, and returns its
// events, with the output of its commands. The time must not run out for it: plan its
// end by Destroy, or by Policy.MaxAge. The error of one that failed is that of
// GetWorkflowError.
func (e *Env) Run() []session.Event {
	e.tb.Helper()
	if !e.temporal.run() {
		e.tb.Fatal("sessiontest: Run without Client.Start")
	}
	e.planned.Wait()
	var events []session.Event
	for event, err := range e.Client.Events(e.tb.Context(), e.temporal.id, session.Cursor{}) {
		if err != nil {
			e.tb.Fatalf("sessiontest: the session's events: %v", err)
		}
		events = append(events, event)
	}
	return events
}
