package session

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// ran is the events of a command that has written so many bytes.
func ran(id string, bytes int64) []stored {
	return []stored{
		of(3, queuedEvent(id)), of(3, Event{Type: TypeCommandStart, ID: id}),
		of(3, Event{Type: TypeCommandEnd, ID: id, Bytes: bytes}), of(3, Event{Type: TypeActivity}),
	}
}

// TestTail: a viewer begins with the last commands that wrote so much, or within the
// very last, and with the one that runs in any case.
func TestTail(t *testing.T) {
	ended := append([]stored{of(3, Event{Type: TypeCreated})}, ran("cmd-1", 100)...) // 0, 1 to 4
	ended = append(ended, ran("cmd-2", 0)...)                                        // 5 to 8
	ended = append(ended, ran("cmd-3", 50)...)                                       // 9 to 12
	running := append(append([]stored(nil), ended...), of(3, queuedEvent("cmd-4")), of(3, Event{Type: TypeCommandStart, ID: "cmd-4"}), of(3, queuedEvent("cmd-5")))
	for _, row := range []struct {
		events []stored
		bytes  int64
		want   Cursor
	}{
		{ended, 0, Cursor{Seq: 12}},
		{ended, 20, Cursor{Seq: 10, Byte: 31}}, // 30 of 50 are skipped
		{ended, 50, Cursor{Seq: 4}},            // and what came after the first
		{ended, 149, Cursor{Seq: 4}},
		{ended, 150, Cursor{}},
		{ended, 1 << 40, Cursor{}},
		{running, 0, Cursor{Seq: 12}},
		{running, 50, Cursor{Seq: 4}},
		{nil, 10, Cursor{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			temporal := newCluster()
			temporal.knows(append([]stored(nil), row.events...)...)
			go func() {
				time.Sleep(time.Second) // before that nothing is true
				temporal.commits(3)
			}()
			c := New(temporal, nil)
			got, err := c.Tail(t.Context(), "a", row.bytes)
			require.NoError(t, err)
			assert.Equal(t, row.want, got, "%d bytes", row.bytes)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			assert.Empty(t, c.watches)
		})
	}
	_, err := New(newCluster(), nil).Tail(t.Context(), "a", -1)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	// Kept from 7 on.
	kept := ended[7:]
	for i := range kept {
		kept[i].Event.Seq = 7 + i
	}
	assert.Equal(t, Cursor{Seq: 7}, tail(kept, 7, 1<<40))
	assert.Equal(t, Cursor{Seq: 10, Byte: 31}, tail(kept, 7, 20))
}

// TestTailRoute: the routes take it, and a cursor goes before it.
func TestTailRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newCluster()
		temporal.knows(append([]stored{of(3, Event{Type: TypeCreated})}, append(ran("cmd-1", 100), ran("cmd-2", 50)...)...)...)
		temporal.commits(3)
		h := New(temporal, nil).Handler(nil)
		first := func(r *http.Request) string {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r.WithContext(ctx))
			line, _, _ := strings.Cut(w.Body.String(), "\n")
			return line
		}
		assert.Contains(t, first(httptest.NewRequest(http.MethodGet, "/events?runId=a&tail=50", nil)), `"seq":4`)
		assert.Contains(t, first(httptest.NewRequest(http.MethodGet, "/events?runId=a&tail=50&cursor=1.0", nil)), `"seq":1`)
		assert.Contains(t, first(httptest.NewRequest(http.MethodPost, "/start", strings.NewReader(`{"runId":"a","tail":50}`))), `"seq":4`)
		assert.Contains(t, first(httptest.NewRequest(http.MethodPost, "/start", strings.NewReader(`{"runId":"a"}`))), `"seq":0`)
		for _, bad := range []string{"x", "-1"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/events?runId=a&tail="+bad, nil))
			assert.Equal(t, http.StatusBadRequest, w.Code)
		}
	})
}
