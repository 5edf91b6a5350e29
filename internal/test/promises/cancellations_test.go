package promises_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// canceledCalls returns how many calls a test cancels: by default few, and 20 times as many
// with SANDBOX_SLOW=1.
func canceledCalls(few int) int {
	if needs.Slow() {
		return 20 * few
	}
	return few
}

// randomAPI is an API that responds after a random time. Sometimes it responds with a fault
// or not at all.
type randomAPI struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (m *randomAPI) draw(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

func (m *randomAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	waited := testkit.IsRun(req) && req.GetBody != nil && bytes.Contains(bodyOf(req), []byte(`"wait":true`))
	if req.Body != nil {
		go func() { _, _ = io.Copy(io.Discard, req.Body) }()
		defer req.Body.Close()
	}
	if !pauseFor(req.Context(), time.Duration(m.draw(300))*time.Millisecond) {
		return nil, req.Context().Err()
	}
	switch m.draw(10) {
	case 0:
		return canned.Unanswered(req)
	case 1:
		return nil, errReset
	case 2:
		return canned.Response([]int{200, 404, 429, 502}[m.draw(4)], "text/html", strings.NewReader("<html>")), nil
	}
	stream := func(text string) (*http.Response, error) {
		if m.draw(2) == 0 {
			return canned.Forgotten(req, text)
		}
		return canned.Response(200, "application/x-ndjson", strings.NewReader(text)), nil
	}
	const line = `{"stream":"stdout","data":"x\n"}` + "\n"
	_, id, ofCommand := strings.Cut(req.URL.Path, "/cmd/")
	id, _, _ = strings.Cut(id, "/")
	if testkit.IsRun(req) {
		id = req.URL.Query().Get("cmdId")
	}
	as := func(text string) string { return strings.ReplaceAll(text, "c1", id) }
	switch {
	case waited:
		return stream(as(canned.Begun) + line + as(canned.Ended))
	case strings.HasSuffix(req.URL.Path, "/logs"):
		return stream(line)
	case ofCommand && req.URL.Query().Has("wait") && m.draw(2) == 0:
		return canned.Unanswered(req)
	case ofCommand && m.draw(3) == 0:
		return canned.JSON(200, as(canned.Ended)), nil
	case ofCommand, testkit.IsRun(req):
		return canned.JSON(200, as(canned.Begun)), nil
	case strings.HasSuffix(req.URL.Path, "/fs/read"):
		resp, err := stream("content")
		resp.Header.Set("Content-Type", "application/octet-stream")
		return resp, err
	case strings.Contains(req.URL.Path, "/fs/"):
		return canned.JSON(200, "{}"), nil
	case strings.Contains(req.URL.Path, "/sessions/"):
		return canned.JSON(200, canned.RunningSandbox), nil
	}
	return canned.JSON(200, strings.ReplaceAll(canned.RunningSandbox, `"name":"box"`, fmt.Sprintf(`"name":%q`, path.Base(req.URL.Path)))), nil
}

func bodyOf(req *http.Request) []byte {
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	text, _ := io.ReadAll(body)
	return text
}

// pauseFor waits for d. It returns early, with false, if the context ends.
func pauseFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// TestRandomCancellations calls random methods of a random API, and cancels each call at a
// random moment. The call returns within a second after the end of its context, or after
// the documented additional time, and leaves no goroutine behind. The test uses a fake
// clock.
func TestRandomCancellations(t *testing.T) {
	t.Parallel()
	names, seed := callsWithContext(t), testkit.Seed(t)
	canceled, late := 0, 0
	n := canceledCalls(500)
	for i := range n {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		name := names[rng.IntN(len(names))]
		t.Run(fmt.Sprintf("%d %s", i, name), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				typ, method, _ := strings.Cut(name, ".")
				all := handles(t, &randomAPI{rng: rng})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				after := time.Duration(rng.IntN(3000)) * time.Millisecond
				begin := time.Now()
				time.AfterFunc(after, cancel)
				callByName(ctx, t, all, typ, method, true)
				over := time.Since(begin) - after
				limit := time.Second + additionalTime(typ, method)
				if strings.HasPrefix(method, "ReadFile") || strings.HasPrefix(method, "DownloadFile") {
					limit = 5 * time.Second // for the command that gets the file's size
				}
				if method == "AppendFile" {
					limit += 2 * time.Second // for the removal of temporary files
				}
				assert.LessOrEqual(t, over, limit)
				if ctx.Err() != nil {
					canceled++
				}
				if over > time.Second {
					late++
				}
				cancel()
				time.Sleep(10 * time.Second) // until the command that gets the size of an open file has ended
			})
		})
		require.False(t, t.Failed(), "seed %d, call %d", seed, i)
	}
	assert.Greater(t, canceled, n/4)
	t.Logf("seed %d: %d calls, %d of them canceled, %d returned more than a second later", seed, n, canceled, late)
}

// TestCancellationsOfProcesses uses the emulator and cancels calls at random moments. Each
// call returns, and has ended the commands that it must kill.
func TestCancellationsOfProcesses(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.LightStart(t, testkit.Lasting(nil))
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	seed := testkit.Seed(t)
	tree := fstest.MapFS{}
	for i := range 50 {
		tree[fmt.Sprintf("d%d/f", i)] = &fstest.MapFile{Data: bytes.Repeat([]byte("x"), 10_000)}
	}
	require.NoError(t, sb.FS().CopyFS(t.Context(), "tree", tree, nil))
	require.NoError(t, sb.FS().WriteFile(t.Context(), "large", make([]byte, 4<<20), 0o644))
	var calls, canceled, unknown atomic.Int64
	var mu sync.Mutex
	killed := map[string]error{} // the errors of calls that must have killed a command, by its mark
	n, workers := canceledCalls(12), 4
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			dir := filepath.Join(t.TempDir(), strconv.Itoa(w))
			for i := w; i < n; i += workers {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				k := cancelKinds[rng.IntN(len(cancelKinds))]
				if i < 3 { // the first kinds run commands that must be killed
					k = cancelKinds[i]
				}
				mark := fmt.Sprintf("SANDBOX_TEST_CANCELED=%d-%d-%d", os.Getpid(), seed, i)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- k.call(ctx, cancelCall{c, sb, mark, fmt.Sprintf("canceled-%d", i), dir}) }()
				var err error
				over := false
				select {
				case err = <-done:
					over = true
				case <-time.After(time.Duration(rng.IntN(k.most)) * time.Millisecond):
				}
				cancel()
				if !over {
					select {
					case err = <-done:
					case <-time.After(3 * time.Minute): // a watchdog
						buf := make([]byte, 1<<20)
						t.Errorf("seed %d, call %d: %s does not return\n%s", seed, i, k.name, buf[:runtime.Stack(buf, true)])
						return
					}
				}
				calls.Add(1)
				if errors.Is(err, context.Canceled) {
					canceled.Add(1)
				}
				switch {
				case errors.Is(err, sandbox.ErrOutcomeUnknown), errors.Is(err, sandbox.ErrChildren):
					unknown.Add(1) // the machine was too busy for the kill to succeed in time
				case k.kills:
					mu.Lock()
					killed[mark] = err
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	for mark, err := range killed {
		assert.Eventually(t, func() bool { return len(testkit.ProcessesWith(t, mark)) == 0 }, time.Minute, 100*time.Millisecond, "seed %d: %s still runs after: %v", seed, mark, err)
	}
	assert.EqualValues(t, n, calls.Load())
	assert.GreaterOrEqual(t, int64(len(killed))+unknown.Load(), int64(3))
	t.Logf("seed %d: %d calls, %d of them canceled, %d unknown; %d commands killed", seed, calls.Load(), canceled.Load(), unknown.Load(), len(killed))
}

// cancelCall contains the arguments of a call to cancel.
type cancelCall struct {
	c    *sandbox.Client
	sb   *sandbox.Sandbox
	mark string // a variable in the environment of the call's commands
	name string // unique for each call
	dir  string
}

func (k cancelCall) env() sandbox.Env {
	name, value, _ := strings.Cut(k.mark, "=")
	return sandbox.Env{name: value}
}

// cancelKinds are the calls to cancel, each with the maximum delay in milliseconds.
var cancelKinds = []struct {
	name  string
	most  int
	kills bool
	call  func(context.Context, cancelCall) error
}{
	{"RunCommand", 60, true, func(ctx context.Context, k cancelCall) error {
		_, err := k.sb.RunCommand(ctx, "sh", []string{"-c", "echo begun; sleep 1000"}, &sandbox.CommandOptions{Env: k.env(), KillOnCancel: true})
		return err
	}},
	{"StartCommand, followed", 60, true, func(ctx context.Context, k cancelCall) error {
		cmd, err := k.sb.StartCommand(ctx, "sh", []string{"-c", "echo begun; sleep 1000"}, &sandbox.StartOptions{Env: k.env(), KillOnCancel: true, Stdout: io.Discard})
		if err != nil {
			return err
		}
		_, err = cmd.Wait(ctx)
		return errors.Join(err, cmd.WaitOutput(context.WithoutCancel(ctx)))
	}},
	{"Cmd", 60, true, func(ctx context.Context, k cancelCall) error {
		cmd := k.sb.CommandContext(ctx, "sh", "-c", "cat; sleep 1000")
		cmd.Env = []string{k.mark}
		cmd.Stdin = strings.NewReader("input")
		cmd.Stdout = io.Discard
		err := cmd.Run()
		return errors.Join(err, ctx.Err())
	}},
	{"Logs", 60, false, func(ctx context.Context, k cancelCall) error {
		cmd, err := k.sb.StartCommand(ctx, "sh", []string{"-c", "echo begun; sleep 0.2"}, nil)
		if err != nil {
			return err
		}
		for _, err = range cmd.Logs(ctx) {
			continue
		}
		return err
	}},
	{"Create", 100, false, func(ctx context.Context, k cancelCall) error {
		sb, err := k.c.Create(ctx, &sandbox.CreateOptions{Name: k.name})
		if err != nil {
			return err
		}
		return sb.Delete(ctx, nil)
	}},
	{"GetOrCreate", 100, false, func(ctx context.Context, k cancelCall) error {
		sb, err := k.c.GetOrCreate(ctx, k.name, &sandbox.CreateOptions{OnCreate: func(ctx context.Context, sb *sandbox.Sandbox) error {
			_, err := sb.RunCommand(ctx, "true", nil, nil)
			return err
		}})
		if err != nil {
			return err
		}
		_, err = sb.Stop(ctx, nil)
		return err
	}},
	{"CopyFS", 30, false, func(ctx context.Context, k cancelCall) error {
		return k.sb.FS().CopyFS(ctx, k.name, fstest.MapFS{"f": {Data: make([]byte, 1<<20)}}, nil)
	}},
	{"FileWriter", 60, false, func(ctx context.Context, k cancelCall) error {
		w, err := k.sb.FS().Create(ctx, k.name, nil)
		if err != nil {
			return err
		}
		_, err = w.Write(make([]byte, 1<<20))
		return errors.Join(err, w.Close())
	}},
	{"DownloadFile", 30, false, func(ctx context.Context, k cancelCall) error {
		return k.sb.FS().DownloadFile(ctx, "large", filepath.Join(k.dir, k.name), &sandbox.DownloadFileOptions{MkdirAll: true})
	}},
	{"DownloadDir", 60, false, func(ctx context.Context, k cancelCall) error {
		return k.sb.FS().DownloadDir(ctx, "tree", filepath.Join(k.dir, k.name), nil)
	}},
	{"List", 20, false, func(ctx context.Context, k cancelCall) error {
		for _, err := range k.c.List(ctx, nil) {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"ListCommands", 20, false, func(ctx context.Context, k cancelCall) error {
		_, err := k.sb.ListCommands(ctx)
		return err
	}},
	{"KeepAlive", 30, false, func(ctx context.Context, k cancelCall) error {
		return errors.Join(k.sb.KeepAlive(ctx, nil), ctx.Err())
	}},
}
