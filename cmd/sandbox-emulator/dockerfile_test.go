package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDockerfile: the image is built with the Go version of go.mod. It starts the emulator
// with valid flags, to which the arguments of "docker run" are added.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	lines := make(map[string]string)
	text, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if word, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if name, value, ok := strings.Cut(rest, "="); ok && word == "ARG" {
				word, rest = name, value
			}
			lines[word] = rest
		}
	}
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	assert.Contains(t, string(mod), "\ngo "+strings.TrimPrefix(lines["GO"], "golang:"))
	var entry []string
	require.NoError(t, json.Unmarshal([]byte(lines["ENTRYPOINT"]), &entry))
	o, err := parse(append(entry[1:], "-token", "secret", "-host", "emulator", "true"), io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "0.0.0.0:"+lines["EXPOSE"], o.addr)
	assert.Equal(t, []string{"emulator"}, o.hosts)
	assert.Equal(t, []string{"true"}, o.command)
	assert.Equal(t, o.hosts, o.config(io.Discard).Hosts)
}
