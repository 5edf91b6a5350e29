package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestService: files stay while a chat sleeps, users do not meet, who leaves ends
// the work, and nothing runs when the service has ended.
func TestService(t *testing.T) {
	srv := sandboxtest.New(t, nil)
	s := newService(srv.Client())
	front := httptest.NewServer(s)
	defer front.Close()
	say := func(ctx context.Context, user, text string) *http.Response {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, front.URL+"/first", strings.NewReader(text))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+user+"-s-token")
		resp, err := front.Client().Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	answer := func(user, text string) (last string) {
		for lines := bufio.NewScanner(say(t.Context(), user, text).Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				require.NoError(t, json.Unmarshal([]byte(data), &last))
			}
		}
		return last
	}
	assert.Contains(t, answer("alice", "echo 42 > answer; cat answer"), "\n42\n")
	require.NoError(t, s.conversations.Stop(t.Context(), "alice/first"))
	assert.Contains(t, answer("alice", "cat answer"), "\n42\n")
	assert.Contains(t, answer("bob", "cat answer"), "No such file")
	assert.Equal(t, http.StatusUnauthorized, say(t.Context(), "mallory", "id").StatusCode)

	mark := "LEFT=" + rand.Text()
	ctx, leave := context.WithCancel(t.Context())
	for lines := bufio.NewScanner(say(ctx, "alice", "echo begun; "+mark+" sleep 1000; true").Body); lines.Scan(); {
		if strings.Contains(lines.Text(), "begun") {
			break
		}
	}
	leave()
	assert.Contains(t, answer("alice", "echo again"), "\nagain\n", "a turn waits for the one before, which has ended")
	assert.Eventually(t, func() bool { return len(testkit.ProcessesWith(t, mark)) == 0 }, testkit.Patience, 20*time.Millisecond)

	require.NoError(t, s.conversations.Close(t.Context()))
	srv.CheckClosed(t)
}
