package preview

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRelative: the relative form of the server's own address can't denote another host.
// Browsers treat a backslash like a slash.
func TestRelative(t *testing.T) {
	t.Parallel()
	own, err := url.Parse("https://web.example")
	require.NoError(t, err)
	for value, want := range map[string]string{
		"https://web.example/a":               "/a",
		"https://web.example":                 "/",
		"https://web.example//evil.test":      "/.//evil.test",
		`https://web.example/\evil.test`:      `/./\evil.test`,
		`https://web.example\evil.test`:       `/\evil.test`,
		"https://web.example?q=//evil.test":   "/?q=//evil.test",
		"https://elsewhere.test/a":            "https://elsewhere.test/a",
		"https://web.example.evil.test/a":     "https://web.example.evil.test/a",
		"https://web.example@evil.test/a":     "https://web.example@evil.test/a",
		`https://web.example/\/\evil.test/..`: `/./\/\evil.test/..`,
	} {
		assert.Equal(t, want, translatingTransport{&portTransport{port: 3000}}.relative(value, own), value)
	}
}

// TestReplayedBody: each attempt gets the same bytes, however many the previous one has
// read.
func TestReplayedBody(t *testing.T) {
	t.Parallel()
	sent := make([]byte, 100<<10)
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	body := &replayBody{src: io.NopCloser(bytes.NewReader(sent)), reading: make(chan struct{}, 1)}
	for _, read := range []int{1, 40_001, 70_000, 70_000, 3} {
		got := make([]byte, read)
		_, err := io.ReadFull(body.attempt(), got)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(sent[:read], got), "%d bytes", read)
	}
	got, err := io.ReadAll(body.attempt())
	require.NoError(t, err)
	assert.True(t, bytes.Equal(sent, got))
}
