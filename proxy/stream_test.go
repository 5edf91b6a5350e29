package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/proxy"
)

func TestForwarderServerSentEvents(t *testing.T) {
	next := make(chan string)
	g := newTestChain(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for event := range next {
			fmt.Fprintf(w, "data: %s\n\n", event)
			http.NewResponseController(w).Flush()
		}
	}), proxy.ForwarderOptions{AllowPrivate: loopback})
	go func() { next <- "0" }()
	resp, err := g.sandbox.Get(g.upstream.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	events := bufio.NewScanner(resp.Body)
	for i := range 100 {
		if i > 0 {
			next <- fmt.Sprint(i) // the server writes an event only after the previous one has arrived
		}
		require.True(t, events.Scan())
		assert.Equal(t, fmt.Sprintf("data: %d", i), events.Text())
		require.True(t, events.Scan())
	}
	close(next)
	assert.False(t, events.Scan())
	assert.NoError(t, events.Err())
}

func TestForwarderStreamsBothWaysAtOnce(t *testing.T) {
	g := newTestChain(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		out := http.NewResponseController(w)
		out.Flush()
		b := make([]byte, 100)
		for {
			n, err := r.Body.Read(b)
			w.Write(bytes.ToUpper(b[:n]))
			out.Flush()
			if err != nil {
				return
			}
		}
	}), proxy.ForwarderOptions{AllowPrivate: loopback})
	body, in := io.Pipe()
	resp, err := g.sandbox.Post(g.upstream.URL, "text/plain", body)
	require.NoError(t, err)
	defer resp.Body.Close()
	response := bufio.NewReader(resp.Body)
	for _, word := range []string{"one\n", "two\n", "three\n"} {
		_, err := io.WriteString(in, word)
		require.NoError(t, err)
		line, err := response.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, strings.ToUpper(word), line)
	}
	in.Close()
	_, err = response.ReadByte()
	assert.Equal(t, io.EOF, err)
}

func TestForwarderWebSocket(t *testing.T) {
	g := newTestChain(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		assert.Equal(t, "Bearer s3cret", r.Header.Get("Authorization"))
		for {
			kind, message, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			if conn.Write(r.Context(), kind, message) != nil {
				return
			}
		}
	}), proxy.ForwarderOptions{AllowPrivate: loopback, MaxResponseBody: 10, Rules: []proxy.Rule{
		{Hosts: []string{"UPSTREAM"}, Header: "Authorization", Placeholder: "P", Secret: proxy.StaticSecret("s3cret")},
	}})
	conn, _, err := websocket.Dial(t.Context(), g.upstream.URL, &websocket.DialOptions{
		HTTPClient: g.sandbox, HTTPHeader: http.Header{"Authorization": {"Bearer P"}},
	})
	require.NoError(t, err)
	defer conn.CloseNow()
	for _, message := range []string{"hello", "", strings.Repeat("long ", 6000)} {
		require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(message)))
		_, got, err := conn.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, message, string(got))
	}
	assert.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
}

// TestForwarderEarlyResponse: a response arrives even if the server has not read the request.
func TestForwarderEarlyResponse(t *testing.T) {
	g := newTestChain(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "too much", 413)
	}), proxy.ForwarderOptions{AllowPrivate: loopback})
	body, in := io.Pipe()
	defer in.Close()
	resp, err := g.sandbox.Post(g.upstream.URL, "text/plain", body)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, 413, resp.StatusCode)
}

// zeros is an endless body that needs no memory.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// peakHeap runs f and returns the growth of the heap at its peak.
func peakHeap(f func()) uint64 {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	before := heap()
	var peak atomic.Uint64
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			peak.Store(max(peak.Load(), heap()))
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	f()
	close(done)
	<-stopped
	return max(peak.Load(), before) - before
}

// TestForwarderLargeBodies: forwarding a body of 32 MiB needs less than 16 MiB of memory.
func TestForwarderLargeBodies(t *testing.T) {
	const size int64 = 32 << 20
	g := newTestChain(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.CopyN(w, zeros{}, size)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}), proxy.ForwarderOptions{AllowPrivate: loopback, MaxResponseBody: size})

	grew := peakHeap(func() {
		_, body := g.do(t, "POST", g.upstream.URL, nil, io.LimitReader(zeros{}, size))
		assert.Equal(t, fmt.Sprint(size, nil), body)
	})
	t.Logf("up: the heap grew by %d KiB at most", grew>>10)
	assert.Less(t, grew, uint64(16<<20))

	grew = peakHeap(func() {
		resp, err := g.sandbox.Get(g.upstream.URL)
		require.NoError(t, err)
		defer resp.Body.Close()
		n, err := io.Copy(io.Discard, resp.Body)
		assert.NoError(t, err)
		assert.Equal(t, size, n)
	})
	t.Logf("down: the heap grew by %d KiB at most", grew>>10)
	assert.Less(t, grew, uint64(16<<20))
}
