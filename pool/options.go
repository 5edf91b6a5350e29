package pool

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Options configures a [Pool].
type Options struct {
	// Name is the pool's name, and required. Pools of one name and version share their
	// sandboxes, in any number of processes. It is the prefix of the sandboxes' names.
	Name string
	// Version identifies a deployment: a pool takes only sandboxes of its own version.
	// Change it when Create, Warm or Reset change. It is required if Warm or Reset is
	// set or Stopped is true, because such sandboxes may outlive a deployment.
	Version string
	// Size is the number of sandboxes to keep ready: per process, or in total if
	// Stopped is set. Zero means one.
	Size int
	// Max limits the sandboxes of this pool that this process has at a time, whether
	// ready, taken or being created. At the limit Take waits until one is returned or
	// deleted. Zero means no limit. Less than Size is an error unless Stopped is set.
	Max int
	// Create are the options of new sandboxes. Name and Timeout must be zero: the pool
	// sets them. It also sets Ephemeral, unless Stopped is set, and adds a tag. OnCreate
	// must be nil: use Warm.
	Create sandbox.CreateOptions
	// Warm, if not nil, prepares a new sandbox. If it fails, the sandbox is
	// deleted.
	Warm func(ctx context.Context, sb *sandbox.Sandbox) error
	// Check, if not nil, is called for a sandbox before Take returns it. A sandbox
	// that fails is deleted. If it was ready, Take tries another one; if it is new, Take
	// returns the error. Check need not test whether the sandbox can run programs.
	Check func(ctx context.Context, sb *sandbox.Sandbox) error
	// Reset prepares a returned sandbox for the next Take. If it is nil or fails, the
	// sandbox is deleted instead. A program that still runs in the sandbox may prevent
	// the reset.
	Reset func(ctx context.Context, sb *sandbox.Sandbox) error
	// Stopped keeps the ready sandboxes stopped, with their files saved.
	Stopped bool
	// MaxAge is the age at which a ready sandbox is replaced. Zero means a day, or 20
	// hours if Stopped is set, because snapshots expire after a day.
	MaxAge time.Duration
	// Lease is how long a running sandbox outlives its process at most. The pool
	// extends a sandbox when half of its lease remains, with one request, and lists its
	// sandboxes eight times per lease. Zero means five minutes. A value outside of four
	// seconds to 24 hours is an error.
	Lease time.Duration
	// Logger receives a debug record for each sandbox that the pool creates, takes,
	// adopts or deletes, and a warning for each failure. Nil disables logging.
	Logger *slog.Logger
}

// Format prints the options for every verb, without the values of variables and headers.
func (o Options) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// minLease is the shortest lease that a busy machine can extend in time.
const minLease = 4 * time.Second

// validate checks the options and sets their defaults.
func (o *Options) validate() error {
	switch {
	case o.Name == "" || len(o.Name) > 64 || strings.Trim(strings.ToLower(o.Name), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
		return entry.Invalid("pool", "Options.Name", "%q; want 1 to 64 letters, digits, - and _", o.Name)
	case o.Create.Name != "":
		return entry.Invalid("pool", "Options.Create.Name", "%q is set; the pool derives names from Options.Name", o.Create.Name)
	case o.Create.Timeout != 0:
		return entry.Invalid("pool", "Options.Create.Timeout", "%v is set; the pool sets it from Options.Lease", o.Create.Timeout)
	case o.Version == "" && (o.Warm != nil || o.Reset != nil || o.Stopped):
		return entry.Invalid("pool", "Options.Version", "is empty; Warm, Reset and Stopped need it to identify the deployment, such as the revision that was built")
	case o.Create.OnCreate != nil:
		return entry.Invalid("pool", "Options.Create.OnCreate", "is set; use Options.Warm to prepare a sandbox")
	}
	o.Size = cmp.Or(o.Size, 1)
	o.Lease = cmp.Or(o.Lease, 5*time.Minute)
	if err := cmp.Or(entry.NotNegative("pool", "Options.Size", o.Size), entry.NotNegative("pool", "Options.Max", o.Max),
		entry.NotNegative("pool", "Options.MaxAge", o.MaxAge), entry.Range("pool", "Options.Lease", o.Lease, minLease, wire.MaxTimeout)); err != nil {
		return err
	}
	// Stopped sandboxes are shared by all processes, and Max counts only this process.
	if !o.Stopped && o.Max > 0 && o.Max < o.Size {
		return entry.Invalid("pool", "Options.Max", "%d is less than Options.Size, %d, the number of sandboxes to keep ready", o.Max, o.Size)
	}
	if o.MaxAge == 0 {
		o.MaxAge = 24 * time.Hour
		if o.Stopped {
			o.MaxAge = 20 * time.Hour
		}
	}
	o.Create.Tags = maps.Clone(o.Create.Tags)
	if o.Create.Tags == nil {
		o.Create.Tags = map[string]string{}
	}
	o.Create.Tags[Tag] = o.Name
	o.Create.Timeout, o.Create.Ephemeral = o.Lease, !o.Stopped
	if o.Stopped && o.Create.SnapshotExpiration == 0 {
		o.Create.SnapshotExpiration = 24 * time.Hour
	}
	return nil
}
