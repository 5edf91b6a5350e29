package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// officialCLI returns the path of npm's sandbox. It skips the test if it is not
// installed.
func officialCLI(t *testing.T) string {
	t.Helper()
	needs.Programs(t, "node")
	program := filepath.Join(os.Getenv("SANDBOX_JS_MODULES"), "sandbox", "bin", "sandbox.mjs")
	if _, err := os.Stat(program); err != nil {
		needs.Missing(t, "in SANDBOX_JS_MODULES a node_modules folder of testdata/npm, with sandbox")
	}
	return program
}

func (d *workspace) officialCommand(program string, argv []string) *exec.Cmd {
	d.t.Helper()
	hook, err := filepath.Abs("../sandbox-emulator/hook.mjs")
	require.NoError(d.t, err)
	cmd := exec.CommandContext(d.t.Context(), "node", append([]string{"--import", hook, program}, argv...)...)
	cmd.Dir = d.dir
	cmd.Env = append(slices.Clone(d.env), "SANDBOX_SKIP_VERSION_CHECK=1", "VERCEL_SANDBOX_TELEMETRY_DISABLED=1")
	return cmd
}

// TestLiveTwins runs the official CLI and this program side by side, each with its own
// emulator, with the recorded lines. It compares standard output, exit code, requests and
// the resulting files. The differences are those of departures.json, and each occurs.
func TestLiveTwins(t *testing.T) {
	needs.Long(t, "starts Node for each of some 200 lines, whose recording TestTwins plays")
	t.Parallel()
	program := officialCLI(t)
	var lines []recordedLine
	load(t, "testdata/record.json", &lines)
	liveTwins(t, program, "live", lines).allSeen()
}

// TestMoreLiveTwins is TestLiveTwins with the lines of TestMoreTwins, which the daytime
// test compares with recordings. If SANDBOX_RECORD_TWINS is a directory, it records there
// what the official CLI does.
func TestMoreLiveTwins(t *testing.T) {
	needs.Long(t, "starts Node for each of some 500 lines, whose recording TestMoreTwins plays")
	t.Parallel()
	program := officialCLI(t)
	for _, file := range moreLines {
		t.Run(path.Base(file), func(t *testing.T) {
			t.Parallel()
			var lines []recordedLine
			load(t, file, &lines)
			// The emulator now refuses another team, which it did not when this line was
			// recorded.
			lines = slices.DeleteFunc(lines, func(l recordedLine) bool { return slices.Contains(l.Argv, "team_other") })
			liveTwins(t, program, "more", lines)
			if dir := os.Getenv("SANDBOX_RECORD_TWINS"); dir != "" {
				record(t, filepath.Join(dir, path.Base(file)), lines)
			}
		})
	}
}

func record(t *testing.T, file string, lines []recordedLine) {
	t.Helper()
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	require.NoError(t, enc.Encode(lines))
	require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
}

func liveTwins(t *testing.T, program, comparison string, lines []recordedLine) *twins {
	t.Helper()
	tw := newTwins(t, comparison)
	there := twinWorkspace(t)
	for i, l := range lines {
		if i%keepEvery == 0 {
			there.keep()
			tw.workspace.keep()
		}
		there.seen()
		got := l.finish(t, there.officialCommand(program, there.withSnapshot(l.Argv)))
		l.RC, l.Stdout, l.Calls = got.code, got.stdout, nil
		for _, r := range there.seen() {
			l.Calls = append(l.Calls, recordedCall{Method: r.Method, URL: r.Path + "?" + r.Query.Encode(), Body: string(r.Body), Status: r.Status})
		}
		tw.stderr = got.stderr
		tw.replay(i, l)
		lines[i] = l
	}
	// Only this program copies directories, so remove the copy before comparing the files.
	require.NoError(t, os.RemoveAll(filepath.Join(tw.workspace.dir, "x")))
	assert.Equal(t, there.files(), tw.workspace.files())
	return tw
}

// After every keepEvery command lines, the test extends the sandboxes' timeouts. On a slow
// machine, Node needs more time for all command lines than one timeout.
const keepEvery = 10

// keep extends the timeouts of the running sandboxes, and creates the working directory
// that the recorded sandboxes had.
func (d *workspace) keep() {
	d.t.Helper()
	ctx := d.t.Context()
	for info, err := range d.server.Client().List(ctx, nil) {
		require.NoError(d.t, err)
		if info.Status != sandbox.StatusRunning {
			continue
		}
		sb, err := d.server.Client().Get(ctx, info.Name, &sandbox.GetOptions{NoResume: true})
		require.NoError(d.t, err)
		require.NoError(d.t, sb.ExtendTimeout(ctx, 30*time.Minute))
		require.NoError(d.t, sb.FS().MkdirAll(ctx, "/vercel/sandbox", 0o755))
	}
}

// files returns the files of the workspace with their content.
func (d *workspace) files() map[string]string {
	d.t.Helper()
	found := map[string]string{}
	require.NoError(d.t, filepath.WalkDir(d.dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		found[strings.TrimPrefix(name, d.dir)] = fmt.Sprint(e.Type(), " ", string(data))
		return err
	}))
	return found
}
