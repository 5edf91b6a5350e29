package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

func noFlush() error { return nil }

// decoded returns the text in the records of a log.
func decoded(t *testing.T, data []byte) string {
	var out strings.Builder
	for line := range bytes.Lines(data) {
		var r struct{ Stream, Data string }
		require.NoError(t, json.Unmarshal(line, &r), "%q", line)
		out.WriteString(r.Data)
	}
	return out.String()
}

func TestCommandLog(t *testing.T) {
	dir := t.TempDir()
	files := func() int {
		list, err := os.ReadDir(dir)
		require.NoError(t, err)
		return len(list)
	}
	log := newCommandLog(dir)
	w := newOutputWriter(log, "stdout")
	var want strings.Builder
	var wg sync.WaitGroup
	got := make([]bytes.Buffer, 3)
	follow := func(i int) {
		wg.Go(func() { assert.NoError(t, log.CopyTo(context.Background(), &got[i], noFlush)) })
	}
	follow(0)
	for i := range 3000 {
		if i == 10 {
			follow(1)
			assert.Zero(t, files(), "a short log stays in memory")
		}
		if i == 2500 {
			follow(2)
		}
		fmt.Fprintf(&want, "line %d é\n", i)
		_, err := fmt.Fprintf(w, "line %d é\n", i)
		require.NoError(t, err)
	}
	assert.Equal(t, 1, files())
	w.Flush()
	log.Close()
	wg.Wait()
	for i := range got {
		assert.Equal(t, want.String(), decoded(t, got[i].Bytes()))
	}
	_, err := w.Write([]byte("late"))
	require.Error(t, err)

	// It is removed after its last reader has finished.
	require.True(t, log.addReader())
	log.Remove()
	assert.Equal(t, 1, files())
	require.ErrorIs(t, log.CopyTo(context.Background(), &got[0], noFlush), ErrLogGone)
	log.removeReader()
	assert.Zero(t, files())
}

func TestUTF8IsNotSplit(t *testing.T) {
	text := "aé€𝄞\xff\xc3z\xf0\x9d\x84" // ends in the middle of a sequence
	want := "aé€𝄞\ufffd\ufffdz\ufffd\ufffd\ufffd"
	for size := 1; size <= len(text); size++ {
		log := newCommandLog(t.TempDir())
		w := newOutputWriter(log, "stderr")
		for i := 0; i < len(text); i += size {
			n, err := w.Write([]byte(text[i:min(len(text), i+size)]))
			require.NoError(t, err)
			require.Positive(t, n)
		}
		w.Flush()
		log.Close()
		var out bytes.Buffer
		require.NoError(t, log.CopyTo(t.Context(), &out, noFlush))
		assert.Equal(t, want, decoded(t, out.Bytes()), "in pieces of %d", size)
	}
}

func FuzzJSONString(f *testing.F) {
	f.Add([]byte("a\"\\\x00\x1f\n\u2028é\xff\xed\xa0\x80"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got string
		require.NoError(t, json.Unmarshal(appendJSONString(nil, data), &got))
		assert.Equal(t, strings.ToValidUTF8(string([]rune(string(data))), "\ufffd"), got)
	})
}

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(guard.New(slog.New(slog.DiscardHandler)))
		defer c.Close()
		var mu sync.Mutex
		var fired []string
		note := func(name string) func() {
			return func() {
				mu.Lock()
				defer mu.Unlock()
				fired = append(fired, name)
			}
		}
		begin := c.Now()
		c.AfterFunc(3*time.Hour, note("c"))
		c.AfterFunc(time.Hour, func() {
			note("a")()
			assert.Equal(t, begin.Add(time.Hour), c.Now(), "each at its own time")
			c.AfterFunc(time.Hour, note("b"))
		})
		stopped := c.AfterFunc(2*time.Hour, note("never"))
		stopped.Stop()
		stopped.Stop()
		c.Advance(2*time.Hour + time.Minute)
		assert.Equal(t, []string{"a", "b"}, fired)
		assert.Equal(t, begin.Add(2*time.Hour+time.Minute), c.Now())
		// The synctest clock skips the rest of the time.
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		mu.Lock()
		assert.Equal(t, []string{"a", "b", "c"}, fired)
		mu.Unlock()
		c.AfterFunc(0, note("d"))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		mu.Lock()
		assert.Equal(t, "d", fired[3])
		mu.Unlock()
		var none *timer
		none.Stop()
	})
}
