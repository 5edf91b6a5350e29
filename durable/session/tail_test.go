package session

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
)

// eventsOf returns the events of a command that has written so many bytes.
func eventsOf(id string, bytes int64) []stored {
	return []stored{
		of(3, queuedEvent(id)), of(3, Event{Type: TypeCommandStart, ID: id}),
		of(3, Event{Type: TypeCommandEnd, ID: id, Bytes: bytes}), of(3, Event{Type: TypeActivity}),
	}
}

// TestTailOfRunning: a tail of no lines begins after the output of the running command that
// its worker has reported, or after the last event.
func TestTailOfRunning(t *testing.T) {
	ended := append([]stored{of(3, Event{Type: TypeCreated})}, eventsOf("cmd-1", 100)...) // 0, 1 to 4
	starts := append(append([]stored(nil), ended...), of(3, queuedEvent("cmd-2")), of(3, Event{Type: TypeCommandStart, ID: "cmd-2"}))
	runs := append(append([]stored(nil), ended...), of(3, queuedEvent("cmd-2")), of(3, Event{Type: TypeCommandStart, ID: "cmd-2", CommandID: "p"}), of(3, queuedEvent("cmd-3")))
	for _, row := range []struct {
		events []stored
		want   Cursor
	}{{runs, Cursor{Seq: 6, Byte: 71}}, {ended, Cursor{Seq: 4}}, {starts, Cursor{Seq: 4}}, {nil, Cursor{}}} {
		synctest.Test(t, func(t *testing.T) {
			temporal := newCluster()
			temporal.written = 70
			temporal.knows(append([]stored(nil), row.events...)...)
			go func() {
				time.Sleep(time.Second) // before, no event is committed
				temporal.commits(3)
			}()
			c := New(temporal, nil)
			got, err := c.Tail(t.Context(), "a", 0)
			require.NoError(t, err)
			assert.Equal(t, row.want, got)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			assert.Empty(t, c.watches)
		})
	}
	t.Run("committed while it asks", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			temporal := &hooked{cluster: newCluster()}
			temporal.written = 70
			temporal.knows(of(3, Event{Type: TypeCreated}), of(11, Event{Type: TypeCommandStart, ID: "cmd-1", CommandID: "p"}))
			temporal.commits(3)
			temporal.meanwhile = func() { temporal.commits(11) }
			got, err := New(temporal, nil).Tail(t.Context(), "a", 0)
			require.NoError(t, err)
			assert.Equal(t, Cursor{Seq: 1, Byte: 71}, got)
		})
	})
}

// TestTail: a viewer starts with the last lines, of one output or of several.
func TestTail(t *testing.T) {
	outputs := map[string]string{"cmd-1": "1\n2\n3\n", "cmd-2": "", "cmd-3": strings.Repeat("x", 2<<20) + "\n4\n5\n6"}
	store := memory{}
	events := []stored{of(3, Event{Type: TypeCreated})} // 0
	for _, id := range []string{"cmd-1", "cmd-2", "cmd-3"} {
		var data []byte
		for at, text := 0, outputs[id]; text != ""; { // store the output in pieces
			n := min(len(text), 1000)
			line, err := json.Marshal(durable.Record{Stream: "stdout", Data: []byte(text[:n]), At: int64(at)})
			require.NoError(t, err)
			data, at, text = append(append(data, line...), '\n'), at+n, text[n:]
		}
		store["a/"+id] = data
		of := eventsOf(id, int64(len(outputs[id])))
		of[1].Event.Output = "a/" + id
		events = append(events, of...)
	}
	before := 1 + int64(2<<20)
	for _, row := range []struct {
		lines int
		until int // how many events exist
		want  Cursor
	}{
		{0, 13, Cursor{Seq: 12}}, {1, 13, Cursor{Seq: 10, Byte: before + 5}}, {2, 13, Cursor{Seq: 10, Byte: before + 3}}, {3, 13, Cursor{Seq: 10, Byte: before + 1}},
		{4, 13, Cursor{Seq: 10, Byte: 1 + before + 5 - 1<<20}}, // the line is too long
		{1, 9, Cursor{Seq: 2, Byte: 5}}, {3, 9, Cursor{}}, {100, 9, Cursor{}}, {5, 1, Cursor{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			temporal := newCluster()
			temporal.knows(append([]stored(nil), events[:row.until]...)...)
			temporal.commits(3)
			got, err := New(temporal, &Options{Output: store}).Tail(t.Context(), "a", row.lines)
			require.NoError(t, err)
			assert.Equal(t, row.want, got, "%d lines of %d events", row.lines, row.until)
		})
	}
	_, err := New(newCluster(), nil).Tail(t.Context(), "a", -1)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
}

// TestLinesAtEnd: the last line counts with and without a newline.
func TestLinesAtEnd(t *testing.T) {
	for _, row := range []struct {
		text             string
		lines, n, missed int
	}{
		{"", 0, 0, 0}, {"", 1, 0, 1}, {"a", 0, 0, 0}, {"a", 1, 1, 0}, {"a\n", 1, 2, 0}, {"a\nb", 1, 1, 0}, {"a\nb\n", 1, 2, 0},
		{"a\n\n", 1, 1, 0}, {"\n\n", 2, 2, 0}, {"a\nb\n", 5, 4, 3},
	} {
		n, missed := linesAtEnd([]byte(row.text), row.lines)
		assert.Equal(t, []int{row.n, row.missed}, []int{n, missed}, "%d of %q", row.lines, row.text)
	}
}

// TestTailRoute: the parameter lines starts the stream at the last lines. If the request
// also has a cursor, the cursor decides.
func TestTailRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newCluster()
		temporal.knows(append([]stored{of(3, Event{Type: TypeCreated})}, append(eventsOf("cmd-1", 100), eventsOf("cmd-2", 50)...)...)...)
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
		assert.Contains(t, first(httptest.NewRequest(http.MethodGet, "/events?runId=a&lines=0&cursor=1.0", nil)), `"seq":1`)
		assert.Contains(t, first(httptest.NewRequest(http.MethodPost, "/start", strings.NewReader(`{"runId":"a"}`))), `"seq":0`)
		assert.Contains(t, first(httptest.NewRequest(http.MethodGet, "/events?runId=a&lines=0", nil)), `"seq":8`)
		assert.Contains(t, first(httptest.NewRequest(http.MethodPost, "/start", strings.NewReader(`{"runId":"a","lines":0}`))), `"seq":8`)
		for _, bad := range []string{"lines=x", "lines=-1"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/events?runId=a&"+bad, nil))
			assert.Equal(t, http.StatusBadRequest, w.Code)
		}
	})
}
