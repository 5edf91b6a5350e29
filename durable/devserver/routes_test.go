package devserver_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
)

// data returns the output in an event.
func data(t *testing.T, e session.Event) []byte {
	if e.Encoding == "" {
		return []byte(e.Data)
	}
	require.Equal(t, "base64", e.Encoding)
	b, err := base64.StdEncoding.DecodeString(e.Data)
	require.NoError(t, err)
	return b
}

// TestEveryCursor: a stream continues at every byte of a session, also in the binary output
// of two streams, both while the command runs and when its output is stored.
func TestEveryCursor(t *testing.T) {
	store := durable.Dir(t.TempDir())
	l := startLocal(t, session.Policy{}, store, store)
	id, err := l.sessions.Start(t.Context(), nil)
	require.NoError(t, err)
	_, err = l.sessions.Command(t.Context(), id, session.Command{Command: `printf 'caf\303\251 \000 \342\202\254'; sleep 0.1; echo err >&2; trap 'exit 7' INT; echo up; while :; do sleep 0.05; done`})
	require.NoError(t, err)
	var output []byte
	seq := -1
	for e, err := range l.sessions.Events(t.Context(), id, session.Cursor{}) {
		require.NoError(t, err)
		if e.Type == session.TypeCommandStart {
			seq = e.Seq
		}
		if e.Type == session.TypeCommandOutput {
			if output = append(output, data(t, e)...); len(output) == 11+len("err\n")+len("up\n") {
				break
			}
		}
	}
	// rest reads from a cursor until it has all of the output, or until the session ends.
	rest := func(from session.Cursor) (got []byte, types []string) {
		for e, err := range l.sessions.Events(t.Context(), id, from) {
			require.NoError(t, err)
			if e.Type == session.TypeCommandOutput {
				got = append(got, data(t, e)...)
			} else {
				types = append(types, e.Type)
			}
			if e.Cursor == (session.Cursor{Seq: seq, Byte: int64(len(output)) + 1}) && len(got) > 0 {
				break
			}
		}
		return got, types
	}
	for n := range output { // while the command runs
		got, types := rest(session.Cursor{Seq: seq, Byte: int64(n) + 1})
		require.Equal(t, output[n:], got, "from byte %d on", n)
		require.Empty(t, types)
	}
	require.NoError(t, l.sessions.Interrupt(t.Context(), id, "", 2))
	require.NoError(t, l.sessions.Destroy(t.Context(), id, nil))
	var all []session.Event
	for e, err := range l.sessions.Events(t.Context(), id, session.Cursor{}) {
		require.NoError(t, err)
		all = append(all, e)
	}
	// stored reads to the end of the session.
	stored := func(from session.Cursor) (got []byte, seqs []int) {
		for e, err := range l.sessions.Events(t.Context(), id, from) {
			require.NoError(t, err)
			if e.Type == session.TypeCommandOutput {
				got = append(got, data(t, e)...)
			} else {
				seqs = append(seqs, e.Seq)
			}
		}
		return got, seqs
	}
	last := all[len(all)-1].Seq
	for n := range len(output) + 1 { // when the session has ended
		got, seqs := stored(session.Cursor{Seq: seq, Byte: int64(n) + 1})
		require.Equal(t, string(output[n:]), string(got), "from byte %d on", n)
		require.Len(t, seqs, last-seq)
	}
	for n := range last + 1 { // from each event on
		got, seqs := stored(session.Cursor{Seq: n})
		require.Equal(t, n <= seq, len(got) > 0)
		require.Len(t, seqs, last+1-n)
		require.Equal(t, n, seqs[0])
	}
}

// TestServerSentEvents: an EventSource gets the same events, and continues at the ID of the
// last one.
func TestServerSentEvents(t *testing.T) {
	store := durable.Dir(t.TempDir())
	l := startLocal(t, session.Policy{IdleAfter: time.Hour}, store, store)
	srv := httptest.NewServer(l.sessions.Handler(nil))
	t.Cleanup(srv.Close)
	base := func() string { return srv.URL }
	id, err := l.sessions.Start(t.Context(), nil)
	require.NoError(t, err)
	// read reads the events after last until one has the type, and returns them with their
	// IDs.
	read := func(last, until string) (ids []string, events []session.Event) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/events?runId="+id, nil)
		require.NoError(t, err)
		req.Header.Set("Accept", "text/event-stream")
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				ids = append(ids, value)
			case "data":
				var e session.Event
				require.NoError(t, json.Unmarshal([]byte(value), &e))
				events = append(events, e)
			case "": // a comment, which keeps proxies from closing the stream
				if strings.HasPrefix(lines.Text(), ": ") && until == "ping" {
					return ids, events
				}
			}
			if n := len(events); n > 0 && events[n-1].Type == until {
				require.Len(t, ids, n)
				return ids, events
			}
		}
		require.Fail(t, "the stream has ended")
		return nil, nil
	}
	post(t, base, "/command", map[string]any{"runId": id, "command": "echo out; exit 3", "key": "a"})
	ids, events := read("", session.TypeActivity)
	end := events[len(events)-2]
	require.Equal(t, session.TypeCommandEnd, end.Type)
	assert.Equal(t, 3, *end.ExitCode)
	for i := range ids[:len(ids)-1] {
		again, _ := read(ids[i], session.TypeActivity)
		assert.Equal(t, ids[i+1:], again, "after %s", ids[i])
	}
	none, _ := read(ids[len(ids)-1], "ping") // the first ping comes after 15 seconds
	assert.Empty(t, none)

	post(t, base, "/destroy", map[string]any{"runId": id, "deleteSandbox": true, "removeOutput": true})
	_, events = read(ids[len(ids)-1], session.TypeResult)
	assert.Equal(t, "destroyed", events[len(events)-1].Status)
	for range l.emulator.Client().List(t.Context(), nil) {
		assert.Fail(t, "the sandbox still exists")
	}
	_, err = store.Open(t.Context(), end.Output)
	assert.ErrorIs(t, err, fs.ErrNotExist, "its output still exists")
}
