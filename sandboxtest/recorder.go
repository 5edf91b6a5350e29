package sandboxtest

import (
	"context"
	"slices"
	"sync"

	"github.com/go-vercel/sandbox/observe"
)

// Recorder is an [observe.Observer] that remembers what a client has done, for the
// assertions of a test:
//
//	events := &sandboxtest.Recorder{}
//	client, err := sandbox.NewClient(&sandbox.ClientOptions{
//		BaseURL: srv.URL, Credentials: auth.Static(srv.Credentials()), Observer: events,
//	})
//	…
//	if got := events.Counts(); got.Requests != 3 || got.Resumes != 1 || got.Retries != 0 {
//		t.Errorf("%+v", got)
//	}
//
// The zero value is ready to use. It keeps everything until Reset, and is safe
// for concurrent use.
type Recorder struct {
	mu    sync.Mutex
	begun int
	ended []observe.Event
}

// Counts is how often things have ended.
type Counts struct {
	// Operations are those of the API, Requests all of their HTTP requests, and
	// Retries the requests that were made because an earlier one has failed.
	Operations, Requests, Retries int
	// Commands were run or started, and Repairs are cuts of their output.
	Commands, Repairs int
	// Resumes are sessions that were started for a stopped sandbox; one that
	// another client has started does not count.
	Resumes, Hooks, Stops int
	// Uploads and Downloads are transfers of files.
	Uploads, Downloads int
	// Pauses are waits for a rate limit, and Extensions those of KeepAlive.
	Pauses, Extensions int
	// Open is what has begun and not ended.
	Open int
}

// Begin implements [observe.Observer].
func (r *Recorder) Begin(ctx context.Context, _ observe.Event) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun++
	return ctx
}

// End implements [observe.Observer].
func (r *Recorder) End(_ context.Context, e observe.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, e)
}

// Events returns what has ended so far, in that order; of the given kinds only,
// if there are any.
func (r *Recorder) Events(kinds ...observe.Kind) []observe.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.ended), func(e observe.Event) bool {
		return len(kinds) > 0 && !slices.Contains(kinds, e.Kind)
	})
}

// Reset forgets everything. What has begun by then counts as neither begun nor
// open, and must have ended.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun, r.ended = 0, nil
}

// Counts counts what has ended so far.
func (r *Recorder) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := Counts{Open: r.begun - len(r.ended)}
	fields := map[observe.Kind]*int{
		observe.Operation: &n.Operations, observe.Request: &n.Requests, observe.Command: &n.Commands,
		observe.Repair: &n.Repairs, observe.Hook: &n.Hooks, observe.Stop: &n.Stops,
		observe.Upload: &n.Uploads, observe.Download: &n.Downloads,
		observe.Pace: &n.Pauses, observe.Extension: &n.Extensions,
	}
	for _, e := range r.ended {
		if field := fields[e.Kind]; field != nil {
			*field++
		}
		if e.Kind == observe.Request && e.Attempt > 1 {
			n.Retries++
		}
		if e.Kind == observe.Resume && e.Outcome == "ok" {
			n.Resumes++
		}
	}
	return n
}
