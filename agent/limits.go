package agent

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/entry"
)

// Limits limit what a model can do. Zero values mean the defaults.
type Limits struct {
	// Output is the length of a result in bytes: 16 KiB by default, about 4,000
	// tokens. Less than 2 KiB is an error.
	Output int
	// Timeout is how long a command may run if the model gives no timeout, two minutes
	// by default. MaxTimeout is the longest timeout that the model can give: by default
	// ten minutes, or Timeout if that is longer. A Timeout that exceeds a given
	// MaxTimeout is an error.
	Timeout, MaxTimeout time.Duration
	// FileBytes is the maximum size of a file that the tools write, edit, or copy from
	// or to [Options].Artifacts: 8 MiB by default.
	FileBytes int64
	// Background is how many commands may run in the background of a sandbox at the
	// same time: 8 by default. Commands that other programs have started don't count.
	Background int
	// Sandboxes is how many sandboxes a model may create with a Toolset of [ForProject],
	// not counting those that it has removed. VCPUs is how many processors each may have.
	// Both are 8 by default. A negative number means no limit.
	Sandboxes, VCPUs int
	// CallsPerMinute is how many calls a model may make within a minute: 120 by default.
	// Further calls fail with a result that tells it to wait. A negative number means no
	// limit.
	CallsPerMinute int
	// Calls, Bytes and Time are budgets of the whole Toolset: the number of calls, the
	// bytes of results and copied files, and the total time of calls. Malformed and refused
	// calls count as calls. The time in [Options].Before does not count. By default there
	// is no limit. When a budget is used up, calls fail with [ErrLimit].
	Calls int
	Bytes int64
	Time  time.Duration
}

// ErrLimit matches the error of a call beyond a budget in [Limits].
var ErrLimit = errors.New("the budget of the agent's tools is used up")

// minOutput is the smallest valid Limits.Output. It has room for messages and data.
const minOutput = 2 << 10

// messageBytes is the space in a result for the messages of this package.
const messageBytes = 1 << 10

// Limits of read_file, in addition to those of the result.
const (
	defaultLines = 1000     // number of lines, if the model gives none
	maxLine      = 2000     // bytes of a line that a result shows
	maxScanned   = 64 << 20 // bytes of a file that are read
	maxSniffed   = 8000     // bytes that are searched for NUL, a sign of a binary file
)

// check returns an error for invalid limits.
func (l *Limits) check() error {
	const pkg = "agent"
	var short, long error
	if l.Output != 0 && l.Output < minOutput {
		short = entry.Invalid(pkg, "Limits.Output", "%d is less than the minimum, %d", l.Output, minOutput)
	}
	if l.MaxTimeout > 0 && l.Timeout > l.MaxTimeout {
		long = entry.Invalid(pkg, "Limits.Timeout", "%v is more than Limits.MaxTimeout, %v", l.Timeout, l.MaxTimeout)
	}
	return cmp.Or(short, entry.NotNegative(pkg, "Limits.Timeout", l.Timeout), entry.NotNegative(pkg, "Limits.MaxTimeout", l.MaxTimeout), long,
		entry.NotNegative(pkg, "Limits.FileBytes", l.FileBytes), entry.NotNegative(pkg, "Limits.Background", l.Background),
		entry.NotNegative(pkg, "Limits.Calls", l.Calls), entry.NotNegative(pkg, "Limits.Bytes", l.Bytes), entry.NotNegative(pkg, "Limits.Time", l.Time))
}

func (l Limits) withDefaults() Limits {
	l.Output = max(valueOr(l.Output, 16<<10), minOutput)
	l.MaxTimeout = valueOr(l.MaxTimeout, max(10*time.Minute, l.Timeout))
	l.Timeout = min(valueOr(l.Timeout, 2*time.Minute), l.MaxTimeout)
	l.FileBytes = valueOr(l.FileBytes, 8<<20)
	l.Background = valueOr(l.Background, 8)
	l.Sandboxes = valueOr(l.Sandboxes, 8)
	l.VCPUs = valueOr(l.VCPUs, 8)
	l.CallsPerMinute = valueOr(l.CallsPerMinute, 120)
	return l
}

func valueOr[T int | int64 | time.Duration](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}

// replacer returns a replacer that fills in the limits in texts for the model. The texts contain
// placeholders such as {output}.
func (l *Limits) replacer() *strings.Replacer {
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
	return strings.NewReplacer("{output}", strconv.Itoa(l.Output), "{timeout}", seconds(l.Timeout), "{longest}", seconds(l.MaxTimeout))
}

// dataBytes is the space in a result for data.
func (l *Limits) dataBytes() int { return l.Output - messageBytes }

// timeout returns how long a command may run if the model gives this timeout.
func (l *Limits) timeout(seconds float64) time.Duration {
	if seconds <= 0 {
		return l.Timeout
	}
	if seconds >= l.MaxTimeout.Seconds() {
		return l.MaxTimeout
	}
	return max(time.Duration(seconds*float64(time.Second)), 100*time.Millisecond)
}

// budget counts how much of its limits a toolset has used.
type budget struct {
	mu     sync.Mutex
	recent []time.Time // calls of the last minute
	calls  int
	bytes  int64
	time   time.Duration
}

// countCall counts a call. If a budget is used up, it returns an error that matches ErrLimit. If
// there were too many calls in the last minute, it returns an error for the model.
func (b *budget) countCall(l *Limits) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for len(b.recent) > 0 && now.Sub(b.recent[0]) >= time.Minute {
		b.recent = b.recent[1:]
	}
	switch {
	case l.Calls > 0 && b.calls >= l.Calls:
		return fmt.Errorf("%w: %d calls", ErrLimit, l.Calls)
	case l.Bytes > 0 && b.bytes >= l.Bytes:
		return fmt.Errorf("%w: %d bytes", ErrLimit, l.Bytes)
	case l.Time > 0 && b.time >= l.Time:
		return fmt.Errorf("%w: %v of calls", ErrLimit, l.Time)
	case l.CallsPerMinute > 0 && len(b.recent) >= l.CallsPerMinute:
		wait := time.Minute - now.Sub(b.recent[0])
		return modelErrorf("At most %d calls can be made in a minute. Wait %d seconds.", l.CallsPerMinute, int(wait.Seconds())+1)
	}
	b.calls++
	b.recent = append(b.recent, now)
	return nil
}

// countResult counts the bytes of a result and the time of its call.
func (b *budget) countResult(bytes int, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes += int64(bytes)
	b.time += took
}
