package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/tools/perf/kit"
)

// upload describes one POST .../fs/write as the server has received it. Times are wall-clock
// nanoseconds, which can be compared with those of a client on the same machine.
type upload struct {
	ContentLength int64           `json:"content_length"` // -1 if the body is chunked
	ContentType   string          `json:"content_type"`
	ExtractDir    string          `json:"x_cwd"`
	WireBytes     int64           `json:"wire_bytes"`
	HeaderUnixNs  int64           `json:"header_unix_ns"`
	FirstByteNs   int64           `json:"first_byte_unix_ns"`
	LastByteNs    int64           `json:"last_byte_unix_ns"`
	Err           string          `json:"error,omitempty"`
	Verified      *verifiedUpload `json:"verified,omitempty"`
}

type verifiedUpload struct {
	Files     int    `json:"files"`
	Bytes     int64  `json:"bytes"`
	CRCSum    uint32 `json:"crc32_sum"` // the sum of the CRC-32 of all files, in any order
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name"`
	Err       string `json:"error,omitempty"`
}

type stats struct {
	mu        sync.Mutex
	conns     map[net.Conn]*clientConn
	connTotal int64 // the number of connections that made API requests since the last reset
	connOpen  int64 // the number of these that are open
	connPeak  int64 // the maximum of connOpen since the last reset
	uploads   []upload
	resetAt   time.Time
	cpuAt     float64
	userAgent string

	reqs    [numOps]atomic.Int64
	bytesIn atomic.Int64
	bytesOt atomic.Int64
	proto2  atomic.Int64
}

// clientConn is a connection. It counts only after its first API request, so that requests for
// the counters do not change them.
type clientConn struct{ counted atomic.Bool }

type connKey struct{}

func (s *stats) connContext(ctx context.Context, c net.Conn) context.Context {
	cc := &clientConn{}
	s.mu.Lock()
	s.conns[c] = cc
	s.mu.Unlock()
	return context.WithValue(ctx, connKey{}, cc)
}

func (s *stats) connState(c net.Conn, st http.ConnState) {
	if st != http.StateClosed && st != http.StateHijacked {
		return
	}
	s.mu.Lock()
	if cc := s.conns[c]; cc != nil && cc.counted.Load() {
		s.connOpen--
	}
	delete(s.conns, c)
	s.mu.Unlock()
}

func (s *stats) apiRequest(r *http.Request) {
	if r.ProtoMajor == 2 {
		s.proto2.Add(1)
	}
	cc, _ := r.Context().Value(connKey{}).(*clientConn)
	if cc != nil && !cc.counted.Load() && cc.counted.CompareAndSwap(false, true) {
		s.mu.Lock()
		s.connTotal++
		s.connOpen++
		s.connPeak = max(s.connPeak, s.connOpen)
		s.mu.Unlock()
	}
}

type op int

const (
	opCreate op = iota
	opGet
	opList
	opCmdWait
	opCmdDetached
	opCmdGet
	opLogs
	opWrite
	opRead
	opMkdir
	opStop
	opOther
	numOps
)

var opNames = [numOps]string{"create", "get", "list", "cmd_wait", "cmd_detached", "cmd_get", "logs", "fs_write", "fs_read", "fs_mkdir", "stop", "other"}

func newStats() *stats {
	s := &stats{conns: map[net.Conn]*clientConn{}}
	s.reset()
	return s
}

func (s *stats) reset() {
	s.mu.Lock()
	s.connTotal, s.connPeak = 0, s.connOpen
	s.uploads = nil
	s.resetAt, s.cpuAt = time.Now(), kit.CPUSeconds()
	s.userAgent = ""
	s.mu.Unlock()
	for i := range s.reqs {
		s.reqs[i].Store(0)
	}
	s.bytesIn.Store(0)
	s.bytesOt.Store(0)
	s.proto2.Store(0)
}

func (s *stats) addUpload(u upload) {
	s.mu.Lock()
	if len(s.uploads) < 64 {
		s.uploads = append(s.uploads, u)
	}
	s.mu.Unlock()
}

func (s *stats) snapshot() []byte {
	reqs := map[string]int64{}
	for i := range s.reqs {
		if n := s.reqs[i].Load(); n > 0 {
			reqs[opNames[i]] = n
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, _ := json.Marshal(map[string]any{
		"connections_total":  s.connTotal,
		"connections_peak":   s.connPeak,
		"requests":           reqs,
		"http2_requests":     s.proto2.Load(),
		"body_in_bytes":      s.bytesIn.Load(),
		"body_out_bytes":     s.bytesOt.Load(),
		"server_cpu_seconds": kit.CPUSeconds() - s.cpuAt,
		"since_reset":        time.Since(s.resetAt).Seconds(),
		"uploads":            s.uploads,
		"user_agent":         s.userAgent,
	})
	return append(b, '\n')
}
