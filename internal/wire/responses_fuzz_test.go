package wire

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzResponses decodes every kind of response. A decoded response can be
// encoded, and decodes to the same value, so that nothing is lost in serialized
// handles and the emulator's state.
func FuzzResponses(f *testing.F) {
	files, err := filepath.Glob("../../testdata/rest/*.json")
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
	for _, data := range []string{
		`{}`, `null`, `[]`, `{"sandboxes":[{"name":"a","tags":{"k":"v"}}],"pagination":{"count":1,"next":"c"}}`,
		`{"sessions":[{"id":"s","status":"new one","future":[1]}],"pagination":{"count":1,"next":null}}`,
		`{"snapshots":[{"snapshot":{"id":"s"},"siblings":[{"id":"t"}],"count":"2"}],"anchor":{"snapshot":{"id":"a"}},"pagination":{}}`,
		`{"commands":[{"id":"c","exitCode":null},{"id":"d","exitCode":-1,"durationMs":0.5}]}`,
		`{"session":{"id":"s","later":1e700}}`, `{"url":"wss://x","token":"t"}`, `{"error":{"code":5,"message":["x"]}}`, `{"error":"plain"}`,
		`{"session":{"id":"s","timeout":1e400,"createdAt":-1e300,"startedAt":"x"}}`,
		`{"sandbox":{"networkPolicy":{"mode":"custom","injectionRules":[{"domain":"d","match":{"path":null}}]}}}`,
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		roundTrip[SandboxResponse](t, data)
		roundTrip[UpdateResponse](t, data)
		roundTrip[SandboxesPage](t, data)
		roundTrip[SessionResponse](t, data)
		roundTrip[SessionsPage](t, data)
		roundTrip[StopResponse](t, data)
		roundTrip[SnapshotResponse](t, data)
		roundTrip[SnapshotsPage](t, data)
		roundTrip[SnapshotTreePage](t, data)
		roundTrip[CommandResponse](t, data)
		roundTrip[CommandsResponse](t, data)
		roundTrip[InteractiveResponse](t, data)
		roundTrip[ErrorResponse](t, data)
	})
}

func roundTrip[T any](t *testing.T, data []byte) {
	t.Helper()
	var v, again T
	if json.Unmarshal(data, &v) != nil {
		return
	}
	text, err := json.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &again), "%s", text)
	second, err := json.Marshal(again)
	require.NoError(t, err)
	require.Equal(t, string(text), string(second))
}
