package api

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
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
)

// frame returns a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload ...byte) []byte {
	head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(head, stream), payload...)
}

// http2Server is a server of HTTP/2 that does what net/http's does not.
type http2Server struct {
	requests atomic.Int64
	// respond returns what is sent after the nth request, from 1, and whether the
	// connection is closed then.
	respond func(n int64, stream uint32) (frames []byte, closes bool)
}

// serve reads the requests of a connection, one at a time.
func (s *http2Server) serve(conn net.Conn) {
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	// The client may be writing, too, and a pipe holds nothing.
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
	const status200 = 0x88 // of HPACK's static table
	return frame(frameHeaders, endHeaders|endStream, stream, status200)
}

// goAway closes a connection of which the given stream is the last that is
// processed.
func goAway(last uint32, why string) []byte {
	return frame(frameGoAway, 0, 0, append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), 0), why...)...)
}

func reset(stream uint32, code byte) []byte { return frame(frameReset, 0, stream, 0, 0, 0, code) }

// byItself is how often net/http sends a request that is not processed.
const byItself = 8

// TestUnprocessed: a request of which the server says that it has not processed
// it is sent again, whatever the operation, and is not one whose outcome is
// unknown.
func TestUnprocessed(t *testing.T) {
	t.Run("refused stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, op := range []*Op{GetSandbox, StartCommand, CreateSnapshot} {
				srv := &http2Server{respond: func(n int64, stream uint32) ([]byte, bool) {
					if n <= byItself {
						return reset(stream, refusedStream), false
					}
					return ok(stream), false
				}}
				require.NoError(t, srv.client(t).Do(t.Context(), &Request{Op: op, Path: values(op), Body: struct{}{}}, nil), op.Name)
				assert.EqualValues(t, byItself+1, srv.requests.Load(), op.Name)
			}
		})
	})
	t.Run("connections that close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, op := range []*Op{GetSandbox, StartCommand, CreateSnapshot} {
				// net/http counts only while it has a further connection. Each of
				// these carries one request, and all but the last close at the next.
				const pool = byItself + 1
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
				results := make(chan error, pool)
				for range pool {
					go func() { results <- c.Do(t.Context(), &Request{Op: GetSandbox, Path: values(GetSandbox)}, nil) }()
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
			srv := &http2Server{respond: func(_ int64, stream uint32) ([]byte, bool) { return reset(stream, refusedStream), false }}
			err := srv.client(t).Do(t.Context(), &Request{Op: StartCommand, Path: values(StartCommand), Body: struct{}{}}, nil)
			f, ok := errors.AsType[*Failure](err)
			require.True(t, ok, "%v", err)
			assert.False(t, f.OutcomeUnknown())
			assert.EqualValues(t, 3*byItself, srv.requests.Load())
		})
	})
}

// TestPerhapsProcessed: nothing else that ends a stream or a connection says that
// the request was not processed.
func TestPerhapsProcessed(t *testing.T) {
	const internalError = 2
	for name, respond := range map[string]func(int64, uint32) ([]byte, bool){
		"an error":                         func(_ int64, stream uint32) ([]byte, bool) { return reset(stream, internalError), false },
		"a connection that processes it":   func(_ int64, stream uint32) ([]byte, bool) { return goAway(stream, ""), true },
		"a connection that quotes another": func(_ int64, stream uint32) ([]byte, bool) { return goAway(stream, gotGoAway), true },
		"a refusal behind a response": func(_ int64, stream uint32) ([]byte, bool) {
			begun := bytes.Clone(ok(stream))
			begun[4] = endHeaders
			return append(begun, reset(stream, refusedStream)...), false
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := &http2Server{respond: respond}
				err := srv.client(t).Do(t.Context(), &Request{Op: CreateSnapshot, Path: values(CreateSnapshot), Body: struct{}{}}, nil)
				f, ok := errors.AsType[*Failure](err)
				require.True(t, ok, "%v", err)
				assert.True(t, f.OutcomeUnknown(), "%v", err)
				assert.EqualValues(t, 1, srv.requests.Load())
			})
		})
	}
}
