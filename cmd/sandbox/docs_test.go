package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocs wants each departure from the official CLI, and each picture, in the
// documentation.
func TestDocs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	text := strings.ToLower(string(data))
	var departures []*departure
	load(t, "testdata/departures.json", &departures)
	for _, d := range departures {
		if d.ID == "version" || d.Only == "recorded" {
			continue // not a difference between the two programs
		}
		assert.Contains(t, text, strings.ToLower(d.Reason), d.ID)
	}
	for _, picture := range regexp.MustCompile(`\((media/[\w.-]+)\)`).FindAllStringSubmatch(string(data), -1) {
		_, err := os.Stat("../../docs/" + picture[1])
		assert.NoError(t, err)
	}
}
