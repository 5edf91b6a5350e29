package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// update makes TestDocs write the generated parts of pages: go test -run TestDocs -update.
var update = flag.Bool("update", false, "write the files that are generated, instead of comparing them")

const (
	generatedFrom = "<!-- What follows is written by: go test -C cmd/sandbox -run TestDocs . -update -->\n"
	generatedTo   = "<!-- end -->\n"
)

// TestDocs: the list of differences from the official CLI is the one that the tests use,
// and docs/cli.md links to it and to existing pictures.
func TestDocs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	assert.Contains(t, string(data), "(maintainers/cli.md)")
	for _, picture := range regexp.MustCompile(`\((media/[\w.-]+)\)`).FindAllStringSubmatch(string(data), -1) {
		_, err := os.Stat("../../docs/" + picture[1])
		assert.NoError(t, err)
	}
	generated(t, "../../docs/maintainers/cli.md", differences(t)+"\n"+exitCodes(t))
}

// generated checks that the part of a page between two marks is a text, or writes it
// there.
func generated(t *testing.T, file, text string) {
	t.Helper()
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), generatedFrom)
	require.True(t, found, file)
	old, after, found := strings.Cut(rest, generatedTo)
	require.True(t, found, file)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+generatedFrom+"\n"+text+"\n"+generatedTo+after), 0o644))
		return
	}
	assert.Equal(t, "\n"+text+"\n", old, "run it with -update")
}

// differences lists the departures, one line for each reason. For departures that no
// comparison covers, the line names the test.
func differences(t *testing.T) string {
	t.Helper()
	var departures []*departure
	load(t, "testdata/departures.json", &departures)
	var text strings.Builder
	said := map[string]bool{}
	for _, d := range departures {
		if d.ID == "version" || d.Only == "recorded" || said[d.Reason] {
			continue // not a difference between the two programs
		}
		said[d.Reason] = true
		held := ""
		if d.Kind == "elsewhere" {
			held = coveredBy(t, d)
		}
		fmt.Fprintf(&text, "- %s%s%s.\n", strings.ToUpper(d.Reason[:1]), d.Reason[1:], held)
	}
	return text.String()
}

// coveredBy names the test of a departure that no comparison covers.
func coveredBy(t *testing.T, d *departure) string {
	t.Helper()
	if d.Test == "none" {
		return ""
	}
	if _, err := os.Stat("testdata/script/" + d.Test + ".txt"); err == nil {
		return " (`TestScripts/" + d.Test + "`)"
	}
	var sources []byte
	for _, pattern := range []string{"*_test.go", "internal/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, f := range files {
			source, err := os.ReadFile(f)
			require.NoError(t, err)
			sources = append(sources, source...)
		}
	}
	assert.Contains(t, string(sources), "\nfunc "+d.Test+"(", "no test covers the departure %s", d.ID)
	return " (`" + d.Test + "`)"
}

// exitCodes lists this program's exit codes of the lines for which the official CLI returns
// 1.
func exitCodes(t *testing.T) string {
	t.Helper()
	meanings := map[int]string{
		2: "a mistake in the command line", 3: "not found", 4: "not logged in, or not allowed", 5: "exists already, or is in use", 24: "copied, except for files that changed or could not be read",
		125: "the command did not start", 126: "the command can't be executed", 127: "the command does not exist",
	}
	found := map[int][]string{}
	for _, file := range append([]string{"testdata/record.json"}, moreLines...) {
		var lines []recordedLine
		load(t, file, &lines)
		for _, l := range lines {
			if l.Here != 0 {
				found[l.Here] = append(found[l.Here], strings.Join(l.Argv, " "))
			}
		}
	}
	text := "| exit code (official CLI: 1) | meaning | recorded lines | example |\n| --- | --- | --- | --- |\n"
	for _, code := range slices.Sorted(maps.Keys(found)) {
		require.NotEmpty(t, meanings[code], "exit code %d", code)
		text += fmt.Sprintf("| %d | %s | %d | `sandbox %s` |\n", code, meanings[code], len(found[code]), found[code][0])
	}
	return text
}
