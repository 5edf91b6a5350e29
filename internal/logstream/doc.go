// Package logstream reads a command's output and repairs the stream when it
// breaks: the log is replayed from its start, and of each stream the bytes that
// were delivered before are skipped.
//
// A stream is whole only when that is known. The stream of a command that is
// waited for says so itself, by its last record. A log that merely ends may have
// been cut, so its end is confirmed: by a replay that began after the command's
// end and stops at the same place, or by the length that the answer announced.
// Neither silence nor a refusal counts as an end.
package logstream

import (
	"context"
	"io"
	"net/url"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

// MediaType is that of a stream of records.
const MediaType = "application/x-ndjson"

const (
	// maxPause is the longest pause between two attempts.
	maxPause = 10 * time.Second
	// longLived is how long a connection must have carried a request for its
	// break to count as the platform's cut rather than as a failure to reach it.
	// The time that it took to get a connection is no part of that.
	longLived = 30 * time.Second
	// endGrace is how long the end of a command is waited for when its log ended.
	endGrace = 2 * time.Second
	// lookPatience is the least time for which LookNow waits for an end.
	lookPatience = 250 * time.Millisecond
	// drainTime is how long the end of a stream is waited for behind its last
	// record.
	drainTime = 250 * time.Millisecond
	// silence is how long a stream may bring nothing before the command is
	// looked at; it doubles up to maxSilence while the command runs on.
	silence    = 10 * time.Second
	maxSilence = time.Minute
	// maxRefusals is how often in a row an answer that is no success ends a
	// repair when it does not say that the command is gone: proxies answer all
	// kinds of things.
	maxRefusals = 3
)

// Limits are those of a repair.
type Limits struct {
	Attempts int           // how often in a row without any progress
	Limit    time.Duration // how long without any progress
	Wait     time.Duration // before the second attempt in a row; doubles
}

// Command says which command's output is meant, and how it is reached.
type Command struct {
	Client      *api.Client
	Session, ID string
	Limits      Limits
}

// Look asks for the command's state; with wait, for its end. The service tells
// of an end only to those who wait.
func (c *Command) Look(ctx context.Context, wait bool) (*wire.Command, error) {
	req := &api.Request{Op: api.GetCommand, Path: []string{c.Session, c.ID}}
	if wait {
		req.Query = url.Values{"wait": {"true"}}
	}
	var answer wire.CommandAnswer
	if err := c.Client.Do(ctx, req, &answer); err != nil {
		return nil, err
	}
	if answer.Command.ID == "" {
		return nil, api.NoAnswer(req, errNoCommand)
	}
	return &answer.Command, nil
}

// LookNow asks for the command's state, and for its end if that lies behind it:
// by a wait that is given up soon, as long as the first look took twice.
func (c *Command) LookNow(ctx context.Context) (*wire.Command, error) {
	start := time.Now()
	cmd, err := c.Look(ctx, false)
	if err != nil || cmd.ExitCode != nil {
		return cmd, err
	}
	limited, cancel := context.WithTimeout(ctx, min(max(2*time.Since(start), lookPatience), endGrace))
	defer cancel()
	if ended, err := c.Look(limited, true); err == nil && ended.ExitCode != nil {
		return ended, nil
	}
	return cmd, nil
}

func (c *Command) open(ctx context.Context) (body io.ReadCloser, length int64, err error) {
	resp, err := c.Client.Stream(ctx, &api.Request{Op: api.CommandLogs, Path: []string{c.Session, c.ID}, Accept: MediaType})
	if err != nil {
		return nil, -1, err
	}
	return resp.Body, resp.ContentLength, nil
}
