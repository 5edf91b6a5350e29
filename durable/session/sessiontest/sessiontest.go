// Package sessiontest tests programs that use sessions, with real processes, skipped time
// and no server. A test of a week takes a second.
package sessiontest

import (
	"cmp"
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
	// Env configures the environment: the emulator, the store and the time limit.
	Env durabletest.Options
	// Session configures Client. Its Sandbox and Output come from Env.
	Session session.Options
}

// Format prints the options without secrets of the emulator, for every verb.
func (o Options) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// Env is the test environment of one session. Plan events with At, start the session with
// Client, and call Run.
type Env struct {
	*durabletest.Env
	// Client is for the tested program. Before Run, it can start one session. In functions
	// of At, it can do everything but read events. After Run, it can read events and the
	// state.
	Client *session.Client

	temporal *temporal
	tb       testing.TB
	planned  sync.WaitGroup
}

// New returns an environment. It closes the emulator at the end of the test. opts may be nil.
func New(tb testing.TB, opts *Options) *Env {
	tb.Helper()
	o := *cmp.Or(opts, new(Options))
	env := durabletest.New(tb, &o.Env)
	session.RegisterOnly(env, env.Worker)
	o.Session.Sandbox, o.Session.Output = env.Worker.Client, env.Worker.Output
	t := newTemporal(env)
	return &Env{Env: env, Client: session.New(t, &o.Session), temporal: t, tb: tb}
}

// At calls f at a time after the session's start, by the session's clock. The clock moves
// only while f waits for an answer of Client, so f must not wait for later events. f is not
// called if the session ends before.
func (e *Env) At(d time.Duration, f func()) {
	e.Env.At(d, func() {
		e.temporal.addWorking(1)
		e.planned.Go(func() {
			defer e.temporal.addWorking(-1)
			f()
		})
		e.temporal.waitIdle()
	})
}

// Run runs the session that Client has started, and returns its events, with the output of
// its commands. The session has to end: call Destroy in a function of At, or set
// Policy.MaxAge. GetWorkflowError returns the error of a failed session.
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
