package sandboxtest_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

const (
	// victimEnv holds the state directory and the mode of a server that this test
	// binary runs until it is killed.
	victimEnv = "SANDBOXTEST_VICTIM"
	// killRoundsEnv is the number of times that TestKilledUnderLoad kills the
	// server.
	killRoundsEnv = "SANDBOXTEST_KILL_ROUNDS"
	// killBoxesEnv is the number of sandboxes that TestStartAfterKill runs.
	killBoxesEnv = "SANDBOXTEST_KILL_BOXES"
)

// TestVictim is the process that other tests kill.
func TestVictim(t *testing.T) {
	arg := os.Getenv(victimEnv)
	if arg == "" {
		return
	}
	mode, dir, _ := strings.Cut(arg, ":")
	srv, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Mode(mode), Dir: dir, Images: []string{"team/tools"},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	require.NoError(t, err)
	fmt.Printf("\nSERVING %s %s %s\n", srv.URL, srv.Credentials().Token, srv.Mode())
	select {}
}

// victim is a server in its own process.
type victim struct {
	t          *testing.T
	cmd        *exec.Cmd
	url, token string
	mode       sandboxtest.Mode
	stderr     bytes.Buffer
	client     *http.Client
	startTime  time.Duration // how long the start took
}

func startVictim(t *testing.T, mode sandboxtest.Mode, dir string, env ...string) *victim {
	t.Helper()
	return runVictim(t, mode, dir, exec.Command(os.Args[0], "-test.run=^TestVictim$"), env...)
}

// runVictim starts a command that executes the server.
func runVictim(t *testing.T, mode sandboxtest.Mode, dir string, cmd *exec.Cmd, env ...string) *victim {
	t.Helper()
	v, output := tryVictim(t, mode, dir, cmd, env...)
	require.NotEmpty(t, v.url, "%s%s", output, &v.stderr)
	return v
}

// tryVictim is like runVictim, but the server may fail to start. The result then has no
// URL, and output is what the command printed.
func tryVictim(t *testing.T, mode sandboxtest.Mode, dir string, cmd *exec.Cmd, env ...string) (_ *victim, output string) {
	t.Helper()
	v := &victim{t: t, cmd: cmd}
	// Another server on this machine must not remove the files that a killed one leaves.
	v.cmd.Env = append(append(os.Environ(), victimEnv+"="+string(mode)+":"+dir, "TMPDIR="+victimsDir(t)), env...)
	v.cmd.Stderr = &v.stderr
	out, err := v.cmd.StdoutPipe()
	require.NoError(t, err)
	begin := time.Now()
	require.NoError(t, v.cmd.Start())
	t.Cleanup(v.kill)
	var printed strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "SERVING "); ok {
			fields := strings.Fields(rest)
			v.url, v.token, v.mode = fields[0], fields[1], sandboxtest.Mode(fields[2])
			break
		}
		printed.WriteString(lines.Text() + "\n")
	}
	if v.url == "" {
		v.kill() // so that its output is complete
	}
	v.startTime = time.Since(begin)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	v.client = &http.Client{Transport: transport}
	return v, printed.String()
}

// victimsDir returns a temporary directory for servers that are killed. They leave
// directories that not even their owner may enter, and dying processes of sandboxes may
// still write to it. Everybody can enter it. Otherwise a server would keep its sandboxes in
// another directory, which nothing would remove.
func victimsDir(t *testing.T) string {
	t.Helper()
	dir := openToAll(t, "")
	t.Cleanup(func() { // when the servers have been killed
		assert.Eventually(t, func() bool {
			_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					return os.Chmod(path, 0o700)
				}
				return nil
			})
			return os.RemoveAll(dir) == nil
		}, eventually, 10*time.Millisecond)
	})
	return dir
}

func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}

// try sends a request. It fails if the server is killed in the meantime.
func (v *victim) try(method, path string, body, out any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, v.url+path, strings.NewReader(string(data)))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+v.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := v.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	response, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, response)
	}
	return json.Unmarshal(response, out)
}

// sh runs a script to its end and returns the last word of its output.
func (v *victim) sh(sess, script string) (string, error) {
	var started, ended wire.CommandResponse
	if err := v.try("POST", session(sess)+"/cmd", obj{"command": "sh", "args": []string{"-c", script}}, &started); err != nil {
		return "", err
	}
	cmd := session(sess) + "/cmd/" + started.Command.ID
	if err := v.try("GET", cmd+"?wait=true", nil, &ended); err != nil {
		return "", err
	}
	if ended.Command.ExitCode == nil || *ended.Command.ExitCode != 0 {
		return "", fmt.Errorf("%s has failed", script)
	}
	req, err := http.NewRequest("GET", v.url+cmd+"/logs", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+v.token)
	resp, err := v.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var text strings.Builder
	for dec := json.NewDecoder(resp.Body); ; {
		var r struct{ Data string }
		if err := dec.Decode(&r); err == io.EOF {
			break
		} else if err != nil {
			return "", err
		}
		text.WriteString(r.Data)
	}
	words := strings.Fields(text.String())
	if len(words) == 0 {
		return "", fmt.Errorf("%s has printed nothing", script)
	}
	return words[len(words)-1], nil
}

// noFile stands for the checksum of a file that does not exist yet.
const noFile = "none"

// ledger records what the server has confirmed: the checksum of the file in each stopped
// sandbox and in each snapshot.
type ledger struct {
	mu sync.Mutex
	// sandboxes holds, by name, the checksums that its file may have: the last
	// confirmed one, and later ones whose confirmation has not arrived.
	sandboxes map[string][]string
	snapshots map[string]string
	// image is the image from which some of them are created, if the server has one.
	image string
}

// params are the parameters for creating a sandbox.
func (l *ledger) params(name string) obj {
	params := obj{"projectId": "prj", "name": name}
	switch {
	case strings.HasSuffix(name, "1"):
		params["keepLastSnapshots"] = obj{"count": 1}
	case strings.HasSuffix(name, "2") && l.image != "":
		params["image"] = l.image
	}
	return params
}

func (l *ledger) set(name string, sums ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sandboxes[name] = sums
}

func (l *ledger) get(name string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sandboxes[name]
}

// resume resumes a sandbox. If it was killed before its first save it has no files, and
// is created again.
func (v *victim) resume(name string, l *ledger, at *wire.SandboxResponse) error {
	path := "/v2/sandboxes/" + name + "?projectId=prj"
	err := v.try("GET", path+"&resume=true", nil, at)
	saved := l.get(name)
	if err == nil || !strings.Contains(err.Error(), "no snapshot available") || len(saved) > 0 && !slices.Contains(saved, noFile) {
		return err
	}
	if err := v.try("DELETE", path, nil, new(wire.UpdateResponse)); err != nil {
		return err
	}
	return v.try("POST", "/v2/sandboxes", l.params(name), at)
}

// work creates, changes, stops and snapshots a sandbox until a request fails.
func (v *victim) work(name string, l *ledger) error {
	for i := 0; ; i++ {
		var at wire.SandboxResponse
		if len(l.get(name)) == 0 {
			if err := v.try("POST", "/v2/sandboxes", l.params(name), &at); err != nil && !strings.Contains(err.Error(), "already exists") {
				return err
			} else if err != nil {
				if err := v.resume(name, l, &at); err != nil {
					return err
				}
			}
		} else if err := v.resume(name, l, &at); err != nil {
			return err
		}
		content := rand.Text()
		sum := sha256.Sum256([]byte(content))
		fresh := hex.EncodeToString(sum[:])
		script := fmt.Sprintf("printf %%s %s > file; mkdir -p d%d; seq %d > d%d/f; cp file keep-%d", content, i%7, mathrand.IntN(3000), i%7, i%3)
		if _, err := v.sh(at.Session.ID, script+"; echo done"); err != nil {
			return err
		}
		known := l.get(name)
		if len(known) == 0 {
			known = []string{noFile}
		}
		l.set(name, append(slices.Clip(known), fresh)...)
		if i%3 == 2 {
			var response wire.SnapshotResponse
			if err := v.try("POST", session(at.Session.ID)+"/snapshot", obj{}, &response); err != nil {
				return err
			}
			if !strings.HasSuffix(name, "1") { // snapshots of other sandboxes are evicted
				l.mu.Lock()
				l.snapshots[response.Snapshot.ID] = fresh
				l.mu.Unlock()
			}
		} else if err := v.try("POST", session(at.Session.ID)+"/stop", obj{}, new(wire.StopResponse)); err != nil {
			return err
		}
		l.set(name, fresh)
	}
}

// killRounds is how often a test kills its server.
func killRounds(t *testing.T) int {
	text := os.Getenv(killRoundsEnv)
	if text == "" {
		return 2
	}
	rounds, err := strconv.Atoi(text)
	require.NoError(t, err)
	return rounds
}

// TestKilledUnderLoad kills a server at random moments. Afterwards, all files that a
// confirmed stop or snapshot has saved are there, byte for byte.
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	needs.Long(t, "it kills servers that work")
	rounds := killRounds(t)
	inModes(t, sandboxtest.Options{}, func(t *testing.T, probe *sandboxtest.Server, _ *raw) {
		t.Parallel()
		dir := filepath.Join(victimsDir(t), "state")
		l := &ledger{sandboxes: make(map[string][]string), snapshots: make(map[string]string)}
		l.image = "team/tools"
		var slowest time.Duration
		checked := 0
		for round := range rounds {
			v := startVictim(t, probe.Mode(), dir)
			slowest = max(slowest, v.startTime)
			var workers sync.WaitGroup
			for i := range 4 {
				workers.Go(func() {
					err := v.work(fmt.Sprintf("w-%d-%d", round%5, i), l)
					assert.NotContains(t, err.Error(), " 4", "round %d", round)
					assert.NotContains(t, err.Error(), "has failed", "round %d", round)
				})
			}
			testkit.Linger(time.Duration(100+mathrand.IntN(900)) * time.Millisecond) // the random moment
			v.kill()
			workers.Wait()

			v = startVictim(t, probe.Mode(), dir)
			slowest = max(slowest, v.startTime)
			checked += v.check(l, round)
			v.kill()
		}
		t.Logf("%d kills, %d sandboxes and snapshots checked, slowest start %v", rounds, checked, slowest)
	})
}

// check compares everything with the ledger.
func (v *victim) check(l *ledger, round int) (checked int) {
	t := v.t
	for name, sums := range l.sandboxes {
		if len(sums) == 0 {
			continue
		}
		var at wire.SandboxResponse
		require.NoError(t, v.resume(name, l, &at), "round %d, %s", round, name)
		got, err := v.sh(at.Session.ID, "test -e file && sha256sum < file | cut -d' ' -f1 || echo "+noFile)
		require.NoError(t, err, "round %d, %s", round, name)
		require.Contains(t, sums, got, "round %d, %s", round, name)
		l.set(name, got)
		require.NoError(t, v.try("POST", session(at.Session.ID)+"/stop", obj{}, new(wire.StopResponse)))
		checked++
	}
	for id, sum := range l.snapshots {
		var at wire.SandboxResponse
		require.NoError(t, v.try("POST", "/v2/sandboxes", obj{"projectId": "prj", "persistent": false, "source": obj{"type": "snapshot", "snapshotId": id}}, &at), "round %d, %s", round, id)
		got, err := v.sh(at.Session.ID, "sha256sum < file | cut -d' ' -f1")
		require.NoError(t, err)
		require.Equal(t, sum, got, "round %d, %s", round, id)
		require.NoError(t, v.try("DELETE", "/v2/sandboxes/"+at.Sandbox.Name+"?projectId=prj", nil, new(wire.UpdateResponse)))
		checked++
		if len(l.snapshots) > 8 { // enough of them
			require.NoError(t, v.try("DELETE", "/v2/sandboxes/snapshots/"+id, nil, new(wire.SnapshotResponse)))
			delete(l.snapshots, id)
		}
	}
	return checked
}

// TestNextStartRemovesLeftovers: the next start removes the directories and processes that
// a killed server leaves.
func TestNextStartRemovesLeftovers(t *testing.T) {
	t.Parallel()
	inFolders(t, sandboxtest.Options{}, func(t *testing.T, probe *sandboxtest.Server, _ *raw) {
		temp := victimsDir(t)
		mark := fmt.Sprint(mathrand.IntN(1_000_000_000), ".25")
		v := startVictim(t, probe.Mode(), "", "TMPDIR="+temp)
		var at wire.SandboxResponse
		require.NoError(t, v.try("POST", "/v2/sandboxes", obj{"projectId": "prj"}, &at))
		_, err := v.sh(at.Session.ID, "seq 30000; (setsid sleep "+mark+" >/dev/null 2>&1 &); echo up")
		require.NoError(t, err)
		assertRuns(t, mark)
		left := func() []string {
			all, err := filepath.Glob(filepath.Join(temp, "sandbox-*"))
			require.NoError(t, err)
			return all
		}
		before := left()
		require.NotEmpty(t, before)
		v.kill()
		startVictim(t, probe.Mode(), "", "TMPDIR="+temp)
		assert.False(t, alive(t, mark))
		for _, dir := range before {
			assert.NotContains(t, left(), dir)
		}
	})
}

// TestStartAfterKill: the kernel may take long to clean up after a server with many
// sandboxes. The next start waits for that, and no longer.
func TestStartAfterKill(t *testing.T) {
	t.Parallel()
	needs.Long(t, "it needs many sandboxes")
	n := 30
	if text := os.Getenv(killBoxesEnv); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	inModes(t, sandboxtest.Options{}, func(t *testing.T, probe *sandboxtest.Server, _ *raw) {
		dir := filepath.Join(victimsDir(t), "state")
		v := startVictim(t, probe.Mode(), dir)
		for i := range n {
			var at wire.SandboxResponse
			require.NoError(t, v.try("POST", "/v2/sandboxes", obj{"projectId": "prj", "name": fmt.Sprint("box-", i)}, &at))
			_, err := v.sh(at.Session.ID, "echo up") // its first use boots it
			require.NoError(t, err)
		}
		require.NoError(t, v.cmd.Process.Kill()) // without waiting for its end
		next := startVictim(t, probe.Mode(), dir)
		t.Logf("%d sandboxes: the next start took %v", n, next.startTime)
		var all wire.SandboxesPage
		require.NoError(t, next.try("GET", "/v2/sandboxes?project=prj&limit=50", nil, &all))
		assert.Len(t, all.Sandboxes, min(n, 50))
	})
}
