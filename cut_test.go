package sandbox_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
)

// cutter is a transport that breaks the streams of commands at chosen places,
// as the platform's edge and bad networks do. It leaves other answers alone.
type cutter struct {
	next http.RoundTripper
	mu   sync.Mutex
	// plan says what happens to the next streams; those behind its end are
	// whole.
	plan []cut
	// stream is what passed of the last stream of a waited command.
	stream []byte
}

func (c *cutter) client() *http.Client { return &http.Client{Transport: c} }

// lastStream is the length of the last stream of a waited command.
func (c *cutter) lastStream() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(len(c.stream))
}

// firstRecord is the length of its first record.
func (c *cutter) firstRecord() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(bytes.IndexByte(c.stream, '\n') + 1)
}

// cut is what happens to one stream.
type cut struct {
	after  int64 // bytes that pass before
	how    error // what reading gives then; io.EOF is a clean end
	status int   // instead of a stream: an answer with this status
}

var (
	errReset   = &netError{syscall.ECONNRESET}
	errTimeout = &netError{errors.New("i/o timeout")}
	ways       = []error{errReset, io.ErrUnexpectedEOF, io.EOF, errTimeout}
)

type netError struct{ error }

func (c *cutter) RoundTrip(req *http.Request) (*http.Response, error) {
	logs := strings.HasSuffix(req.URL.Path, "/logs")
	if !logs && !(req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/cmd")) {
		return c.next.RoundTrip(req)
	}
	// Only what answers a stream can be cut: the detached form has another
	// content type, which shows in its body.
	if !logs {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(body)
		if err != nil || !bytes.Contains(text, []byte(`"wait":true`)) {
			return c.next.RoundTrip(req)
		}
	}
	c.mu.Lock()
	var now *cut
	// A refusal before the command is known would not be a cut.
	if len(c.plan) > 0 && (c.plan[0].status == 0 || logs) {
		now, c.plan = &c.plan[0], c.plan[1:]
	}
	if !logs && now == nil {
		c.stream = nil
	}
	c.mu.Unlock()
	if now != nil && now.status != 0 {
		return &http.Response{
			StatusCode: now.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("bad gateway")), Request: req,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}, nil
	}
	resp, err := c.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	if now == nil {
		if !logs {
			resp.Body = &recordedBody{resp.Body, c}
		}
		return resp, nil
	}
	resp.Body = &cutBody{ReadCloser: resp.Body, left: now.after, how: now.how}
	return resp, nil
}

// cutBody lets so many bytes pass and then breaks.
type cutBody struct {
	io.ReadCloser
	left int64
	how  error
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, b.how
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// recordedBody remembers what passes.
type recordedBody struct {
	io.ReadCloser
	cutter *cutter
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.cutter.mu.Lock()
	defer b.cutter.mu.Unlock()
	b.cutter.stream = append(b.cutter.stream, p[:n]...)
	return n, err
}

// set replaces the plan.
func (c *cutter) set(plan ...cut) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan = plan
}

// randomPlan makes several cuts of a stream of about size bytes.
func randomPlan(rng *rand.Rand, from, size int64) []cut {
	plan := []cut{{after: from + rng.Int64N(size), how: ways[rng.IntN(len(ways))]}}
	for range rng.IntN(4) {
		if rng.IntN(4) == 0 {
			plan = append(plan, cut{status: []int{500, 502, 503, 504}[rng.IntN(4)]})
			continue
		}
		plan = append(plan, cut{after: rng.Int64N(size), how: ways[rng.IntN(len(ways))]})
	}
	return plan
}
