package sandbox

import (
	"cmp"
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
	"github.com/go-vercel/sandbox/internal/edge"
)

// WaitForPortOptions are the options of [Sandbox.WaitForPort]. The zero value
// waits for any response of the port's server.
type WaitForPortOptions struct {
	// Path is the path to request, which may include a query. Empty means "/".
	Path string
	// Status is the status to wait for. Zero means any except 502, 503 and 504,
	// with which the platform's edge reports that nothing listens yet.
	Status int
	// HTTPClient makes the requests, which carry none of this package's
	// credentials. Nil means a client that does not follow redirects. An attempt
	// takes at most its Timeout, or ten seconds.
	HTTPClient *http.Client
}

func (o *WaitForPortOptions) withDefaults() (WaitForPortOptions, error) {
	w := orZero(o)
	if w.Status != 0 && (w.Status < 100 || w.Status > 999) {
		return w, invalid("Status", "%d is not an HTTP status", w.Status)
	}
	w.Path = cmp.Or(w.Path, "/")
	if !strings.HasPrefix(w.Path, "/") {
		return w, invalid("Path", "%q does not begin with /", w.Path)
	}
	if w.HTTPClient == nil {
		w.HTTPClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		if standard, ok := http.DefaultTransport.(*http.Transport); ok {
			limited := standard.Clone()
			limited.MaxResponseHeaderBytes = api.MaxHeader
			w.HTTPClient.Transport = limited
		}
	}
	return w, nil
}

// portPause is the pause after the first attempt to reach a port; it doubles up
// to maxPortPause.
const portPause, maxPortPause = 100 * time.Millisecond, 2 * time.Second

// attemptLimit limits an attempt if the HTTPClient has no timeout.
const attemptLimit = 10 * time.Second

// sessionCheck is how often a wait for a port checks that the session is still running.
const sessionCheck = 10 * time.Second

// WaitForPort waits until the server at an exposed port responds, and
// returns the port's public address like [Sandbox.URL]. A nil opts waits for
// any response. If the port is not exposed, the error matches [ErrNoRoute]. If
// ctx ends, the error wraps the context's and includes why the last attempt
// failed; without a deadline, WaitForPort waits for as long as the session
// runs.
//
// It sends its requests to the server, and one to the API every ten seconds to check that
// the session still runs. A stopped sandbox is not resumed, since its servers would not be
// running: the error matches [ErrStopped].
func (s *Sandbox) WaitForPort(ctx context.Context, port int, opts *WaitForPortOptions) (string, error) {
	if _, err := enter(ctx, s); err != nil {
		return "", err
	}
	o, err := opts.withDefaults()
	if err != nil {
		return "", err
	}
	if err := checkPort("port", port); err != nil {
		return "", err
	}
	address, err := s.URL(port)
	if err != nil {
		return "", err
	}
	target, err := url.Parse(strings.TrimSuffix(address, "/") + o.Path)
	if err != nil {
		return "", invalid("Path", "%q is not a path of a URL", o.Path)
	}
	pauseFor := portPause
	checked := time.Now()
	var reason error
	for {
		err := o.attempt(ctx, target.String())
		if err == nil {
			return address, nil
		}
		// Keep the previous error: one caused by the end of ctx is less informative.
		if reason == nil || ctx.Err() == nil {
			reason = err
		}
		e, refused := errors.AsType[*edge.Error](err)
		if ctx.Err() == nil && (refused && e.Code != edge.NotListening || time.Since(checked) >= sessionCheck) {
			checked = time.Now()
			if err := s.checkRunning(ctx); err != nil {
				return "", fmt.Errorf("sandbox: waiting for port %d: %w; the last attempt: %w", port, err, reason)
			}
		}
		if err := api.Pause(ctx, pauseFor); err != nil {
			return "", fmt.Errorf("sandbox: waiting for port %d: %w; the last attempt: %w", port, err, reason)
		}
		pauseFor = min(2*pauseFor, maxPortPause)
	}
}

// attempt makes one request and returns nil if it received the wanted response.
func (o *WaitForPortOptions) attempt(ctx context.Context, address string) error {
	limit := o.HTTPClient.Timeout
	if limit <= 0 {
		limit = attemptLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no response within %v", limit))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Close = true // the next attempt may reach another server
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
	// The start of the body distinguishes an error of the edge from one of the server.
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
	if said := edge.Said(resp, string(text), ErrStopped); said != nil {
		return said
	}
	switch {
	case o.Status != 0 && resp.StatusCode == o.Status:
		return nil
	case o.Status != 0:
		return fmt.Errorf("status %d instead of %d%s", resp.StatusCode, o.Status, excerpt(text))
	case slices.Contains(gatewayStatuses, resp.StatusCode):
		return fmt.Errorf("status %d%s", resp.StatusCode, excerpt(text))
	}
	return nil
}

// gatewayStatuses are statuses with which something in front of a server reports that the
// server is not available: proxies, and the platform's edge for a session that has ended
// (410) or is ending (422). If a server itself responds with one of them, set
// [WaitForPortOptions].Status.
var gatewayStatuses = []int{
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusGone, http.StatusUnprocessableEntity,
}

// notRunningError matches ErrStopped.
type notRunningError struct {
	id     string
	status Status
}

func (e notRunningError) Error() string        { return fmt.Sprintf("session %s is %s", e.id, e.status) }
func (e notRunningError) Is(target error) bool { return target == ErrStopped }

// checkRunning returns an error if the API says that the current session has ended, is
// ending, or does not exist. It ignores other failures.
func (s *Sandbox) checkRunning(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sessionCheck/2)
	defer cancel()
	cur := s.CurrentSession()
	if cur == nil {
		return nil
	}
	if err := cur.Refresh(ctx); errors.Is(err, ErrNotFound) {
		return err
	} else if err != nil {
		return nil
	}
	switch status := cur.status(); status {
	case StatusStopping, StatusSnapshotting, StatusStopped, StatusFailed, StatusAborted:
		return notRunningError{cur.ID(), status}
	}
	return nil
}

// maxWaitLine limits how much of a line WaitForLog examines.
const maxWaitLine = 64 << 10

// WaitForLog waits for a line of the command's output that matches pattern and
// returns it, without the newline. It reads the output from its start, so that
// nothing is missed however late it is called. Standard output and standard
// error are split into lines separately. Only the first 64 KiB of a line are
// examined.
//
// If the command ends without such a line, the error includes its exit code and
// last line. If ctx ends, the error wraps the context's. The command continues
// in either case.
func (c *Command) WaitForLog(ctx context.Context, pattern *regexp.Regexp) (string, error) {
	if _, err := enter(ctx, c); err != nil {
		return "", err
	}
	if pattern == nil {
		return "", invalid("pattern", "is nil")
	}
	return c.waitForLog(ctx, pattern)
}

// waitForLog is WaitForLog. Without a pattern it waits until the command ends, and then
// returns an error that shows how it ended.
func (c *Command) waitForLog(ctx context.Context, pattern *regexp.Regexp) (string, error) {
	awaited, missed := "the end", ""
	if pattern != nil {
		awaited = fmt.Sprintf("a line that matches %q", pattern)
		missed = " without " + awaited
	}
	var last string
	for line, err := range c.lines(ctx, maxWaitLine) {
		if err != nil {
			return "", fmt.Errorf("sandbox: waiting for %s: %w%s", awaited, err, lastLine(last))
		}
		if pattern != nil && pattern.MatchString(line.Data) {
			return line.Data, nil
		}
		last = cmp.Or(line.Data, last)
	}
	how := "has ended"
	if done, err := c.Wait(ctx); err == nil {
		how = fmt.Sprintf("ended with exit code %d", done.ExitCode)
	}
	return "", fmt.Errorf("sandbox: command %s %s%s%s", c.ID(), how, missed, lastLine(last))
}

func lastLine(line string) string {
	if line == "" {
		return "; it wrote nothing"
	}
	return "; the last line was" + excerpt([]byte(line))
}
