package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/redact"
)

// WaitForPortOptions says what [Sandbox.WaitForPort] waits for. The zero value waits
// for any answer of the server behind the port.
type WaitForPortOptions struct {
	// Path is what is asked for; empty means "/". It may have a query.
	Path string
	// Status is the status that is waited for. Zero means any, save 502, 503
	// and 504, with which the platform's edge says that nothing listens yet.
	Status int
	// Interval is the pause after the first attempt; it doubles up to
	// MaxInterval. Zero means 100 ms and two seconds.
	Interval, MaxInterval time.Duration
	// AttemptTimeout limits one attempt. Zero means ten seconds.
	AttemptTimeout time.Duration
	// HTTPClient makes the requests, which carry no credentials of this
	// package. Nil means one that follows no redirects.
	HTTPClient *http.Client
}

func (o *WaitForPortOptions) withDefaults() (WaitForPortOptions, error) {
	var w WaitForPortOptions
	if o != nil {
		w = *o
	}
	if err := errors.Join(
		checkDuration("Interval", w.Interval), checkDuration("MaxInterval", w.MaxInterval), checkDuration("AttemptTimeout", w.AttemptTimeout),
	); err != nil {
		return w, err
	}
	if w.Status != 0 && (w.Status < 100 || w.Status > 999) {
		return w, invalid("Status", "%d is no HTTP status", w.Status)
	}
	if w.Path == "" {
		w.Path = "/"
	}
	if !strings.HasPrefix(w.Path, "/") {
		return w, invalid("Path", "%q does not begin with /", w.Path)
	}
	if w.Interval == 0 {
		w.Interval = 100 * time.Millisecond
	}
	if w.MaxInterval == 0 {
		w.MaxInterval = 2 * time.Second
	}
	if w.AttemptTimeout == 0 {
		w.AttemptTimeout = 10 * time.Second
	}
	if w.HTTPClient == nil {
		w.HTTPClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return w, nil
}

// sessionCheck is how often a wait for a port asks whether the session still
// runs.
const sessionCheck = 10 * time.Second

// WaitForPort waits until the server behind an exposed port answers, and returns
// the port's public address, as [Sandbox.Domain] does. A nil opts waits for any
// answer. A port that is not exposed is a [*NoRouteError] at once. When ctx
// ends, the error unwraps to the context's and says why the last attempt failed;
// without a deadline in ctx the wait goes on for as long as the session runs.
//
// A sandbox that is stopped is not resumed, since its servers would not be
// running: the error matches [ErrStopped].
func (s *Sandbox) WaitForPort(ctx context.Context, port int, opts *WaitForPortOptions) (string, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return "", err
	}
	if err := checkPort("port", port); err != nil {
		return "", err
	}
	if _, err := s.client(); err != nil {
		return "", err
	}
	address, err := s.Domain(port)
	if err != nil {
		return "", err
	}
	target, err := url.Parse(strings.TrimSuffix(address, "/") + o.Path)
	if err != nil {
		return "", invalid("Path", "%q can't be asked for", o.Path)
	}
	pauseFor := o.Interval
	checked := time.Now()
	var reason error
	for {
		err := o.attempt(ctx, target.String())
		if err == nil {
			return address, nil
		}
		// An attempt that the end of ctx cut short says less than the one before.
		if reason == nil || ctx.Err() == nil {
			reason = err
		}
		_, edge := errors.AsType[edgeError](err)
		if ctx.Err() == nil && (edge || time.Since(checked) >= sessionCheck) {
			checked = time.Now()
			if err := s.stillRuns(ctx); err != nil {
				return "", fmt.Errorf("sandbox: waiting for port %d: %w; the last attempt: %w", port, err, reason)
			}
		}
		timer := time.NewTimer(pauseFor)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return "", fmt.Errorf("sandbox: waiting for port %d: %w; the last attempt: %w", port, api.ContextError(ctx), reason)
		}
		pauseFor = min(2*pauseFor, o.MaxInterval)
	}
}

// attempt makes one request and returns nil if it had the wanted answer.
func (o *WaitForPortOptions) attempt(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.AttemptTimeout, fmt.Errorf("no answer within %v", o.AttemptTimeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Close = true // the next attempt may have another server to talk to
	resp, err := o.HTTPClient.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return err
	}
	defer resp.Body.Close()
	// The first bytes tell the edge's error from one of the server.
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
	if code := edgeCode(resp, string(text)); code != "" {
		return edgeError{resp.StatusCode, code}
	}
	switch {
	case o.Status != 0 && resp.StatusCode == o.Status:
		return nil
	case o.Status != 0:
		return fmt.Errorf("status %d instead of %d%s", resp.StatusCode, o.Status, excerpt(text))
	case slices.Contains(notTheServers, resp.StatusCode):
		return fmt.Errorf("status %d%s", resp.StatusCode, excerpt(text))
	}
	return nil
}

// notTheServers are statuses by which whatever stands before a server says that
// it is not there: proxies, and the platform's edge for a session that is over
// (410) or on its way out (422). A server that answers with one of them by itself
// is waited for by [WaitForPortOptions].Status.
var notTheServers = []int{
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusGone, http.StatusUnprocessableEntity,
}

// edgeError is an answer that the platform's edge gives in the place of a server.
type edgeError struct {
	status int
	code   string
}

func (e edgeError) Error() string {
	return fmt.Sprintf("status %d of the platform: %s", e.status, e.code)
}

// edgeCodes are the documented reasons of such answers but the usual one, that
// nothing listens yet.
var edgeCodes = []string{"SANDBOX_STOPPED", "SANDBOX_STOPPING", "SANDBOX_SNAPSHOTTING", "SANDBOX_NOT_FOUND"}

// edgeCode returns the edge's reason for an answer, from its header or its page,
// and "" for an answer of a server. Only statuses that the edge gives are looked
// at: a server's page may speak of anything.
func edgeCode(resp *http.Response, text string) string {
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity:
	default:
		return ""
	}
	for _, code := range edgeCodes {
		if resp.Header.Get("X-Vercel-Error") == code || strings.Contains(text, code) {
			return code
		}
	}
	return ""
}

func excerpt(text []byte) string {
	s := strings.ToValidUTF8(strings.Join(strings.Fields(string(text)), " "), "")
	if s == "" {
		return ""
	}
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return ": " + redact.Printable(s)
}

// notRunningError matches ErrStopped.
type notRunningError struct {
	id     string
	status Status
}

func (e notRunningError) Error() string        { return fmt.Sprintf("session %s is %s", e.id, e.status) }
func (e notRunningError) Is(target error) bool { return target == ErrStopped }

// stillRuns asks the API whether the current session runs or is about to. A
// failure to ask is not an answer.
func (s *Sandbox) stillRuns(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sessionCheck/2)
	defer cancel()
	cur := s.CurrentSession()
	if cur == nil || cur.Refresh(ctx) != nil {
		return nil
	}
	switch status := cur.Status(); status {
	case StatusStopping, StatusSnapshotting, StatusStopped, StatusFailed, StatusAborted:
		return notRunningError{cur.ID(), status}
	}
	return nil
}

// maxWaitLine is how much of a line is looked at by WaitForLog.
const maxWaitLine = 64 << 10

// WaitForLog waits for a line of the command's output that matches a pattern and
// returns it, without the newline. It begins with the output's first line, so
// that nothing is missed however late it is called. Standard output and standard
// error are looked at as lines of their own. Of a line that is longer than
// 64 KiB only the beginning is looked at.
//
// When the command ends without such a line the error says so, with its exit
// code and the last line. When ctx ends the error unwraps to the context's. The
// command goes on in any case.
func (c *Command) WaitForLog(ctx context.Context, pattern *regexp.Regexp) (string, error) {
	if pattern == nil {
		return "", invalid("pattern", "is nil")
	}
	lines := map[LogStream]*strings.Builder{}
	var last string
	matches := func(b *strings.Builder) (string, bool) {
		line := strings.TrimSuffix(b.String(), "\r")
		b.Reset()
		if line != "" {
			last = line
		}
		return line, pattern.MatchString(line)
	}
	for piece, err := range c.Logs(ctx) {
		if err != nil {
			return "", fmt.Errorf("sandbox: waiting for a line that matches %q: %w%s", pattern, err, lastLine(last))
		}
		b := lines[piece.Stream]
		if b == nil {
			b = &strings.Builder{}
			lines[piece.Stream] = b
		}
		for rest := piece.Data; rest != ""; {
			text, after, ended := strings.Cut(rest, "\n")
			b.WriteString(text[:min(len(text), max(0, maxWaitLine-b.Len()))])
			rest = after
			if !ended {
				break
			}
			if line, ok := matches(b); ok {
				return line, nil
			}
		}
	}
	for _, b := range lines {
		if b.Len() == 0 {
			continue
		}
		if line, ok := matches(b); ok {
			return line, nil
		}
	}
	how := "has ended"
	if done, err := c.Wait(ctx); err == nil {
		how = fmt.Sprintf("ended with exit code %d", done.ExitCode)
	}
	return "", fmt.Errorf("sandbox: command %s %s without a line that matches %q%s", c.ID(), how, pattern, lastLine(last))
}

func lastLine(line string) string {
	if line == "" {
		return "; it wrote nothing"
	}
	return "; the last line was" + excerpt([]byte(line))
}
