package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox"
)

// Policy says how sessions live. The zero value works.
type Policy struct {
	// IdleAfter is how long the machine runs without a command or a hold. Zero means 30
	// minutes.
	IdleAfter time.Duration `json:"idleAfter,omitempty"`
	// MaxLifetime is the platform's cap on a machine's time. Between two commands, the
	// session moves to a new machine RefreshMargin earlier. Zero means 5 hours, and a
	// margin of 5 minutes.
	MaxLifetime   time.Duration `json:"maxLifetime,omitempty"`
	RefreshMargin time.Duration `json:"refreshMargin,omitempty"`
	// CheckpointCommands and CheckpointEvery save the files more often, by moving to a new
	// machine after that many commands, or after that time if there was a command. A machine
	// that crashes loses what was written since. Processes that commands left running end.
	// Zero means that files are saved only when the session hibernates or MaxLifetime is
	// near.
	CheckpointCommands int           `json:"checkpointCommands,omitempty"`
	CheckpointEvery    time.Duration `json:"checkpointEvery,omitempty"`
	// QueueLimit is how many commands may wait. Together they may have 768 KiB as JSON. Zero
	// means 100.
	QueueLimit int `json:"queueLimit,omitempty"`
	// MaxRun ends a command that runs longer, like RunOptions.Timeout. Without it, a server
	// in the foreground, or tail -f, blocks the queue and keeps the machine. Zero means no
	// limit.
	MaxRun time.Duration `json:"maxRun,omitempty"`
	// MaxAge is how long after its start the session destroys itself, with its sandbox and
	// its output, as soon as no command runs and nobody holds it. Zero means never.
	MaxAge time.Duration `json:"maxAge,omitempty"`
	// KeepEvents is how many events, of at most 512 KiB of JSON, the workflow keeps when it continues
	// as new. Older ones go to the store. Without a store they are lost. Zero means 1000.
	KeepEvents int `json:"keepEvents,omitempty"`
	// MaxOutput is how many bytes of a command's output are stored. Viewers see the rest
	// only while the command runs, and its end says truncated. Zero means no limit.
	MaxOutput int64 `json:"maxOutput,omitempty"`
	// HistoryLimit is the number of events of Temporal's history after which the workflow
	// continues as new. The minimum is 10. Zero leaves that to the server.
	HistoryLimit int `json:"historyLimit,omitempty"`
}

func (p Policy) withDefaults() Policy {
	p.IdleAfter = cmp.Or(p.IdleAfter, 30*time.Minute)
	p.MaxLifetime = cmp.Or(p.MaxLifetime, 5*time.Hour)
	p.RefreshMargin = cmp.Or(p.RefreshMargin, 5*time.Minute)
	p.QueueLimit = cmp.Or(p.QueueLimit, 100)
	p.KeepEvents = cmp.Or(p.KeepEvents, 1000)
	return p
}

// lease returns the lease of a session whose Options have none.
func (p Policy) lease() time.Duration { return p.IdleAfter + 2*time.Minute }

// check refuses invalid input.
func (in input) check() error {
	data, err := json.Marshal(in)
	if err == nil && len(data) > optionsBytes {
		err = fmt.Errorf("%w: the session's options have %d bytes of JSON; the limit is %d", sandbox.ErrInvalid, len(data), optionsBytes)
	}
	return errors.Join(err, in.Policy.check())
}

// minHistory is the minimum HistoryLimit. A history has 3 events before its first decision, so a
// very small limit would start one history after another.
const minHistory = 10

func (p Policy) check() error {
	for name, v := range map[string]int64{
		"IdleAfter": int64(p.IdleAfter), "MaxLifetime": int64(p.MaxLifetime), "RefreshMargin": int64(p.RefreshMargin),
		"QueueLimit": int64(p.QueueLimit), "KeepEvents": int64(p.KeepEvents), "HistoryLimit": int64(p.HistoryLimit),
		"CheckpointCommands": int64(p.CheckpointCommands), "CheckpointEvery": int64(p.CheckpointEvery), "MaxAge": int64(p.MaxAge), "MaxRun": int64(p.MaxRun), "MaxOutput": p.MaxOutput,
	} {
		if v < 0 {
			return fmt.Errorf("%w: Policy.%s is negative", sandbox.ErrInvalid, name)
		}
	}
	if p.HistoryLimit > 0 && p.HistoryLimit < minHistory {
		return fmt.Errorf("%w: Policy.HistoryLimit is %d; the minimum is %d", sandbox.ErrInvalid, p.HistoryLimit, minHistory)
	}
	if p = p.withDefaults(); p.RefreshMargin >= p.MaxLifetime {
		return fmt.Errorf("%w: Policy.RefreshMargin (%v) is not less than MaxLifetime (%v)", sandbox.ErrInvalid, p.RefreshMargin, p.MaxLifetime)
	}
	return nil
}
