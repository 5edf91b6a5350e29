package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/proxy"
)

// zeros is an endless body that costs nothing.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// peakHeap runs f, and returns by how much the heap grew at most meanwhile.
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
		for {
			peak.Store(max(peak.Load(), heap()))
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	f()
	close(done)
	<-stopped
	return max(peak.Load(), before) - before
}

// TestForwarderLargeBodies sends 1 GiB up and 1 GiB down (with -short, 64 MiB).
func TestForwarderLargeBodies(t *testing.T) {
	size := int64(1 << 30)
	if testing.Short() {
		size = 64 << 20
	}
	g := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.CopyN(w, zeros{}, size)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}), proxy.ForwarderOptions{AllowPrivate: loopback, MaxRequestBody: size, MaxResponseBody: size})

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
