//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/testmain"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// asProgram makes the test binary the program itself.
const asProgram = "SANDBOX_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "1" {
		main()
		return
	}
	testmain.Main(m)
}

// program is a process of the service.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
}

func start(t *testing.T, srv *sandboxtest.Server) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0], "-addr", "127.0.0.1:0")}
	p.cmd.Env = append(append(os.Environ(), srv.Environ()...), asProgram+"=1")
	p.cmd.Stderr = os.Stderr
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	p.url = "http://" + strings.TrimSpace(strings.TrimPrefix(line, "Listening on "))
	return p
}

// end ends it as a deployment does.
func (p *program) end() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(p.t, p.cmd.Wait())
}

// say is a turn of alice's. It returns what she reads, an event a line, and calls seen
// for each.
func (p *program) say(text string, seen func(event string)) (events []string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/first", strings.NewReader(text))
	require.NoError(p.t, err)
	req.Header.Set("Authorization", "Bearer alice-s-token")
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	event := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			event = name
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var text string
			require.NoError(p.t, json.Unmarshal([]byte(data), &text))
			events = append(events, event+": "+text)
			if seen != nil {
				seen(events[len(events)-1])
			}
		}
	}
	return events
}

// TestHour: what a user reads in an hour in which her chat sleeps, its machine dies, the
// service is killed in the middle of a turn, and another version of it is deployed.
func TestHour(t *testing.T) {
	srv := sandboxtest.New(t, nil)
	p := start(t, srv)
	answer := func(text string) string {
		t.Helper()
		events := p.say(text, nil)
		last, ok := strings.CutPrefix(events[len(events)-1], "answer: ")
		require.True(t, ok, events)
		return last
	}
	const (
		stopped = "The sandbox was stopped since the last call, and is started again: its files are there, commands in the background and Python's variables are gone.\n"
		died    = "The machine of the sandbox died since the last call, and another one is started: files are as they were when it was last stopped or saved; " +
			"what was written since, commands in the background and Python's variables are gone.\n"
	)
	said := func(text string) string { return "Exit code 0.\n<sandbox-data>\n" + text + "\n</sandbox-data>" }

	slept := 0
	assert.Equal(t, "This sandbox is new: nothing of an earlier one is in it.\n"+said("1"), answer("echo 1 >> log; wc -l < log"))
	for i := range 9 {
		srv.Advance(6 * time.Minute)
		rest, told := strings.CutPrefix(answer("echo more >> log; wc -l < log"), stopped)
		assert.Equal(t, said(fmt.Sprint(i+2)), rest)
		if told {
			slept++
		}
	}
	name := newService(srv.Client()).conversations.Name("alice/first")
	sb, err := srv.Client().Get(t.Context(), name, &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	ends := -1
	for _, err := range sb.ListSessions(t.Context(), nil) {
		require.NoError(t, err)
		ends++
	}
	assert.Equal(t, ends, slept, "each of its ends is told once")
	assert.Positive(t, slept)

	srv.Advance(12 * time.Minute)
	assert.Equal(t, stopped+said("unsaved"), answer("echo unsaved > new; cat new"))
	events := p.say("echo begun; sleep 1000", func(event string) {
		if event == "output: begun\n" {
			assert.True(t, srv.Crash(name))
		}
	})
	assert.Contains(t, events[len(events)-1], "answer: ")
	assert.Equal(t, died+said("10"), answer("cat new 2>/dev/null; wc -l < log"))

	events = p.say("echo saved > new; echo begun; sleep 1000", func(event string) {
		if event == "output: begun\n" {
			assert.NoError(t, p.cmd.Process.Kill())
		}
	})
	assert.Equal(t, []string{"call: bash", "output: begun\n"}, events)
	_ = p.cmd.Wait() // it was killed
	p = start(t, srv)
	assert.Equal(t, said("saved"), answer("cat new"))

	old := p
	p = start(t, srv) // the other version
	old.end()
	assert.Equal(t, stopped+said("saved"), answer("cat new"))
	p.end()
	for info, err := range srv.Client().List(t.Context(), nil) {
		require.NoError(t, err)
		assert.Equal(t, sandbox.StatusStopped, info.Status)
	}
}
