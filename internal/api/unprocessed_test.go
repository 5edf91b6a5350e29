package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
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
)

// Frames of HTTP/2, as in RFC 9113, section 6.
const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway = 0, 1, 3, 4, 7

	endStream, endHeaders, ack = 0x1, 0x4, 0x1

	codeProtocol, codeRefused, codeMax = 1, 7, 13
)

// frame returns a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload ...byte) []byte {
	head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(head, stream), payload...)
}

// http2Server is an HTTP/2 server that sends any frames, unlike net/http's.
type http2Server struct {
	requests atomic.Int64
	// respond returns the frames to send after request n, from 1, and whether to close the
	// connection.
	respond func(n int64, stream uint32) (frames []byte, closes bool)
}

// serve reads the requests of a connection, one at a time.
func (s *http2Server) serve(conn net.Conn) {
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	// The client may be writing too, and a pipe has no buffer.
	out := make(chan []byte, 16)
	defer close(out)
	go func() {
		for data := range out {
			if _, err := conn.Write(data); data == nil || err != nil {
				conn.Close()
			}
		}
	}()
	const maxConcurrentStreams = 3
	settings := frame(frameSettings, 0, 0, 0, maxConcurrentStreams, 0, 0, 0, 1)
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		switch {
		case kind == frameSettings && flags&ack == 0:
			out <- append(settings, frame(frameSettings, ack, 0)...)
		case (kind == frameHeaders || kind == frameData) && flags&endStream != 0:
			frames, closes := s.respond(s.requests.Add(1), stream)
			out <- frames
			if closes {
				out <- nil
			}
		}
	}
}

// client returns a client of the server, over unencrypted HTTP/2 in memory.
func (s *http2Server) client(t *testing.T) *Client {
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		t.Cleanup(func() { client.Close() })
		go s.serve(server)
		return client, nil
	}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return testClient(transport)
}

// ok is a success without a body.
func ok(stream uint32) []byte {
	const status204 = 0x89 // of HPACK's static table
	return frame(frameHeaders, endHeaders|endStream, stream, status204)
}

// goAway returns a GOAWAY frame after which streams above last are not processed.
func goAway(last uint32, why string) []byte {
	return frame(frameGoAway, 0, 0, append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), 0), why...)...)
}

func reset(stream uint32, code byte) []byte { return frame(frameReset, 0, stream, 0, 0, 0, code) }

// TestUnprocessed: a request that the server reports as not processed is resent, whatever the
// operation, and its outcome is not unknown.
func TestUnprocessed(t *testing.T) {
	t.Run("refused stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, op := range []*Op{KillCommand, SignalCommand, MakeDir} {
				srv := &http2Server{respond: func(n int64, stream uint32) ([]byte, bool) {
					if n <= maxUnprocessed {
						return reset(stream, codeRefused), false
					}
					return ok(stream), false
				}}
				require.NoError(t, srv.client(t).Do(t.Context(), &Request{Op: op, Path: values(op), Body: struct{}{}}, nil), op.Name)
				assert.EqualValues(t, maxUnprocessed+1, srv.requests.Load(), op.Name)
			}
		})
	})
	t.Run("connections that close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, op := range []*Op{KillCommand, SignalCommand, MakeDir} {
				// net/http limits its resends only while its pool has another
				// connection, so the pool is filled first. Each connection carries one
				// request; all but the last close when they get a second one.
				const pool = maxUnprocessed + 1
				release := make(chan struct{})
				srv := &http2Server{respond: func(n int64, stream uint32) ([]byte, bool) {
					if n <= pool {
						<-release
					} else if n < 2*pool {
						return goAway(stream-2, ""), false
					}
					return ok(stream), false
				}}
				c := srv.client(t)
				setMaxWait(c, -1) // all must be in flight before the first response
				results := make(chan error, pool)
				for range pool {
					go func() { results <- c.Do(t.Context(), &Request{Op: KillCommand, Path: values(KillCommand)}, nil) }()
					synctest.Wait()
				}
				close(release)
				for range pool {
					require.NoError(t, <-results)
				}
				require.NoError(t, c.Do(t.Context(), &Request{Op: op, Path: values(op), Body: struct{}{}}, nil), op.Name)
				assert.EqualValues(t, 2*pool, srv.requests.Load(), op.Name)
			}
		})
	})
	t.Run("never", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, op := range []*Op{StartCommand, KillCommand} { // net/http itself resends KillCommand
				srv := &http2Server{respond: func(_ int64, stream uint32) ([]byte, bool) { return reset(stream, codeRefused), false }}
				err := srv.client(t).Do(t.Context(), &Request{Op: op, Path: values(op), Body: struct{}{}}, nil)
				f, ok := errors.AsType[*Failure](err)
				require.True(t, ok, "%v", err)
				assert.False(t, f.OutcomeUnknown())
				assert.EqualValues(t, 3*maxUnprocessed, srv.requests.Load(), op.Name)
			}
		})
	})
}

// TestPerhapsProcessed: no other end of a stream or connection means that the request was not
// processed.
func TestPerhapsProcessed(t *testing.T) {
	cases := map[string]func(int64, uint32) ([]byte, bool){
		"a connection that processes it":   func(_ int64, stream uint32) ([]byte, bool) { return goAway(stream, ""), true },
		"a connection that quotes another": func(_ int64, stream uint32) ([]byte, bool) { return goAway(stream, gotGoAway), true },
		"a page that asks for another connection": func(_ int64, stream uint32) ([]byte, bool) {
			return frame(frameHeaders, endHeaders|endStream, stream, 0x08, 3, '4', '2', '1'), false
		},
		"a refusal behind a response": func(_ int64, stream uint32) ([]byte, bool) {
			begun := bytes.Clone(ok(stream))
			begun[4] = endHeaders
			return append(begun, reset(stream, codeRefused)...), false
		},
	}
	for code := byte(0); code <= codeMax; code++ {
		if code != codeRefused {
			cases[fmt.Sprintf("a reset with code %d", code)] = func(_ int64, stream uint32) ([]byte, bool) { return reset(stream, code), false }
		}
	}
	for name, respond := range cases {
		for _, req := range []*Request{
			{Op: CreateSnapshot, Path: values(CreateSnapshot), Body: struct{}{}},
			{Op: DeleteSandbox, Path: values(DeleteSandbox)}, // has no body
			{Op: SignalCommand, Path: values(SignalCommand), Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }},
		} {
			t.Run(name+", "+req.Op.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					for _, usedToHTTP1 := range []bool{false, true} {
						// Succeed in the end, so that a transport that resends does not loop.
						srv := &http2Server{respond: func(n int64, stream uint32) ([]byte, bool) {
							if n > 3 {
								return ok(stream), false
							}
							return respond(n, stream)
						}}
						c := srv.client(t)
						c.retrier.HTTPClient.Transport.(bufferingTransport).http1.Store(usedToHTTP1)
						err := c.Do(t.Context(), req, nil)
						f, ok := errors.AsType[*Failure](err)
						require.True(t, ok, "%v", err)
						assert.True(t, f.OutcomeUnknown(), "%v", err)
						assert.EqualValues(t, 1, srv.requests.Load())
					}
				})
			})
		}
	}
}

// TestNothingWritten: if no byte of a request was written, because the idle connection was
// broken, it is sent on another one, whatever the operation.
func TestNothingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int64
		var conns []*breaking
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			t.Cleanup(func() { client.Close() })
			go func() {
				defer server.Close()
				for from := bufio.NewReader(server); ; requests.Add(1) {
					req, err := http.ReadRequest(from)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 26\r\n\r\n"+`{"sandbox":{"name":"one"}}`)
				}
			}()
			conn := &breaking{Conn: client}
			conns = append(conns, conn)
			return conn, nil
		}}
		c := testClient(transport)
		for n, op := range []*Op{WriteFiles, MakeDir, DeleteSandbox} {
			require.NoError(t, c.Do(t.Context(), &Request{Op: op, Path: values(op), Body: struct{}{}}, nil), op.Name)
			synctest.Wait() // the connection is kept
			assert.Len(t, conns, n+1)
			assert.EqualValues(t, n+1, requests.Load())
			conns[n].broken.Store(true)
		}
	})
}

// breaking is a connection that can break before the next byte is written.
type breaking struct {
	net.Conn
	broken atomic.Bool
}

func (c *breaking) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(p)
}
