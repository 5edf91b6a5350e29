package sandboxtest

import (
	"context"
	"slices"
	"sync"

	"github.com/go-vercel/sandbox"
)

// Recorder is a [sandbox.Observer] that remembers what a client has done, for the
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
	ended []sandbox.Event
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

// Begin implements [sandbox.Observer].
func (r *Recorder) Begin(ctx context.Context, _ sandbox.Event) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun++
	return ctx
}

// End implements [sandbox.Observer].
func (r *Recorder) End(_ context.Context, e sandbox.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, e)
}

// Events returns what has ended so far, in that order; of the given kinds only,
// if there are any.
func (r *Recorder) Events(kinds ...string) []sandbox.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.ended), func(e sandbox.Event) bool {
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
	fields := map[string]*int{
		sandbox.EventOperation: &n.Operations, sandbox.EventRequest: &n.Requests, sandbox.EventCommand: &n.Commands,
		sandbox.EventRepair: &n.Repairs, sandbox.EventHook: &n.Hooks, sandbox.EventStop: &n.Stops,
		sandbox.EventUpload: &n.Uploads, sandbox.EventDownload: &n.Downloads,
		sandbox.EventPace: &n.Pauses, sandbox.EventExtension: &n.Extensions,
	}
	for _, e := range r.ended {
		if field := fields[e.Kind]; field != nil {
			*field++
		}
		if e.Kind == sandbox.EventRequest && e.Attempt > 1 {
			n.Retries++
		}
		if e.Kind == sandbox.EventResume && e.Outcome == "ok" {
			n.Resumes++
		}
	}
	return n
}
