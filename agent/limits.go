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

// Limits bound what a model can cause. Zero values mean the defaults.
type Limits struct {
	// Output is the length of a result in bytes: 16 KiB by default, about 4,000
	// tokens. Less than 2 KiB is an error.
	Output int
	// Timeout is how long a command may run unless the model asks for another
	// time, two minutes by default, and MaxTimeout the longest that it can ask
	// for, ten minutes by default, or Timeout if that is longer. A Timeout above the
	// MaxTimeout that is given is an error.
	Timeout, MaxTimeout time.Duration
	// FileBytes is the largest file that is written, edited or copied from or to
	// [Options].Artifacts: 8 MiB by default.
	FileBytes int64
	// Background is how many commands run in the background of a sandbox at the
	// same time: 8 by default. Those that other programs have started don't count.
	Background int
	// Sandboxes is how many sandboxes a model may have created by a Toolset of
	// [ForProject] that it has not removed, and VCPUs how many processors each may
	// have: 8 and 8 by default. A negative number means no limit.
	Sandboxes, VCPUs int
	// CallsPerMinute is how many calls are made within a minute: 120 by default.
	// Beyond it the model reads that it has to wait. A negative number means no limit.
	CallsPerMinute int
	// Calls, Bytes and Time are budgets of the whole Toolset: the number of
	// calls, the bytes of results and copied files, and the time that calls take
	// together, without that of [Options].Before. They have no limit by default.
	// Calls beyond a budget fail with
	// [ErrLimit].
	Calls int
	Bytes int64
	Time  time.Duration
}

// ErrLimit matches the error of a call beyond a budget in [Limits].
var ErrLimit = errors.New("the budget of the agent's tools is used up")

// minOutput is the shortest result that has room for words and data.
const minOutput = 2 << 10

// words is what a result has in addition to data.
const words = 1 << 10

// Limits of read_file, in addition to those of the result.
const (
	defaultLines = 1000
	maxLine      = 2000
	maxScanned   = 64 << 20
	maxSniffed   = 8000
)

// check refuses limits that can't be applied.
func (l *Limits) check() error {
	const pkg = "agent"
	var short, long error
	if l.Output != 0 && l.Output < minOutput {
		short = entry.Invalid(pkg, "Limits.Output", "%d is less than %d, which words alone may take", l.Output, minOutput)
	}
	if l.MaxTimeout > 0 && l.Timeout > l.MaxTimeout {
		long = entry.Invalid(pkg, "Limits.Timeout", "%v is more than Limits.MaxTimeout, %v", l.Timeout, l.MaxTimeout)
	}
	return cmp.Or(short, entry.NotNegative(pkg, "Limits.Timeout", l.Timeout), entry.NotNegative(pkg, "Limits.MaxTimeout", l.MaxTimeout), long,
		entry.NotNegative(pkg, "Limits.FileBytes", l.FileBytes), entry.NotNegative(pkg, "Limits.Background", l.Background),
		entry.NotNegative(pkg, "Limits.Calls", l.Calls), entry.NotNegative(pkg, "Limits.Bytes", l.Bytes), entry.NotNegative(pkg, "Limits.Time", l.Time))
}

func (l Limits) withDefaults() Limits {
	l.Output = max(pick(l.Output, 16<<10), minOutput)
	l.MaxTimeout = pick(l.MaxTimeout, max(10*time.Minute, l.Timeout))
	l.Timeout = min(pick(l.Timeout, 2*time.Minute), l.MaxTimeout)
	l.FileBytes = pick(l.FileBytes, 8<<20)
	l.Background = pick(l.Background, 8)
	l.Sandboxes = pick(l.Sandboxes, 8)
	l.VCPUs = pick(l.VCPUs, 8)
	l.CallsPerMinute = pick(l.CallsPerMinute, 120)
	return l
}

func pick[T int | int64 | time.Duration](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}

// describe returns a replacer that puts the limits into texts for the model.
func (l *Limits) describe() *strings.Replacer {
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
	return strings.NewReplacer("{output}", strconv.Itoa(l.Output), "{timeout}", seconds(l.Timeout), "{longest}", seconds(l.MaxTimeout))
}

// data is how many bytes of a result are left for data.
func (l *Limits) data() int { return l.Output - words }

// timeout returns how long a command may run if the model asks for seconds.
func (l *Limits) timeout(seconds float64) time.Duration {
	if seconds <= 0 {
		return l.Timeout
	}
	if seconds >= l.MaxTimeout.Seconds() {
		return l.MaxTimeout
	}
	return max(time.Duration(seconds*float64(time.Second)), 100*time.Millisecond)
}

// budget counts what a toolset has used of its limits.
type budget struct {
	mu     sync.Mutex
	recent []time.Time // calls of the last minute
	calls  int
	bytes  int64
	time   time.Duration
}

// begin counts a call. Its error is for the model, or matches ErrLimit.
func (b *budget) begin(l *Limits) error {
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
		return mistake("At most %d calls are made in a minute. Wait %d seconds.", l.CallsPerMinute, int(wait.Seconds())+1)
	}
	b.calls++
	b.recent = append(b.recent, now)
	return nil
}

// end counts what a call has used.
func (b *budget) end(bytes int, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes += int64(bytes)
	b.time += took
}
