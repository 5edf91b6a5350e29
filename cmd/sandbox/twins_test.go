package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// recordedLine is a recorded command line of the official CLI.
type recordedLine struct {
	Argv   []string       `json:"argv"`
	Dir    string         `json:"dir,omitempty"`   // the folder to run in, below the working directory
	Env    []string       `json:"env,omitempty"`   // variables in addition to the usual ones
	Stdin  string         `json:"stdin,omitempty"` // standard input
	TTY    bool           `json:"tty,omitempty"`   // standard output is a terminal
	RC     int            `json:"rc"`
	Here   int            `json:"here,omitempty"` // this program's exit code, if the official CLI's is 1
	Help   bool           `json:"help,omitempty"` // standard output was a help page, which another test compares
	Stdout string         `json:"stdout"`
	Calls  []recordedCall `json:"calls"`
}

// String returns the line as departures.json writes it, with remarks at its end.
func (l *recordedLine) String() string {
	line := strings.Join(l.Argv, " ")
	if l.TTY {
		line += " # at a terminal"
	}
	if l.Dir != "" {
		line += " # in " + l.Dir
	}
	if len(l.Env) > 0 {
		line += " # with " + strings.Join(l.Env, " ")
	}
	return line
}

// run runs this program with the line.
func (l *recordedLine) run(d *workspace, argv []string) outcome {
	d.t.Helper()
	if !l.TTY && len(l.Env) == 0 {
		if got, ran := d.runInWorker(d.line(l.Stdin, argv...).in(l.Dir)); ran {
			return got
		}
	}
	return l.finish(d.t, d.command(d.t.Context(), argv...))
}

// finish runs a program with the line.
func (l *recordedLine) finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	cmd.Dir = filepath.Join(cmd.Dir, l.Dir)
	cmd.Env = append(slices.Clone(cmd.Env), l.Env...)
	cmd.Stdin = strings.NewReader(l.Stdin)
	if l.TTY {
		return finishAtTerminal(t, cmd)
	}
	return finish(t, cmd)
}

// finishAtTerminal is finish with a terminal as standard output.
func finishAtTerminal(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	ours, own, err := pty.Open()
	require.NoError(t, err)
	defer ours.Close()
	require.NoError(t, pty.Setsize(own, &pty.Winsize{Rows: 24, Cols: 200}))
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = own, &stderr
	require.NoError(t, cmd.Start())
	require.NoError(t, own.Close())
	seen, _ := io.ReadAll(ours) // an error is the end of a terminal
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), strings.ReplaceAll(string(seen), "\r\n", "\n"), stderr.String()}
}

// recordedCall is a request of the official CLI.
type recordedCall struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	Body   string `json:"body"`
	Status int    `json:"status"`
}

// departure is an intended difference from the official CLI.
type departure struct {
	// ID is the name of the departure.
	ID string
	// Kind is what differs: stdout, exit, field or requests. A line of kind apart fails in
	// the official CLI and succeeds here. It runs with its own emulator, so that it does
	// not affect the lines after it. A line of kind refused succeeds in the official CLI,
	// and is refused here without a request. A difference of kind elsewhere does not occur
	// in these comparisons; Test covers it.
	Kind string
	// Test is the test, or the script of TestScripts, for a difference of kind elsewhere.
	// It is "none" for a feature that this program does not have.
	Test string
	// Line is a pattern for the command lines; empty means all. Unless is a pattern for
	// exceptions.
	Line, Unless string
	// Exit is this program's exit code, for kinds exit, apart and refused.
	Exit int
	// Stdout is a pattern for this program's standard output, for kinds stdout and apart.
	Stdout string
	// Theirs and Ours are patterns for requests that only one of the two programs makes,
	// for kinds requests and apart.
	Theirs, Ours string
	// Field is the path of a field in request bodies that is not sent if it has this
	// value, for kind field.
	Field string
	Value any
	// Only names the one comparison in which the difference occurs: "recorded" compares
	// with a recording of the official CLI that used an older emulator, "live" does not,
	// and "more" has the lines of more.json.
	Only string
	// Reason says why.
	Reason string

	seen bool
}

func (d *departure) fits(kind, line string) bool {
	return d.Kind == kind && (d.Line == "" || regexp.MustCompile(d.Line).MatchString(line)) &&
		(d.Unless == "" || !regexp.MustCompile(d.Unless).MatchString(line))
}

type twins struct {
	t          *testing.T
	workspace  *workspace
	apart      *workspace
	departures []*departure
	// live says that the expected results come from a run of the official CLI just now,
	// with an emulator like this one. stderr is its standard error.
	live   bool
	stderr string
}

// newTwins returns this program's workspace with the departures of a comparison.
func newTwins(t *testing.T, comparison string) *twins {
	t.Helper()
	tw := &twins{t: t, workspace: twinWorkspace(t), live: comparison != "recorded"}
	load(t, "testdata/departures.json", &tw.departures)
	tw.departures = slices.DeleteFunc(tw.departures, func(d *departure) bool {
		return d.Kind == "elsewhere" || d.Only != "" && d.Only != comparison && (comparison != "more" || d.Only != "live")
	})
	for _, d := range tw.departures {
		require.NotEmpty(t, d.Reason, d.ID)
	}
	return tw
}

// twinWorkspace returns a new workspace with the files that the lines copy.
func twinWorkspace(t *testing.T) *workspace {
	t.Helper()
	// The lines contain paths outside the working directory, so the emulator needs
	// namespaces.
	probe, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Namespace})
	if err != nil {
		needs.Missing(t, "namespaces: %v", err)
	}
	require.NoError(t, probe.Close())
	d := newWorkspace(t, &sandboxtest.Options{Mode: sandboxtest.Namespace})
	d.write("local-file.txt", "local\n")
	d.write("dir/inner.txt", "inner\n")
	d.write("two words.txt", "two words\n")
	for name, content := range map[string]string{"broken": "{", "empty": "", "noids": "{}"} {
		d.write(name+"/.vercel/project.json", content)
	}
	return d
}

// allSeen checks that each departure has occurred.
func (tw *twins) allSeen() {
	tw.t.Helper()
	for _, d := range tw.departures {
		assert.True(tw.t, d.seen, "the departure %s was not seen", d.ID)
	}
}

// TestTwins replays each recorded command line of the official CLI in order, with a fresh
// emulator, and compares standard output, exit code and requests. Each difference has to
// be in departures.json, and each entry there has to occur.
func TestTwins(t *testing.T) {
	t.Parallel()
	tw := newTwins(t, "recorded")
	tw.replayAll("testdata/record.json")
	tw.allSeen()
}

// moreLines are files of lines. Each file starts without a sandbox.
var moreLines = []string{"testdata/more.json", "testdata/further.json", "testdata/terminal.json", "testdata/unusual.json"}

// TestMoreTwins is TestTwins with lines of unusual values, recorded from the official CLI
// 4.5 with this emulator.
func TestMoreTwins(t *testing.T) {
	t.Parallel()
	tw := newTwins(t, "more")
	for _, file := range moreLines {
		tw.workspace, tw.apart = twinWorkspace(t), nil
		tw.replayAll(file)
	}
	tw.departures = slices.DeleteFunc(tw.departures, func(d *departure) bool { return d.Only != "more" })
	tw.allSeen()
}

func load(t *testing.T, name string, v any) {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, v), name)
}

var snapshotID = regexp.MustCompile(`snap_[A-Za-z0-9]{20,}`)

// replayAll replays the lines of a file.
func (tw *twins) replayAll(name string) {
	var lines []recordedLine
	load(tw.t, name, &lines)
	for i, l := range lines {
		tw.replay(i, l)
	}
}

// replay runs a line and compares the result with the official CLI's.
func (tw *twins) replay(i int, l recordedLine) {
	tw.workspace.seen()
	line := l.String()
	argv := tw.workspace.withSnapshot(l.Argv)
	if tw.runApart(l, line, argv) || tw.runRefused(l, line, argv) {
		return
	}
	tw.compare(l, l.run(tw.workspace, argv), line, fmt.Sprintf("%d: sandbox %s", i, line))
}

// compare compares this program's result with the official CLI's.
func (tw *twins) compare(l recordedLine, got outcome, line, where string) {
	where += "\n" + got.stderr + tw.stderr
	tw.compareExit(l, got, line, where)
	tw.compareStdout(l, got, line, where)
	theirs, ours := tw.requests(tw.workspace, l, line)
	tw.compareRequests(theirs, ours, line, where, nil)
}

// runApart runs a line that fails in the official CLI and succeeds here, with its own
// emulator.
func (tw *twins) runApart(l recordedLine, line string, argv []string) bool {
	return tw.departs("apart", line, func(d *departure) bool {
		if tw.apart == nil {
			tw.apart = twinWorkspace(tw.t)
			tw.apart.ok("create", "--name", "c1", "--tag", "env=staging")
			tw.apart.ok("create", "--name", "c2")
			tw.apart.ok("cp", "local-file.txt", "c1:/vercel/sandbox/a.txt")
		}
		tw.apart.seen()
		got := l.run(tw.apart, argv)
		assert.NotZero(tw.t, l.RC, line)
		assert.Equal(tw.t, d.Exit, got.code, "%s\n%s", line, got.stderr)
		assert.Regexp(tw.t, d.Stdout, got.stdout, line)
		theirs, ours := tw.requests(tw.apart, l, line)
		tw.compareRequests(theirs, ours, line, line+"\n"+got.stderr, d)
		return true
	})
}

// runRefused runs a line that succeeds in the official CLI and is refused here.
func (tw *twins) runRefused(l recordedLine, line string, argv []string) bool {
	return tw.departs("refused", line, func(d *departure) bool {
		got := l.run(tw.workspace, argv)
		assert.Zero(tw.t, l.RC, line)
		assert.Equal(tw.t, d.Exit, got.code, "%s\n%s", line, got.stderr)
		assert.Empty(tw.t, got.stdout, line)
		for _, r := range tw.workspace.seen() {
			// The program may look up a project before it refuses the line. It changes
			// nothing.
			assert.Equal(tw.t, "GET ", r.Method+" "+string(r.Operation), "%s: %s", line, r.Path)
		}
		return true
	})
}

// withSnapshot replaces the recorded snapshot by the workspace's snapshot of c2.
func (d *workspace) withSnapshot(argv []string) []string {
	d.t.Helper()
	argv = slices.Clone(argv)
	for i, word := range argv {
		if !snapshotID.MatchString(word) {
			continue
		}
		if d.snapshot == "" {
			all, err := sandbox.Collect(d.server.Client().ListSnapshots(d.t.Context(), &sandbox.ListSnapshotsOptions{Sandbox: "c2", SortOrder: "asc"}))
			require.NoError(d.t, err)
			require.NotEmpty(d.t, all)
			d.snapshot = all[0].ID
			d.seen()
		}
		argv[i] = d.snapshot
	}
	return argv
}

func (tw *twins) departs(kind, line string, fits func(*departure) bool) bool {
	for _, d := range tw.departures {
		if d.fits(kind, line) && fits(d) {
			d.seen = true
			return true
		}
	}
	return false
}

// compareExit requires the same exit code. If the official CLI itself has failed, with
// code 1, this program may have a more specific code, which the line contains.
func (tw *twins) compareExit(l recordedLine, got outcome, line, where string) {
	want := l.RC
	if l.Here != 0 {
		want = l.Here
	}
	if got.code != want && !tw.departs("exit", line, func(d *departure) bool { return d.Exit == got.code }) {
		assert.Equal(tw.t, want, got.code, "exit code of %s", where)
	}
}

func (tw *twins) compareStdout(l recordedLine, got outcome, line, where string) {
	want, have := normalize(l.Stdout, tw.live), normalize(got.stdout, tw.live)
	if l.Help {
		if strings.Contains(got.stdout, "▲ sandbox") {
			return
		}
		want = "a help page"
	}
	if want == have {
		return
	}
	if !tw.departs("stdout", line, func(d *departure) bool { return regexp.MustCompile(d.Stdout).MatchString(got.stdout) }) {
		assert.Equal(tw.t, want, have, "standard output of %s", where)
	}
}

var normalizers = []struct {
	pattern *regexp.Regexp
	with    string
	// recorded marks replacements that are not needed if both programs have just run.
	recorded bool
}{
	{pattern: snapshotID, with: "SNAPSHOT"},
	{pattern: regexp.MustCompile(`sbx_[A-Za-z0-9]+`), with: "SESSION"},
	{pattern: regexp.MustCompile(`cmd_[A-Za-z0-9]+`), with: "COMMAND"},
	{pattern: regexp.MustCompile(`sandbox-[a-z0-9]{12}`), with: "RANDOM"},
	{pattern: regexp.MustCompile(`run-[a-z0-9]{12}`), with: "RANDOM"},
	{pattern: regexp.MustCompile(`\d+ (seconds?|minutes?) ago`), with: "AGO"},
	{pattern: regexp.MustCompile(`in \d+ (seconds?|minutes?|hours?)`), with: "LEFT"},
	{pattern: regexp.MustCompile(`\b\d+ B\b`), with: "SIZE"},
	{pattern: regexp.MustCompile(`\b[\d.]+m?s\b`), with: "TIME"},
	{pattern: regexp.MustCompile(`(drwx\S+) .* (\.+)\n`), with: "$1 $2\n"},
	{pattern: regexp.MustCompile(`total \d+`), with: "TOTAL"},
	{pattern: regexp.MustCompile(`(\x1b\[(22|39)m)+`), with: "\x1b[0m"},        // both sequences end a style
	{pattern: regexp.MustCompile(`\x1b\[90m\x1b\[2m`), with: "\x1b[90m"},       // in the official CLI, gray is also dim
	{pattern: regexp.MustCompile(`"duration":\d+`), with: `"duration":"LEFT"`}, // the duration of an extension
	// The emulator of the recording replaced every runtime by node24.
	{pattern: regexp.MustCompile(`\bnode2[24]\b|vercel/sandbox/[\w:.-]+(@sha256:\w+…)?`), with: "RUNTIME", recorded: true},
	{pattern: regexp.MustCompile(` {3,}`), with: "   "},
	{pattern: regexp.MustCompile(` +\n`), with: "\n"},
}

// normalize removes what differs between two runs of the same program: IDs, times, and
// the column widths that depend on them.
func normalize(s string, live bool) string {
	for _, n := range normalizers {
		if live && n.recorded {
			continue
		}
		s = n.pattern.ReplaceAllString(s, n.with)
	}
	return s
}

// requests returns the recorded requests, and those that this program has made.
func (tw *twins) requests(d *workspace, l recordedLine, line string) (theirs, ours []string) {
	for _, c := range l.Calls {
		u, err := url.Parse(c.URL)
		require.NoError(tw.t, err)
		theirs = append(theirs, tw.request(c.Method, u.EscapedPath(), u.Query(), c.Body, line, true))
	}
	for _, r := range d.seen() {
		body := string(r.Body)
		if r.Operation == "" { // the emulator does not keep bodies of operations that it does not know
			theirs, body = slices.Collect(withoutBodies(theirs)), ""
		}
		ours = append(ours, tw.request(r.Method, r.Path, r.Query, body, line, false))
	}
	return theirs, ours
}

func withoutBodies(requests []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, r := range requests {
			request, _, _ := strings.Cut(r, " {")
			if !yield(request) {
				return
			}
		}
	}
}

// compareRequests compares requests as sets. apart is the departure of a line that ran
// with its own emulator, or nil.
func (tw *twins) compareRequests(theirs, ours []string, line, where string, apart *departure) {
	meant := func(request string, pattern func(*departure) string) bool {
		fits := func(d *departure) bool {
			return pattern(d) != "" && regexp.MustCompile(pattern(d)).MatchString(request)
		}
		return apart != nil && fits(apart) || tw.departs("requests", line, fits)
	}
	for _, want := range theirs {
		if i := slices.Index(ours, want); i >= 0 {
			ours = slices.Delete(ours, i, i+1)
		} else if !meant(want, func(d *departure) string { return d.Theirs }) {
			assert.Fail(tw.t, "a request is missing", "%s\n%s\ninstead %s", want, where, strings.Join(ours, "\n        "))
		}
	}
	for _, extra := range ours {
		if !meant(extra, func(d *departure) string { return d.Ours }) {
			assert.Fail(tw.t, "an additional request", "%s\n%s", extra, where)
		}
	}
}

// request formats a request as one line: method, path, sorted query, and the body as
// sorted JSON.
func (tw *twins) request(method, path string, query url.Values, body, line string, recorded bool) string {
	var fields map[string]any
	text := ""
	switch {
	case strings.HasPrefix(body, "<"):
		text = ""
	case json.Unmarshal([]byte(body), &fields) == nil:
		if recorded {
			tw.dropFields(fields, "", line)
		}
		data, err := json.Marshal(fields)
		require.NoError(tw.t, err)
		if text = string(data); text == "{}" {
			text = ""
		}
	}
	return normalize(strings.TrimSpace(fmt.Sprintf("%s %s?%s %s", method, path, query.Encode(), text)), tw.live)
}

// dropFields removes the fields of a recorded body that this program does not send.
// prefix is the path of the object in the body, with a dot at its end.
func (tw *twins) dropFields(fields map[string]any, prefix, line string) {
	for name, value := range fields {
		if tw.departs("field", line, func(d *departure) bool { return d.Field == prefix+name && assert.ObjectsAreEqual(d.Value, value) }) {
			delete(fields, name)
		} else if inner, ok := value.(map[string]any); ok {
			tw.dropFields(inner, prefix+name+".", line)
		}
	}
}
