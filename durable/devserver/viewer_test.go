package devserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// post sends a request until a service responds.
func post(t *testing.T, base func() string, path string, body any) map[string]any {
	t.Helper()
	data, err := json.Marshal(body)
	assert.NoError(t, err)
	failed := false
	for began := time.Now(); ; testkit.Linger(50 * time.Millisecond) {
		if time.Since(began) > 10*time.Minute {
			t.Errorf("no service responds to %s", path)
			return nil
		}
		resp, err := http.Post(base()+path, "application/json", bytes.NewReader(data))
		if err != nil {
			failed = true
			continue
		}
		var response map[string]any
		err = json.NewDecoder(resp.Body).Decode(&response)
		resp.Body.Close()
		if err != nil || resp.StatusCode >= 500 {
			failed = true
			continue
		}
		if failed && path == "/destroy" && resp.StatusCode == http.StatusGone {
			return response // an earlier attempt destroyed it
		}
		assert.Equal(t, 200, resp.StatusCode, "%s: %v", path, response)
		return response
	}
}

// viewer follows a session across broken connections, as the guide's client does, and keeps
// the events. It starts over when its cursor points into lost history.
type viewer struct {
	mu       sync.Mutex
	seqs     []int
	output   map[string]string
	starts   map[string]string // the texts of commands, by their IDs
	ends     map[string]session.Event
	rewound  int
	cursor   string
	breaks   int
	restarts int
	over     chan struct{}
}

func (v *viewer) begin() {
	v.seqs, v.output, v.starts, v.ends, v.rewound, v.cursor = nil, map[string]string{}, map[string]string{}, map[string]session.Event{}, 0, ""
}

func view(ctx context.Context, base func() string, id string) *viewer {
	v := &viewer{over: make(chan struct{})}
	v.begin()
	go func() {
		defer close(v.over)
		for ctx.Err() == nil && !v.read(ctx, base(), id) {
			testkit.Linger(20 * time.Millisecond)
		}
	}()
	return v
}

// read reads one stream, and reports whether the session has ended.
func (v *viewer) read(ctx context.Context, base, id string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/events?runId="+id+"&cursor="+v.cursor, nil)
	if err != nil {
		return true
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusBadRequest {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.begin()
		v.restarts++
	}
	if resp.StatusCode != 200 {
		return false
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e session.Event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Type == "ping" {
			continue
		}
		v.mu.Lock()
		v.cursor = e.Cursor.String()
		switch {
		case e.Type == session.TypeCommandStart:
			v.starts[e.ID], v.output[e.ID] = e.Command, ""
		case e.Type == session.TypeCommandOutput:
			v.output[e.ID] += e.Data
		case e.Type == session.TypeCommandEnd:
			v.ends[e.ID] = e
		case e.State == session.StateRewound:
			v.rewound++
		}
		if e.Type != session.TypeCommandOutput {
			v.seqs = append(v.seqs, e.Seq)
		}
		v.mu.Unlock()
		if e.Type == session.TypeResult {
			return true
		}
	}
	v.mu.Lock()
	v.breaks++
	v.mu.Unlock()
	return false
}

// wrote returns the output of a command so far.
func (v *viewer) wrote(command string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.output[command]
}

// endedCommands returns the number of commands that have ended.
func (v *viewer) endedCommands() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.ends)
}
