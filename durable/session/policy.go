package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox"
)

// Policy says how sessions live. The zero value works.
type Policy struct {
	// IdleAfter is after how long without a command or a touch the machine is
	// stopped. Zero means 30 minutes.
	IdleAfter time.Duration `json:"idleAfter,omitempty"`
	// MaxLifetime is the platform's cap on a machine's time. Between commands the
	// session moves to a new machine RefreshMargin before it. Zero means 5 hours,
	// and a margin of 5 minutes.
	MaxLifetime   time.Duration `json:"maxLifetime,omitempty"`
	RefreshMargin time.Duration `json:"refreshMargin,omitempty"`
	// CheckpointCommands is after how many commands, and CheckpointEvery after how
	// much time with one, the session moves to a new machine although it need not,
	// which saves the files: a machine that crashes loses what was written since.
	// What commands have left running ends. Zero means never, so that files are
	// saved when it hibernates or refreshes.
	CheckpointCommands int           `json:"checkpointCommands,omitempty"`
	CheckpointEvery    time.Duration `json:"checkpointEvery,omitempty"`
	// QueueLimit is how many commands may wait for their turn, and not above
	// 768 KiB of them, as JSON. Zero means 100.
	QueueLimit int `json:"queueLimit,omitempty"`
	// MaxRun is how long a command may run: then it is ended, as by RunOptions.Timeout. A
	// server in the foreground, or tail -f, keeps the queue and the machine otherwise. Zero
	// never ends it.
	MaxRun time.Duration `json:"maxRun,omitempty"`
	// MaxAge is after how much time since its start the session destroys itself,
	// once no command runs and nobody holds it, with its sandbox and its output.
	// Zero means never.
	MaxAge time.Duration `json:"maxAge,omitempty"`
	// KeepEvents is how many events the workflow itself keeps when it continues
	// as new, but not above 256 KiB; older ones go to the store, or are truncated
	// without one. Zero means 1000.
	KeepEvents int `json:"keepEvents,omitempty"`
	// MaxOutput is how many bytes of a command's output are stored. Of one that
	// writes more, viewers see the rest only while it runs, and its end says
	// truncated. Zero stores all.
	MaxOutput int64 `json:"maxOutput,omitempty"`
	// HistoryLimit is after how many events of Temporal's history the workflow
	// continues as new, at least 10. Zero leaves that to the server.
	HistoryLimit int `json:"historyLimit,omitempty"`
}

func (p Policy) withDefaults() Policy {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&p.IdleAfter, 30*time.Minute)
	set(&p.MaxLifetime, 5*time.Hour)
	set(&p.RefreshMargin, 5*time.Minute)
	if p.QueueLimit == 0 {
		p.QueueLimit = 100
	}
	if p.KeepEvents == 0 {
		p.KeepEvents = 1000
	}
	return p
}

// lease is that of a session whose Options have none.
func (p Policy) lease() time.Duration { return p.IdleAfter + 2*time.Minute }

// check refuses what no session can live by.
func (in input) check() error {
	data, err := json.Marshal(in)
	if err == nil && len(data) > optionsBytes {
		err = fmt.Errorf("%w: the options of a session have %d bytes of JSON; at most %d are taken", sandbox.ErrInvalid, len(data), optionsBytes)
	}
	return errors.Join(err, in.Policy.check())
}

// minHistory is the least HistoryLimit. The first decision of a history has 3 events
// before it: with fewer, one history would follow another without end.
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
		return fmt.Errorf("%w: Policy: a HistoryLimit of %d is less than %d", sandbox.ErrInvalid, p.HistoryLimit, minHistory)
	}
	if p = p.withDefaults(); p.RefreshMargin >= p.MaxLifetime {
		return fmt.Errorf("%w: Policy: a RefreshMargin of %v leaves no time of a MaxLifetime of %v", sandbox.ErrInvalid, p.RefreshMargin, p.MaxLifetime)
	}
	return nil
}
