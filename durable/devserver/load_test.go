package devserver_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// followEnds follows a session until the test ends, across all broken connections, and
// calls ended at each command's end.
func followEnds(t *testing.T, base, id string, ended func(command string)) {
	for cursor := ""; t.Context().Err() == nil; testkit.Linger(20 * time.Millisecond) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/events?runId="+id+"&cursor="+cursor, nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for resp.StatusCode == http.StatusOK && lines.Scan() {
			var e session.Event
			if json.Unmarshal(lines.Bytes(), &e) != nil || e.Type == "ping" {
				continue
			}
			if cursor = e.Cursor.String(); e.Type == session.TypeCommandEnd {
				assert.NotNil(t, e.ExitCode, "%s: %s", e.Outcome, e.Error)
				ended(e.ID)
			}
		}
		resp.Body.Close()
	}
}

func newSession(t *testing.T, base string) string {
	resp, err := http.Post(base+"/start", "application/json", nil)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	return resp.Header.Get("X-Workflow-Run-Id")
}

// latencies collects durations.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, d)
}

func (l *latencies) String() string {
	slices.Sort(l.all)
	at := func(p int) time.Duration { return l.all[(len(l.all)*p+99)/100-1].Round(time.Millisecond) }
	return fmt.Sprintf("p50 %v, p99 %v, of %d", at(50), at(99), len(l.all))
}

// memory returns the resident memory of a process in KiB.
func memory(t *testing.T, pid int) (kib int) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		needs.Other(t, "needs /proc for the memory of a process")
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err = strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			require.NoError(t, err)
		}
	}
	return kib
}

// TestManySessions runs commands in many sessions at once, each with a viewer. It logs the
// time from a command's POST until its viewer sees the end, and the service's memory.
// SANDBOX_DURABLE_SESSIONS is the number of sessions; docs/durable-service.md has the
// figures for 100.
func TestManySessions(t *testing.T) {
	const commands = 5
	n := number(t, "SANDBOX_DURABLE_SESSIONS", 5, 25)
	_, config := startEmulator(t)
	service, base := startService(t, config)
	before := memory(t, service.Process.Pid)
	var started, posted, seen latencies
	var wg sync.WaitGroup
	began := time.Now()
	for range n {
		wg.Go(func() {
			id := newSession(t, base)
			over := make(chan string, 1)
			go followEnds(t, base, id, func(command string) { over <- command })
			for i := range commands {
				sent := time.Now()
				response := post(t, func() string { return base }, "/command", map[string]any{"runId": id, "command": "echo out", "key": strconv.Itoa(i)})
				took := time.Since(sent)
				if !assert.Equal(t, response["id"], <-over) {
					return
				}
				if i == 0 { // the first one also waits for the machine
					started.add(time.Since(sent))
					continue
				}
				posted.add(took)
				seen.add(time.Since(sent))
			}
		})
	}
	wg.Wait()
	assert.Len(t, seen.all, n*(commands-1))
	t.Logf("%d sessions with a viewer each, %d commands in %v", n, n*commands, time.Since(began).Round(100*time.Millisecond))
	t.Logf("first command, with the machine: %v", &started)
	t.Logf("POST answered: %v", &posted)
	t.Logf("end seen: %v", &seen)
	t.Logf("memory of the service: %d MiB, %d before", memory(t, service.Process.Pid)>>10, before>>10)
}

// TestManyViewers: every viewer of one session sees the end of every command. It logs the
// delay between a command's POST and that event, and the service's memory.
// SANDBOX_DURABLE_VIEWERS is the number of viewers; docs/durable-service.md has the
// figures for 100.
func TestManyViewers(t *testing.T) {
	const commands = 5
	n := number(t, "SANDBOX_DURABLE_VIEWERS", 20, 100)
	_, config := startEmulator(t)
	service, base := startService(t, config)
	id := newSession(t, base)
	over := make(chan string)
	go followEnds(t, base, id, func(command string) { over <- command })
	run := func(key string, script string) time.Time {
		sent := time.Now()
		post(t, func() string { return base }, "/command", map[string]any{"runId": id, "command": script, "key": key})
		return sent
	}
	run("first", "true")
	<-over
	before := memory(t, service.Process.Pid)
	for range n - 1 {
		go followEnds(t, base, id, func(command string) { over <- command })
	}
	for range n - 1 {
		<-over // every viewer has caught up
	}
	var seen, last latencies
	for i := range commands {
		sent := run(strconv.Itoa(i), "seq 100")
		for range n {
			<-over
			seen.add(time.Since(sent))
		}
		last.add(time.Since(sent))
	}
	t.Logf("%d viewers of one session; end seen: %v; by all of them: %v", n, &seen, &last)
	t.Logf("memory of the service: %d MiB, %d before the viewers came", memory(t, service.Process.Pid)>>10, before>>10)
}

// TestAsleep: sleeping sessions have no machine, timer or activity. A service that starts
// makes no request for them. SANDBOX_DURABLE_ASLEEP is the number of sessions;
// docs/durable-service.md has the figures for 1,000.
func TestAsleep(t *testing.T) {
	n := number(t, "SANDBOX_DURABLE_ASLEEP", 5, 50)
	emulator, config := startEmulator(t)
	config.IdleAfter = time.Second
	service, base := startService(t, config)
	empty, emptyRows := memory(t, service.Process.Pid), size(t, filepath.Join(config.Dir, "temporal"))
	ids := make([]string, n)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 20)
	for i := range ids {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ids[i] = newSession(t, base)
		})
	}
	wg.Wait()
	state := func(id string) (s session.State) {
		for { // retry: the service may be too busy
			resp, err := http.Get(base + "/session?runId=" + id)
			require.NoError(t, err)
			data, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			require.NoError(t, err)
			if resp.StatusCode != http.StatusServiceUnavailable {
				require.Equal(t, http.StatusOK, resp.StatusCode, "%s", data)
				require.NoError(t, json.Unmarshal(data, &s))
				return s
			}
		}
	}
	for _, id := range ids {
		require.Eventually(t, func() bool { return state(id).State == session.StateHibernated }, 10*time.Minute, 50*time.Millisecond)
		assert.Zero(t, state(id).HibernatesAt, "no timer remains")
	}
	full := memory(t, service.Process.Pid)
	for info, err := range emulator.Client().List(t.Context(), nil) {
		require.NoError(t, err)
		assert.Equal(t, sandbox.StatusStopped, info.Status)
	}
	require.NoError(t, service.Process.Kill())
	_ = service.Wait()
	rows := size(t, filepath.Join(config.Dir, "temporal"))

	asked := len(emulator.Requests())
	service, base = startService(t, config)
	fresh := memory(t, service.Process.Pid)
	// Query only one session. The service must do nothing for the others.
	assert.Equal(t, session.StateHibernated, state(ids[0]).State)
	assert.Len(t, emulator.Requests(), asked, "the service sends no request to the platform")
	post(t, func() string { return base }, "/command", map[string]any{"runId": ids[0], "command": "true", "key": "wakes"})
	over := make(chan string, 1)
	go followEnds(t, base, ids[0], func(command string) { over <- command })
	assert.Equal(t, "cmd-1", <-over)
	t.Logf("%d sessions asleep: %d KiB of rows each", n, (rows-emptyRows)/int64(n)>>10)
	t.Logf("memory of the service: %d MiB without any, %d when all of them have gone to sleep, %d started again", empty>>10, full>>10, fresh>>10)
}

// size returns the size of a folder in bytes.
func size(t *testing.T, dir string) (n int64) {
	require.NoError(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}
