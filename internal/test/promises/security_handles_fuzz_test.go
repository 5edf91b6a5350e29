package promises_test

import (
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// pathRecorder is a transport that refuses all requests and records their paths.
type pathRecorder struct{ paths []string }

func (a *pathRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	a.paths = append(a.paths, r.URL.EscapedPath())
	return &http.Response{
		StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"error":{"code":"not_found","message":"no"}}`)), Request: r,
	}, nil
}

// FuzzHandleJSON unmarshals handles from arbitrary JSON. Whatever a handle contains, its
// methods send requests only to their own routes.
func FuzzHandleJSON(f *testing.F) {
	f.Add(`{"metadata":{"id":"sbx_1","status":"running","timeout":300000,"cwd":"/vercel/sandbox","createdAt":1795292481861},` +
		`"routes":[],"sandboxMetadata":{"name":"thename","currentSessionId":"sbx_1","status":"running","persistent":true},"projectId":"prj"}`)
	f.Add(`{"metadata":{"id":".."},"routes":[],"sandboxMetadata":{"name":"../x","currentSessionId":".."},"projectId":"."}`)
	f.Add(`{"session":{"id":"sbx_1","status":"running","memory":4096,"requestedAt":1795292481861},"routes":[]}`)
	f.Add(`{"sandboxId":"sbx_1","cmd":{"id":"c1","name":"true","args":[],"cwd":"/","sessionId":"sbx_1","startedAt":1,"exitCode":null}}`)
	f.Add(`{"sandboxId":"..","cmd":{"id":".","name":"true","args":[],"sessionId":"sessions/.."}}`)
	f.Add(`{"snapshot":{"id":"snap_1","sourceSessionId":"sbx_1","status":"created","sizeBytes":110,"expiresAt":1797884481935}}`)
	f.Add(`{"snapshot":{"id":"tree"}}`)
	f.Add(`null`)
	transport := &pathRecorder{}
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: "https://vercel.com/api", HTTPClient: &http.Client{Transport: transport}, MaxRetries: -1,
		Credentials: auth.Static(auth.Credentials{Token: "fuzz-token", TeamID: "team", ProjectID: "prj"}),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		transport.paths = nil
		ctx := t.Context()
		var sb sandbox.Sandbox
		if json.Unmarshal([]byte(text), &sb) == nil {
			client.Bind(&sb)
			_ = sb.Update(ctx, &sandbox.UpdateOptions{Tags: map[string]string{"a": "b"}})
			_ = sb.Delete(ctx, nil)
			checkRoundTrip(t, &sb, new(sandbox.Sandbox))
		}
		var session sandbox.Session
		if json.Unmarshal([]byte(text), &session) == nil {
			client.Bind(&session)
			_, _ = session.StartCommand(ctx, "true", nil, nil)
			checkRoundTrip(t, &session, new(sandbox.Session))
		}
		var command sandbox.Command
		if json.Unmarshal([]byte(text), &command) == nil {
			client.Bind(&command)
			_ = command.Signal(ctx, sandbox.SIGTERM)
			checkRoundTrip(t, &command, new(sandbox.Command))
		}
		var snapshot sandbox.Snapshot
		if json.Unmarshal([]byte(text), &snapshot) == nil {
			client.Bind(&snapshot)
			_ = snapshot.Delete(ctx)
			checkRoundTrip(t, &snapshot, new(sandbox.Snapshot))
		}
		for _, p := range transport.paths {
			if path.Clean(p) != p || !strings.HasPrefix(p, "/api/v2/sandboxes/") || strings.Contains(p, "//") {
				t.Errorf("%q reaches %q", text, p)
			}
		}
	})
}

// checkRoundTrip marshals a handle, unmarshals the text, and marshals the result. Both
// texts must be equal.
func checkRoundTrip(t *testing.T, handle, other interface {
	json.Marshaler
	json.Unmarshaler
}) {
	t.Helper()
	first, err := handle.MarshalJSON()
	if err != nil {
		return // the fuzzed text was not a valid handle
	}
	if err := other.UnmarshalJSON(first); err != nil {
		t.Errorf("%s can't be unmarshaled again: %v", first, err)
		return
	}
	second, err := other.MarshalJSON()
	if err != nil || string(first) != string(second) {
		t.Errorf("%s becomes %s, %v", first, second, err)
	}
}
