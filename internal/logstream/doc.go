// Package logstream reads a command's output and resumes the stream when it breaks: it
// replays the log from its start and skips the bytes of stdout and stderr that were already
// delivered.
//
// A stream is complete only if that is certain. The stream of a waited command ends with a
// record that says so. A log that just ends may have been cut. Its end is confirmed by a
// replay that starts after the command's end and stops at the same position. Neither silence
// nor a refusal counts as an end.
package logstream

import (
	"context"
	"io"
	"net/url"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

const (
	// maxPause is the longest pause between two attempts.
	maxPause = 10 * time.Second
	// longLived is how long a request must have been connected for its break to count as
	// a cut by the platform and not as a failure to connect.
	longLived = 30 * time.Second
	// endGrace is how long to wait for the end of a command after its log has ended.
	endGrace = 2 * time.Second
	// minLookWait is the minimum time that LookNow waits for the command's end.
	minLookWait = 250 * time.Millisecond
	// drainTime is how long to wait for the end of a stream after its last
	// record.
	drainTime = 250 * time.Millisecond
	// silence is how long a stream may be silent before the command is looked up. It
	// doubles up to maxSilence while the command runs.
	silence    = 10 * time.Second
	maxSilence = time.Minute
	// maxRefusals limits consecutive error responses that do not say that the command is
	// gone. A single one may come from a proxy.
	maxRefusals = 3
)

// Limits are the limits of a repair.
type Limits struct {
	Attempts int           // attempts in a row without progress
	Limit    time.Duration // time without progress
	Wait     time.Duration // before the second attempt in a row; doubles
}

// Command identifies a command and how to reach it.
type Command struct {
	Client      *api.Client
	Session, ID string
	Limits      Limits
}

// Look returns the command's state. If wait is set, it waits for the command to end: the
// service reports the end only to requests that wait.
func (c *Command) Look(ctx context.Context, wait bool) (*wire.Command, error) {
	req := &api.Request{Op: api.GetCommand, Path: []string{c.Session, c.ID}}
	if wait {
		req.Query = url.Values{"wait": {"true"}}
	}
	var response wire.CommandResponse
	if err := c.Client.Do(ctx, req, &response); err != nil {
		return nil, err
	}
	return &response.Command, nil
}

// LookNow returns the command's state, including its end if it has ended. It waits for the
// end for twice the duration of the first request.
func (c *Command) LookNow(ctx context.Context) (*wire.Command, error) {
	start := time.Now()
	cmd, err := c.Look(ctx, false)
	if err != nil || cmd.ExitCode != nil {
		return cmd, err
	}
	limited, cancel := context.WithTimeout(ctx, min(max(2*time.Since(start), minLookWait), endGrace))
	defer cancel()
	if ended, err := c.Look(limited, true); err == nil && ended.ExitCode != nil {
		return ended, nil
	}
	return cmd, nil
}

func (c *Command) open(ctx context.Context) (io.ReadCloser, error) {
	resp, err := c.Client.Stream(ctx, &api.Request{Op: api.CommandLogs, Path: []string{c.Session, c.ID}})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
