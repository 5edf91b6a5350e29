package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// framing is a way to mark the end of a response, and to break it off.
type framing struct {
	name string
	// text returns a whole response, which the test then cuts.
	text func(status int, kind, body string) string
}

func line(status int, kind string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: %s\r\n", status, http.StatusText(status), kind)
}

var framings = []framing{
	{name: "with its length", text: func(status int, kind, body string) string {
		return line(status, kind) + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}},
	{name: "in chunks", text: func(status int, kind, body string) string {
		half := len(body) / 2
		return line(status, kind) + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", half, body[:half], len(body)-half, body[half:])
	}},
	{name: "until the connection closes", text: func(status int, kind, body string) string {
		return line(status, kind) + "\r\n" + body
	}},
}

// cutCase is a response to the first request of an operation.
type cutCase struct {
	status int
	kind   string
	body   string
}

// cutCases returns a success and two refusals. The first half of each response means
// something else than the whole.
func cutCases(op *Op) []cutCase {
	kind := "application/json"
	if op.Stream() {
		kind = op.Success
	}
	return []cutCase{
		{200, kind, success(op)},
		{404, "application/json", `{"error":{"code":"not_found","message":""}}`},
		{410, "application/json", `{"error":{"code":"gone","message":""}}`},
	}
}

// judgeCut checks the result of an operation whose first response was cut: a safe
// operation is retried, and the outcome of others is unknown. read reports whether
// everything that the operation reads has arrived.
func judgeCut(t *testing.T, op *Op, what string, read bool, c cutCase, sent int64, err error) {
	t.Helper()
	fail, _ := errors.AsType[*Failure](err)
	switch {
	case read && c.status == 200:
		assert.NoError(t, err, what)
		assert.EqualValues(t, 1, sent, what)
	case read:
		require.NotNil(t, fail, what)
		assert.Equal(t, c.status, fail.Status, what)
		assert.False(t, fail.OutcomeUnknown(), what)
	case op.Class == Safe:
		assert.NoError(t, err, what)
		assert.EqualValues(t, 2, sent, what)
	default:
		require.NotNil(t, fail, "%s: %v", what, err)
		assert.True(t, fail.OutcomeUnknown(), what)
		assert.False(t, fail.Refused(), what)
		assert.EqualValues(t, 1, sent, what)
	}
}

// call performs an operation.
func (c *Client) call(ctx context.Context, op *Op) error {
	req := &Request{Op: op, Path: values(op)}
	if op.Method == http.MethodPost {
		req.Body = struct{}{}
	}
	if !op.Stream() {
		return c.Do(ctx, req, nil)
	}
	resp, err := c.Stream(ctx, req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// stride returns the number of bytes between two cuts. By default each cut is tried for only
// some operations.
func stride() int {
	if !needs.Slow() {
		return 5
	}
	return 1
}

// TestEveryCut cuts the response to every operation at every byte of the header and the body,
// with every framing. Tests of other packages cut the bodies of streams.
func TestEveryCut(t *testing.T) {
	cuts := 0
	for i, op := range Table {
		synctest.Test(t, func(t *testing.T) {
			for _, f := range framings {
				for n, c := range cutCases(op) {
					text := f.text(c.status, c.kind, c.body)
					from, head := 0, strings.Index(text, "\r\n\r\n")+4
					if n > 0 { // cut the header of one case only: all headers are alike
						from = head
					}
					for at := from + i%stride(); at <= len(text); at += stride() {
						whole := at == len(text) || op.Stream() && c.status == 200 && at >= head
						sent, err := cutOnce(t, op, text[:at], f.text(200, cutCases(op)[0].kind, success(op)))
						judgeCut(t, op, fmt.Sprintf("%s %s, %d %s, cut at %d of %d", op.Name, op.Path, c.status, f.name, at, len(text)), whole, c, sent, err)
						cuts++
					}
				}
			}
		})
	}
	t.Logf("%d cuts", cuts)
}

// cutOnce performs an operation. The first response is first, later ones are next.
func cutOnce(t *testing.T, op *Op, first, next string) (sent int64, err error) {
	var count atomic.Int64
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			req, err := http.ReadRequest(bufio.NewReaderSize(server, 512))
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			text := first
			if count.Add(1) > 1 {
				text = next
			}
			_, _ = io.WriteString(server, text)
		}()
		return client, nil
	}}
	err = testClient(transport).call(t.Context(), op)
	return count.Load(), err
}

// http2Head returns the header of a response, with fields of HPACK's static table.
func http2Head(stream uint32, status int, kind string) []byte {
	text := fmt.Sprint(status)
	head := append([]byte{0x08, byte(len(text))}, text...)
	head = append(append(head, 0x0f, 0x10, byte(len(kind))), kind...)
	return frame(frameHeaders, endHeaders, stream, head...)
}

// TestEveryCutHTTP2 is TestEveryCut over HTTP/2: the stream is reset or ends, or the
// connection ends, at every byte of the body.
func TestEveryCutHTTP2(t *testing.T) {
	const (
		resets = iota
		ends
		closes
		ways
	)
	cuts := 0
	for i, op := range Table {
		synctest.Test(t, func(t *testing.T) {
			var c cutCase
			var at, way int
			var first bool
			srv := &http2Server{respond: func(_ int64, stream uint32) ([]byte, bool) {
				if !first {
					whole := cutCases(op)[0]
					return append(http2Head(stream, 200, whole.kind), frame(frameData, endStream, stream, []byte(whole.body)...)...), false
				}
				first = false
				head := append(http2Head(stream, c.status, c.kind), frame(frameData, 0, stream, []byte(c.body[:at])...)...)
				switch way {
				case resets:
					return append(head, reset(stream, 2)...), false
				case ends:
					return append(head, frame(frameData, endStream, stream)...), false
				}
				return head, true
			}}
			client := srv.client(t)
			for _, c = range cutCases(op) {
				for way = range ways {
					for at = i % stride(); at <= len(c.body); at += stride() {
						first = true
						before := srv.requests.Load()
						err := client.call(t.Context(), op)
						whole := at == len(c.body) && way == ends || op.Stream() && c.status == 200
						judgeCut(t, op, fmt.Sprintf("%s %s, %d, way %d, cut at %d of %d", op.Name, op.Path, c.status, way, at, len(c.body)), whole, c, srv.requests.Load()-before, err)
						cuts++
						synctest.Wait() // for the connection's end
					}
				}
			}
		})
	}
	t.Logf("%d cuts", cuts)
}
