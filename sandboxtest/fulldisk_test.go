package sandboxtest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// stream returns everything in a command's stream.
func (v *victim) stream(sess, script string) string {
	v.t.Helper()
	req, err := http.NewRequest("POST", v.url+session(sess)+"/cmd",
		strings.NewReader(`{"command":"sh","args":["-c","`+script+`"],"wait":true,"logs":true}`))
	require.NoError(v.t, err)
	req.Header.Set("Authorization", "Bearer "+v.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := v.client.Do(req)
	require.NoError(v.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(v.t, err)
	return string(data)
}

// TestFullDisk: an error because the disk is full is reported, and nothing saved is lost.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// The disk is a separate one, in a mount namespace that ends with the server.
	cmd := inUserNamespace(t, "-rm", "mount -t tmpfs -o size=24m disk "+dir+" && ")
	v := runVictim(t, sandboxtest.Auto, dir+"/state", cmd, "TMPDIR="+dir)
	var at wire.SandboxResponse
	require.NoError(t, v.try("POST", "/v2/sandboxes", obj{"projectId": "prj", "name": "one"}, &at))
	sess := at.Session.ID
	_, err := v.sh(sess, "echo precious > file; dd if=/dev/zero of=big bs=1M count=40 2>/dev/null; echo full")
	require.NoError(t, err)

	out := v.stream(sess, "seq 1 200000")
	assert.Contains(t, out, `"stream":"error"`, "the output is incomplete, and the stream says so")
	assert.Contains(t, out, "no space left")

	for _, path := range []string{"/snapshot", "/stop"} {
		err := v.try("POST", session(sess)+path, obj{}, new(wire.StopResponse))
		require.ErrorContains(t, err, ": 507 ", path)
		require.ErrorContains(t, err, "continues with its files", path)
		text, err := v.sh(sess, "cat file")
		require.NoError(t, err)
		assert.Equal(t, "precious", text)
	}

	// The server confirms only what it has saved. Failed attempts free space, which is
	// filled again.
	refused := func(method string, ask func(attempt int) (path string, body obj)) {
		t.Helper()
		for attempt := range 100 {
			_, err := v.sh(sess, "dd if=/dev/zero bs=1k 2>/dev/null >>more; echo full")
			require.NoError(t, err)
			path, body := ask(attempt)
			if err := v.try(method, path+"?projectId=prj", body, new(map[string]any)); err != nil {
				require.ErrorContains(t, err, "507 ")
				return
			}
		}
		t.Error("no change fails on a full disk")
	}
	refused("PATCH", func(attempt int) (string, obj) { return "/v2/sandboxes/one", obj{"timeout": 600_000 + attempt} })
	refused("POST", func(attempt int) (string, obj) {
		return fmt.Sprint("/v2/sandboxes/drives/disk", attempt), obj{"projectId": "prj"}
	})

	_, err = v.sh(sess, "rm big more; echo room")
	require.NoError(t, err)
	require.NoError(t, v.try("POST", session(sess)+"/stop", obj{}, new(wire.StopResponse)))
	require.NoError(t, v.try("GET", "/v2/sandboxes/one?projectId=prj&resume=true", nil, &at))
	text, err := v.sh(at.Session.ID, "cat file")
	require.NoError(t, err)
	assert.Equal(t, "precious", text)
}
