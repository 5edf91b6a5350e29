//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNothingRaw: control characters from the API and from a sandbox do not reach the
// terminal.
func TestNothingRaw(t *testing.T) {
	t.Parallel()
	const evil = "\x1b]52;c;aGVsbG8=\x07\x1b[2J\u202e"
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c", "--tag", "k="+"v")
	d.ok("exec", "c", "--", "sh", "-c", `mkdir f && echo x >"f/$1"`, "sh", evil)
	silent := func(where string, s *screen) {
		t.Helper()
		s.ended()
		text := s.text()
		for _, part := range []string{"\x1b]52", "\x1b[2J", "\u202e"} {
			assert.NotContains(t, text, part, where)
		}
	}
	for _, args := range [][]string{
		{"cp", "--progress", "c:f", "here"}, {"exec", "c", "--", "true", evil},
		{"exec", "c", "--", evil}, {"cp", "c:" + evil, "x"}, {"exec", "c" + evil, "x"}, {"nonsense" + evil}, {"ls", "--" + evil},
	} {
		silent(strings.Join(args, " "), d.inTerminal(args...))
	}

	// Change all texts of the emulator that are neither used for a lookup nor checked.
	upstream, err := url.Parse(d.server.URL)
	require.NoError(t, err)
	words := regexp.MustCompile(`("(?:region|image|runtime|cwd|url|description|ownerId|projectId|size|key)":")([^"]*")`)
	quoted, err := json.Marshal(evil)
	require.NoError(t, err)
	says := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(upstream) }, ModifyResponse: func(resp *http.Response) error {
		if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
			return nil
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		body = words.ReplaceAll(body, append([]byte("${1}"), append(quoted[1:len(quoted)-1:len(quoted)-1], "${2}"...)...))
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		resp.Header.Del("Content-Length")
		return nil
	}}
	hostile := httptest.NewServer(says)
	t.Cleanup(hostile.Close)
	given := d.env
	d.env = append(d.env, "VERCEL_SANDBOX_BASE_URL="+hostile.URL)
	for _, args := range [][]string{
		{"create", "--name", "d", "-p", "3000"}, {"run", "--name", "e", "--", "true"}, {"config", "list", "d"}, {"inspect", "d"}, {"ls"}, {"sessions", "list", "d"},
		{"snapshot", "d", "--stop"}, {"snapshots", "list"}, {"drives", "create", "f"}, {"drives", "list"}, {"ps", "c"}, {"create", "--name", "g", "-e", "=" + evil},
	} {
		silent(strings.Join(args, " "), d.inTerminal(args...))
	}
	d.env = given

	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Vercel-Id", "request")
		w.WriteHeader(http.StatusForbidden)
		assert.NoError(t, json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": "x" + evil, "message": "no" + evil + "\nsecond line"}}))
	}))
	t.Cleanup(refuses.Close)
	lists := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(map[string]any{
			"sandboxes": []any{map[string]any{
				"name": "n" + evil, "status": "running" + evil, "region": evil, "image": evil, "tags": map[string]any{"k" + evil: evil},
				"currentSessionId": "sbx_x", "createdAt": 1, "updatedAt": 1, "statusUpdatedAt": 1,
			}},
			"pagination": map[string]any{"count": 1, "next": nil, "prev": nil},
		}))
	}))
	t.Cleanup(lists.Close)
	for url, lines := range map[string][][]string{
		refuses.URL: {{"ls"}, {"exec", "c", "true"}, {"rm", "c", "d"}, {"stop", "c"}, {"ls", "--debug"}, {"ls", "--json"}, {"cp", "c:x", "y"}, {"create"}},
		lists.URL:   {{"ls", "-a"}, {"ls", "-aq"}, {"ls", "-a", "--json"}, {"rm", "--all", "--no-input"}},
	} {
		d.env = append(d.env, "VERCEL_SANDBOX_BASE_URL="+url)
		for _, args := range lines {
			silent(strings.Join(args, " "), d.inTerminal(args...))
		}
	}
}
