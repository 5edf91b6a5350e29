package embedded_test

import (
	"fmt"
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
	"github.com/go-vercel/sandbox/durable/embedded"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func number(t *testing.T, name string, short, normal int) int {
	if text := os.Getenv(name); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	if testing.Short() {
		return short
	}
	return normal
}

// soak has sessions run commands while faults happen, one after the other, and holds
// what is promised: each command runs once by the sandbox's own record, each event and
// each byte of output comes once.
func soak(t *testing.T, emu *sandboxtest.Server, base func() string, commands int, faults []func()) {
	random := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	const sessions = 5
	ids := make([]string, sessions)
	views := make([]*viewer, sessions)
	for i := range ids {
		ids[i] = newSession(t, base())
		views[i] = view(t.Context(), base, ids[i])
	}
	var wg sync.WaitGroup
	var once sync.Mutex // the random source
	for _, id := range ids {
		wg.Go(func() {
			for n := range commands / sessions {
				once.Lock()
				pause := time.Duration(random.IntN(400)) * time.Millisecond
				lines := 1 + random.IntN(20)
				long := random.IntN(5) == 0 // it goes into the store
				once.Unlock()
				script := fmt.Sprintf(`echo %d >> "$HOME/record"; for i in $(seq %d); do echo "line $i of %d"; sleep 0.0%d; done; exit %d`, n, lines, n, n%6, n%3)
				if long {
					script = ": " + strings.Repeat("x", 5000) + "\n" + script
				}
				post(t, base, "/command", map[string]any{"runId": id, "command": script, "key": fmt.Sprintf("k%d", n)})
				testkit.Linger(pause)
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
	wg.Wait()
	each := commands / sessions
	for i, v := range views {
		require.Eventually(t, func() bool { return v.done() == each }, 10*time.Minute, 50*time.Millisecond, "session %d", i)
	}
	breaks := 0
	for i, id := range ids {
		sb, err := emu.Client().Get(t.Context(), "durable-"+id, nil)
		require.NoError(t, err)
		record, err := sb.FS().ReadFile(t.Context(), homeOf(t, sb)+"/record")
		require.NoError(t, err)
		var want strings.Builder
		for n := range each {
			fmt.Fprintln(&want, n)
		}
		assert.Equal(t, want.String(), string(record), "each command of session %d ran once, in order", i)
		post(t, base, "/destroy", map[string]any{"runId": id})
		<-views[i].over
		v := views[i]
		for n, seq := range v.seqs {
			require.Equal(t, n, seq, "events of session %d: each once, none missing", i)
		}
		for n := range each {
			e := v.ends[fmt.Sprintf("cmd-%d", n+1)]
			require.Equal(t, durable.Exited, e.Outcome)
			require.NotNil(t, e.ExitCode)
			assert.Equal(t, n%3, *e.ExitCode)
			assert.EqualValues(t, e.Bytes, len(v.output[e.ID]), "each byte of command %d once", n)
		}
		breaks += v.breaks
	}
	t.Logf("%d faults, %d commands in %d sessions, %d broken streams", len(faults), commands, sessions, breaks)
}

// length is how many faults a soak has, and how many commands.
func length(t *testing.T) (kills, commands int) {
	return number(t, "SANDBOX_DURABLE_KILLS", 4, 15), number(t, "SANDBOX_DURABLE_COMMANDS", 20, 100)
}

// TestKilledService kills the service, and Temporal with it, at random moments while
// sessions run commands. SANDBOX_DURABLE_KILLS and SANDBOX_DURABLE_COMMANDS make it
// longer.
func TestKilledService(t *testing.T) {
	kills, commands := length(t)
	emu, config := startEmulator(t)
	config.HistoryLimit = 150 // continue as new on the way
	cmd, addr := startService(t, config)
	var base atomic.Value
	base.Store(addr)
	var faults []func()
	for range kills {
		faults = append(faults, func() {
			kill(t, cmd)
			cmd, addr = startService(t, config)
			base.Store(addr)
		})
	}
	soak(t, emu, func() string { return base.Load().(string) }, commands, faults)
}

// TestKilledTemporal kills Temporal alone and one of two services in turn, and has a
// new build of the services take over in the middle, whose workflow decides
// differently: the old ones are killed.
func TestKilledTemporal(t *testing.T) {
	kills, commands := length(t)
	emu, config := startEmulator(t)
	dir := t.TempDir()
	var temporal *exec.Cmd
	start := func() (addr string) {
		temporal = exec.Command(os.Args[0])
		temporal.Env = append(os.Environ(), envServer+"="+dir)
		return startProcess(t, temporal)
	}
	config.HistoryLimit, config.Temporal, config.KeyFile, config.Build = 150, start(), filepath.Join(dir, embedded.KeyFile), "1"
	c, err := config.dial(t.Context())
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
	var asked atomic.Int64
	soak(t, emu, func() string {
		mu.Lock()
		defer mu.Unlock()
		return addrs[asked.Add(1)%2]
	}, commands, faults)
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
