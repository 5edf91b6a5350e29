package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocs wants each departure from the official CLI in its list, which
// docs/cli.md links to, and each picture in its place.
func TestDocs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	assert.Contains(t, string(data), "(maintainers/cli.md)")
	list, err := os.ReadFile("../../docs/maintainers/cli.md")
	require.NoError(t, err)
	text := strings.ToLower(string(list))
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
