package devserver_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

func number(t *testing.T, name string, short, normal int) int {
	if text := os.Getenv(name); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	if !needs.Slow() {
		return short
	}
	return normal
}

// restores counts in lives how often an earlier copy of the database was restored. No
// command is sent during a restore.
type restores struct {
	sync.RWMutex
	lives int
}

// soak lets sessions run commands while it injects faults, one after the other. Each
// command writes to a file in the sandbox, which shows that it ran once. Each event and
// each byte of output must come once. Commands that a restored database has lost are sent
// again with another text. A command may run twice only if its session has reported that.
func soak(t *testing.T, sandboxes *sandbox.Client, base func() string, commands int, faults []func(), history *restores) {
	random := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	sessions := number(t, "SANDBOX_DURABLE_SESSIONS", 5, 5)
	each := commands / sessions
	ids := make([]string, sessions)
	views := make([]*viewer, sessions)
	for i := range ids {
		ids[i] = newSession(t, base())
		views[i] = view(t.Context(), base, ids[i])
	}
	var wg sync.WaitGroup
	var once sync.Mutex // guards random
	calm := make(chan struct{})
	for _, id := range ids {
		// send sends a command.
		send := func(n, life int) {
			once.Lock()
			pause := time.Duration(random.IntN(400)) * time.Millisecond
			lines := 1 + random.IntN(20)
			secret := random.IntN(5) == 0 // a secret text goes into the store
			once.Unlock()
			script := fmt.Sprintf(`echo %d %d >> "$HOME/record"; for i in $(seq %d); do echo "line $i of %[1]d %[2]d"; sleep 0.0%[4]d; done; exit %[5]d`, n, life, lines, n%6, n%3)
			post(t, base, "/command", map[string]any{"runId": id, "command": script, "key": fmt.Sprintf("k%d", n), "secret": secret})
			testkit.Linger(pause)
		}
		wg.Go(func() {
			for n, life := 0, 0; ; n++ {
				if n >= each {
					testkit.Linger(50 * time.Millisecond)
				}
				over := false
				select {
				case <-calm:
					over = true
				default:
				}
				history.RLock()
				if life != history.lives {
					n, life = 0, history.lives
				}
				if n < each {
					send(n, life)
				}
				history.RUnlock()
				if n >= each && over {
					return
				}
			}
		})
	}
	for _, fault := range faults {
		once.Lock()
		pause := 300*time.Millisecond + time.Duration(random.IntN(1700))*time.Millisecond
		once.Unlock()
		testkit.Linger(pause)
		fault()
	}
	close(calm)
	wg.Wait()
	breaks, restarts, again, rewound := 0, 0, 0, 0
	for i, id := range ids {
		v := views[i]
		for began := time.Now(); v.endedCommands() < each && time.Since(began) < 10*time.Minute; testkit.Linger(50 * time.Millisecond) {
		}
		require.Equal(t, each, v.endedCommands(), "session %d", i)
		sb, err := sandboxes.Get(t.Context(), "durable-"+id, nil)
		require.NoError(t, err)
		record, err := sb.FS().ReadFile(t.Context(), homeOf(t, sb)+"/record")
		require.NoError(t, err)
		post(t, base, "/destroy", map[string]any{"runId": id})
		<-v.over
		back := ranOnce(t, string(record), each)
		assert.LessOrEqual(t, back, v.rewound, "session %d reported it before it ran earlier commands again", i)
		assert.LessOrEqual(t, v.rewound, history.lives)
		for n, seq := range v.seqs {
			require.Equal(t, n, seq, "events of session %d: each once, none missing", i)
		}
		for n := range each {
			e := v.ends[fmt.Sprintf("cmd-%d", n+1)]
			require.Equal(t, durable.Exited, e.Outcome)
			require.NotNil(t, e.ExitCode)
			assert.Equal(t, n%3, *e.ExitCode)
			output := v.output[e.ID]
			assert.EqualValues(t, e.Bytes, len(output), "each byte of command %d once", n)
			assert.Contains(t, v.starts[e.ID], "echo "+strings.TrimSuffix(output[strings.LastIndex(output, " of ")+4:], "\n")+" >>", "command %d has the text of its start", n)
		}
		breaks, restarts, again, rewound = breaks+v.breaks, restarts+v.restarts, again+back, rewound+v.rewound
	}
	for info, err := range sandboxes.List(t.Context(), nil) {
		require.NoError(t, err)
		assert.Equal(t, sandbox.StatusStopped, info.Status, "no machine runs after its session")
		assert.Contains(t, ids, strings.TrimPrefix(info.Name, "durable-"))
	}
	t.Logf("%d faults, %d commands in %d sessions, %d broken streams; the database was restored %d times: %d sessions rewound, earlier commands ran again in %d, %d viewers started over",
		len(faults), commands, sessions, breaks, history.lives, rewound, again, restarts)
}

// ranOnce checks that each command ran, in order. It returns how often the record repeats a
// command that had already run.
func ranOnce(t *testing.T, record string, each int) (back int) {
	last, all := -1, map[int]bool{}
	for line := range strings.Lines(record) {
		var n, life int
		_, err := fmt.Sscan(line, &n, &life)
		require.NoError(t, err)
		if all[n] = true; n <= last {
			back++
		} else {
			assert.Equal(t, last+1, n, "commands run in order")
		}
		last = n
	}
	assert.Len(t, all, each, "each command ran")
	assert.Equal(t, each-1, last)
	return back
}

// length returns the number of faults and of commands of a soak.
func length(t *testing.T) (kills, commands int) {
	return number(t, "SANDBOX_DURABLE_KILLS", 4, 15), number(t, "SANDBOX_DURABLE_COMMANDS", 20, 100)
}

// TestKilledServices: three sandbox-sessions share a folder and a Temporal server that runs
// in another process. Two are killed in turn, and sometimes all three with the server,
// while sessions run commands. SANDBOX_DURABLE_KILLS and SANDBOX_DURABLE_COMMANDS make it
// longer.
func TestKilledServices(t *testing.T) {
	kills, commands := length(t)
	config := serverConfig{Dir: t.TempDir(), Port: needs.Port(t)}
	temporal, environ := startServer(t, config)
	program, dir := build(t, "cmd/sandbox-sessions"), t.TempDir()
	var mu sync.Mutex
	var services [3]*service
	restart := func(i int) {
		if services[i] != nil && services[i].cmd.ProcessState == nil {
			kill(t, services[i].cmd)
		}
		s := startSessions(t, program, dir, environ)
		mu.Lock()
		defer mu.Unlock()
		services[i] = s
	}
	for i := range services {
		restart(i)
	}
	defer func() { // the last process that stops in order also ends the emulator
		for _, s := range services {
			assert.NoError(t, s.cmd.Process.Signal(os.Interrupt))
			assert.NoError(t, s.cmd.Wait())
		}
	}()
	authorize(t, services[0].token)
	var faults []func()
	for i := range kills {
		faults = append(faults, func() {
			restart(i % 2)
			if i%3 == 2 {
				kill(t, temporal)
				kill(t, services[2].cmd)
				kill(t, services[1-i%2].cmd)
				temporal, _ = startServer(t, config)
				restart(1 - i%2)
				restart(2)
			}
		})
	}
	var asked atomic.Int64
	soak(t, emulatorOf(t, dir), func() string {
		mu.Lock()
		defer mu.Unlock()
		return services[asked.Add(1)%3].base
	}, commands, faults, new(restores))
}

// TestKilledTemporal kills Temporal alone and one of two services in turn. In the middle,
// services of a new build take over, and the old ones are killed. With ten faults or more,
// an earlier copy of Temporal's database is restored while the services continue.
func TestKilledTemporal(t *testing.T) {
	kills, commands := length(t)
	emu, config := startEmulator(t)
	dir, port := t.TempDir(), needs.Port(t)
	var temporal *exec.Cmd
	start := func() { temporal, config.Temporal = startServer(t, serverConfig{dir, port}) }
	start()
	config.HistoryLimit, config.Build = 150, "1"
	c, err := config.Temporal.dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	var mu sync.Mutex
	var cmds [2]*exec.Cmd
	var addrs [2]string
	restart := func(i int) {
		if cmds[i] != nil {
			kill(t, cmds[i])
		}
		cmd, addr := startService(t, config)
		mu.Lock()
		defer mu.Unlock()
		cmds[i], addrs[i] = cmd, addr
	}
	restart(0)
	restart(1)
	makeCurrent(t, c, "1")
	faults := []func(){func() {
		before := cmds
		cmds, config.Build = [2]*exec.Cmd{}, "2"
		restart(0)
		restart(1)
		makeCurrent(t, c, "2")
		kill(t, before[0])
		kill(t, before[1])
	}}
	for i := range kills - 1 {
		fault := func() { restart(i / 2 % 2) }
		if i%2 == 0 {
			fault = func() {
				kill(t, temporal)
				start()
			}
		}
		if i < kills/2 {
			faults = slices.Insert(faults, i, fault)
		} else {
			faults = append(faults, fault)
		}
	}
	var history restores
	if backup, at := t.TempDir(), kills/2+1; kills >= 10 {
		faults = slices.Insert(faults, at+3, func() {
			history.Lock()
			defer history.Unlock()
			kill(t, temporal)
			copyDatabase(t, dir, backup)
			start()
			history.lives++
		})
		faults = slices.Insert(faults, at, func() {
			kill(t, temporal)
			copyDatabase(t, backup, dir)
			start()
		})
	}
	var asked atomic.Int64
	soak(t, emu.Client(), func() string {
		mu.Lock()
		defer mu.Unlock()
		return addrs[asked.Add(1)%2]
	}, commands, faults, &history)
}

// copyDatabase copies the database of a stopped server.
func copyDatabase(t *testing.T, to, from string) {
	t.Helper()
	for _, name := range []string{"temporal.db", "temporal.db-wal", "temporal.db-shm"} {
		if err := os.Remove(filepath.Join(to, name)); !errors.Is(err, fs.ErrNotExist) {
			require.NoError(t, err)
		}
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) || strings.HasSuffix(name, "-shm") { // SQLite creates this file itself
			continue
		}
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, name), data, 0o600))
	}
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

func homeOf(t *testing.T, sb *sandbox.Sandbox) string {
	done, err := sb.RunCommand(t.Context(), "bash", []string{"-c", `printf %s "$HOME"`}, nil)
	require.NoError(t, err)
	out, err := done.Stdout(t.Context())
	require.NoError(t, err)
	return out
}
