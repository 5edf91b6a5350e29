package promises_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// cutter is a transport that breaks the streams of commands at chosen places,
// as the platform's edge and bad networks do. Other responses pass unchanged.
type cutter struct {
	next http.RoundTripper
	mu   sync.Mutex
	// plan contains the cuts of the next streams. Later streams are complete.
	plan []cut
	// stream contains the last uncut stream of a waited command.
	stream []byte
}

func (c *cutter) client() *http.Client { return &http.Client{Transport: c} }

// lastStream returns the length of stream.
func (c *cutter) lastStream() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(len(c.stream))
}

// firstRecord returns the length of the first record of stream.
func (c *cutter) firstRecord() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(bytes.IndexByte(c.stream, '\n') + 1)
}

// cut says how one stream breaks.
type cut struct {
	after  int64 // the number of bytes before the cut
	how    error // the error of the next Read; io.EOF ends the stream properly
	status int   // if not 0, the response has this status and no stream
}

var (
	errReset   = &netError{syscall.ECONNRESET}
	errTimeout = &netError{errors.New("i/o timeout")}
	cutErrors  = []error{errReset, io.ErrUnexpectedEOF, io.EOF, errTimeout}
)

type netError struct{ error }

func (c *cutter) RoundTrip(req *http.Request) (*http.Response, error) {
	logs := strings.HasSuffix(req.URL.Path, "/logs")
	if !logs && !(req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/cmd")) {
		return c.next.RoundTrip(req)
	}
	// Cut only streams. A start gets one if it asks to wait for the command.
	if !logs {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(body)
		if err != nil || !bytes.Contains(text, []byte(`"wait":true`)) {
			return c.next.RoundTrip(req)
		}
	}
	c.mu.Lock()
	var now *cut
	// Apply a status only to logs: a start with this status would not have run the command.
	if len(c.plan) > 0 && (c.plan[0].status == 0 || logs) {
		now, c.plan = &c.plan[0], c.plan[1:]
	}
	if !logs && now == nil {
		c.stream = nil
	}
	c.mu.Unlock()
	if now != nil && now.status != 0 {
		return &http.Response{
			StatusCode: now.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("bad gateway")), Request: req,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}, nil
	}
	resp, err := c.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	if now == nil {
		if !logs {
			resp.Body = &recordedBody{resp.Body, c}
		}
		return resp, nil
	}
	resp.Body = &cutBody{ReadCloser: resp.Body, left: now.after, how: now.how}
	return resp, nil
}

// cutBody passes a number of bytes and then breaks.
type cutBody struct {
	io.ReadCloser
	left int64
	how  error
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, b.how
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// recordedBody records a stream in the cutter.
type recordedBody struct {
	io.ReadCloser
	cutter *cutter
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.cutter.mu.Lock()
	defer b.cutter.mu.Unlock()
	b.cutter.stream = append(b.cutter.stream, p[:n]...)
	return n, err
}

// set replaces the plan.
func (c *cutter) set(plan ...cut) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan = plan
}

// randomPlan returns several cuts of a stream of about size bytes.
func randomPlan(rng *rand.Rand, from, size int64) []cut {
	plan := []cut{{after: from + rng.Int64N(size), how: cutErrors[rng.IntN(len(cutErrors))]}}
	for range rng.IntN(4) {
		if rng.IntN(4) == 0 {
			plan = append(plan, cut{status: []int{500, 502, 503, 504}[rng.IntN(4)]})
			continue
		}
		plan = append(plan, cut{after: rng.Int64N(size), how: cutErrors[rng.IntN(len(cutErrors))]})
	}
	return plan
}

// cutSandbox returns a sandbox behind a cutter.
func cutSandbox(t *testing.T) (*sandboxtest.Server, *sandbox.Sandbox, *cutter) {
	t.Helper()
	srv := testkit.LightServer(t)
	cuts := &cutter{next: testkit.Transport(t)}
	client := testkit.Client(t, srv, sandbox.ClientOptions{
		HTTPClient: cuts.client(),
		MaxRetries: 2, RetryWait: time.Millisecond,
		Reattach: &sandbox.ReattachOptions{Wait: time.Millisecond},
	})
	sb, err := client.Create(t.Context(), testkit.Lasting(nil))
	require.NoError(t, err)
	return srv, sb, cuts
}

// script is a command with output on both streams, characters of one to four bytes, and an
// exit code other than 0.
type script struct {
	args           []string
	stdout, stderr string
	code           int
}

func smallScript() script {
	return script{
		args:   []string{"-c", `printf 'a\n€\n'; printf 'err "é" 🚀\n' >&2; printf '\033[1mlast\\\033[0m'; exit 3`},
		stdout: "a\n€\n\x1b[1mlast\\\x1b[0m", stderr: "err \"é\" 🚀\n", code: 3,
	}
}

// bigScript returns a script that writes about n bytes.
func bigScript(n int) script {
	lines := n / 100
	args := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo "line $i of standard output: åäö 日本語 🚀 \"quoted\" \\ back"; [ $((i %% 7)) = 0 ] && echo "error $i" >&2; i=$((i+1)); done; exit 7`, lines)
	var out, errs strings.Builder
	for i := range lines {
		fmt.Fprintf(&out, "line %d of standard output: åäö 日本語 🚀 \"quoted\" \\ back\n", i)
		if i%7 == 0 {
			fmt.Fprintf(&errs, "error %d\n", i)
		}
	}
	return script{args: []string{"-c", args}, stdout: out.String(), stderr: errs.String(), code: 7}
}

// run runs the script as a waited command with writers, and checks the output and exit code.
func (s script) run(t *testing.T, sb *sandbox.Sandbox, why string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	done, err := sb.RunCommand(t.Context(), "bash", s.args, &sandbox.CommandOptions{Stdout: &stdout, Stderr: &stderr})
	require.NoError(t, err, why)
	s.check(t, why, stdout.String(), stderr.String(), done.ExitCode)
}

func (s script) check(t *testing.T, why, stdout, stderr string, code int) {
	t.Helper()
	require.Equal(t, s.stdout, stdout, "%s: standard output", why)
	require.Equal(t, s.stderr, stderr, "%s: standard error", why)
	require.Equal(t, s.code, code, "%s: exit code", why)
}

// TestExactlyOnceWaited cuts the stream of a waited command at every offset after its
// first record, with each error. The caller gets all of the output, once.
func TestExactlyOnceWaited(t *testing.T) {
	t.Parallel()
	_, sb, cuts := cutSandbox(t)
	s := smallScript()
	s.run(t, sb, "no cut")
	size := cuts.lastStream()
	first := cuts.firstRecord()
	require.Greater(t, size, first)
	step := int64(1)
	if !needs.Slow() {
		step = 23 // not a multiple of len(cutErrors), so that the errors vary
	}
	for at := first; at <= size; at += step {
		how := cutErrors[at%int64(len(cutErrors))]
		cuts.set(cut{after: at, how: how})
		s.run(t, sb, fmt.Sprintf("cut at %d of %d by %v", at, size, how))
	}
}

// TestExactlyOnceLogs cuts the log of a command at every offset. The command is still
// running at the cut, or ends before the client repairs the log.
func TestExactlyOnceLogs(t *testing.T) {
	t.Parallel()
	_, sb, cuts := cutSandbox(t)
	s := smallScript()
	// After its output, the command waits for a file. So the log has not ended when the
	// cut comes, even if the cut looks like an end.
	hold := []string{"-c", strings.Replace(s.args[1], "exit 3", "while [ ! -e go ]; do sleep 0.1; done; exit 3", 1)}
	cmd, err := sb.StartCommand(t.Context(), "bash", hold, nil)
	require.NoError(t, err)
	size := int64(len(s.stdout) + len(s.stderr)) // the minimum size of the log, which contains these as JSON
	for at := int64(0); at <= size; at += 3 {
		how := cutErrors[at%int64(len(cutErrors))]
		cuts.set(cut{after: at, how: how}, cut{status: 502}, cut{after: at / 2, how: errReset})
		var stdout, stderr strings.Builder
		for line, err := range cmd.Logs(t.Context()) {
			require.NoError(t, err, "cut at %d by %v", at, how)
			if line.Stream == sandbox.Stderr {
				stderr.WriteString(line.Data)
			} else {
				stdout.WriteString(line.Data)
			}
			if stdout.Len() >= len(s.stdout) && stderr.Len() >= len(s.stderr) {
				break
			}
		}
		s.check(t, fmt.Sprintf("cut at %d by %v", at, how), stdout.String(), stderr.String(), s.code)
	}
	cuts.set()
	_, err = sb.RunCommand(t.Context(), "touch", []string{"go"}, nil)
	require.NoError(t, err)
	done, err := cmd.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, s.code, done.ExitCode)
	out, err := cmd.Stdout(t.Context())
	require.NoError(t, err)
	assert.Equal(t, s.stdout, out)
}

// TestExactlyOnceRandom cuts larger streams at random places, several times each: those of
// waited commands, of output that is copied to writers, and of logs.
func TestExactlyOnceRandom(t *testing.T) {
	t.Parallel()
	needs.Long(t, "TestExactlyOnceWaited and TestExactlyOnceLogs cut smaller streams")
	_, sb, cuts := cutSandbox(t)
	const want = 2000
	s := bigScript(20_000)
	s.run(t, sb, "no cut")
	size, first := cuts.lastStream(), cuts.firstRecord()
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	for i, made := 0, 0; made < want; i++ {
		plan := randomPlan(rng, first, size)
		made += len(plan)
		why := fmt.Sprintf("round %d, %+v", i, plan)
		cuts.set(plan...)
		var stdout, stderr bytes.Buffer
		var cmd *sandbox.Command
		var err error
		switch i % 3 {
		case 0:
			s.run(t, sb, why)
			continue
		case 1:
			cmd, err = sb.StartCommand(t.Context(), "bash", s.args, &sandbox.StartOptions{Stdout: &stdout, Stderr: &stderr})
			require.NoError(t, err, why)
		case 2:
			cmd, err = sb.StartCommand(t.Context(), "bash", s.args, nil)
			require.NoError(t, err)
			for line, err := range cmd.Logs(t.Context()) {
				require.NoError(t, err, why)
				if line.Stream == sandbox.Stderr {
					stderr.WriteString(line.Data)
				} else {
					stdout.WriteString(line.Data)
				}
			}
		}
		done, err := cmd.Wait(t.Context())
		require.NoError(t, err, why)
		s.check(t, why, stdout.String(), stderr.String(), done.ExitCode)
	}
}

// TestReattachGivesUp: if the client can't repair a stream, the error has the command's ID.
func TestReattachGivesUp(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	cuts := &cutter{next: testkit.Transport(t)}
	client := testkit.Client(t, srv, sandbox.ClientOptions{
		HTTPClient: cuts.client(), MaxRetries: -1,
		Reattach: &sandbox.ReattachOptions{Attempts: 3, Wait: time.Millisecond},
	})
	sb, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	_, err = sb.RunCommand(t.Context(), "bash", []string{"-c", "echo out; exit 5"}, nil)
	require.NoError(t, err)
	cuts.set(cut{after: cuts.firstRecord(), how: errReset}, cut{status: 502}, cut{status: 503}, cut{status: 502}, cut{status: 502})
	_, err = sb.RunCommand(t.Context(), "bash", []string{"-c", "echo out; exit 5"}, nil)
	var lost *sandbox.StreamError
	require.ErrorAs(t, err, &lost)
	require.NotEmpty(t, lost.CommandID)
	assert.Contains(t, err.Error(), lost.CommandID)

	cuts.set()
	again, err := sb.GetCommand(t.Context(), lost.CommandID)
	require.NoError(t, err)
	done, err := again.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 5, done.ExitCode)
	out, err := again.CombinedOutput(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "out\n", out)
}

// TestCutBeforeTheCommand: a stream breaks within its first record, which describes the
// command. If the client has chosen the ID, it finds the command by the ID. Otherwise it
// returns ErrOutcomeUnknown. It never sends the start again.
func TestCutBeforeTheCommand(t *testing.T) {
	t.Parallel()
	srv, sb, cuts := cutSandbox(t)
	for i, how := range cutErrors {
		cuts.set(cut{after: int64(5 * i), how: how})
		done, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "echo found; exit 3"}, nil)
		require.NoError(t, err)
		assert.Equal(t, 3, done.ExitCode)
		out, err := done.Stdout(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "found\n", out)
	}
	assert.Equal(t, len(cutErrors), testkit.Count(srv, sandboxtest.RunCommand))

	plain := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: cuts.client(), ServerCommandIDs: true})
	sb, err := plain.Get(t.Context(), sb.Name(), nil)
	require.NoError(t, err)
	for i, how := range cutErrors {
		cuts.set(cut{after: int64(5 * i), how: how})
		_, err := sb.RunCommand(t.Context(), "true", nil, nil)
		require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
	}
	assert.Equal(t, 2*len(cutErrors), testkit.Count(srv, sandboxtest.RunCommand))
}

// TestAtMostOnce runs commands that each append a line to a file. After three of ten
// starts, the API returns 502 or drops the connection. No line appears twice. If the
// client chooses the IDs, it knows that all commands have run. Otherwise some calls return
// ErrOutcomeUnknown, and the other lines are in the file.
func TestAtMostOnce(t *testing.T) {
	for name, serverIDs := range map[string]bool{"with IDs": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !serverIDs {
				needs.Long(t, "TestRunsOnceDespiteLostResponse loses the responses of commands with IDs")
			}
			atMostOnce(t, serverIDs)
		})
	}
}

func atMostOnce(t *testing.T, serverIDs bool) {
	total := 1000
	if !needs.Slow() {
		total = 24
	}
	srv := testkit.LightServer(t)
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{ServerCommandIDs: serverIDs}).Create(t.Context(), testkit.Lasting(nil))
	require.NoError(t, err)
	for _, f := range []sandboxtest.Fault{{ActThenStatus: 502, Probability: 0.15}, {DropAfter: true, Probability: 0.18}} {
		f.Operation = sandboxtest.RunCommand
		defer srv.Inject(f)()
	}
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		known = map[string]bool{} // for each line, whether the call has reported that its command ran
	)
	for worker := range 8 {
		group.Go(func() {
			for i := worker; i < total; i += 8 {
				line := fmt.Sprintf("line-%04d", i)
				_, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "echo $0 >> lines", line}, nil)
				mu.Lock()
				known[line] = err == nil
				mu.Unlock()
				if err != nil && !errors.Is(err, sandbox.ErrOutcomeUnknown) {
					t.Errorf("%s: %v", line, err)
				}
			}
		})
	}
	group.Wait()
	looks := testkit.Count(srv, sandboxtest.GetCommand)
	counts := lines(t, sb)
	unknown := 0
	for line, ran := range known {
		assert.LessOrEqual(t, counts[line], 1, "%s is in the file more than once", line)
		if ran {
			assert.Equal(t, 1, counts[line], "%s was reported as run", line)
		} else {
			unknown++
		}
	}
	if serverIDs {
		assert.Positive(t, unknown, "no fault occurred")
	} else {
		assert.Zero(t, unknown, "commands with an unknown outcome")
		assert.Positive(t, looks, "no fault occurred")
	}
	t.Logf("%d commands, %d with an unknown outcome, %d ran twice", total, unknown, twice(counts))
}

func twice(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		if c > 1 {
			n++
		}
	}
	return n
}

// lines counts the lines written by a sandbox's commands.
func lines(t *testing.T, sb *sandbox.Sandbox) map[string]int {
	t.Helper()
	require.NoError(t, waitAll(t.Context(), sb))
	counts := map[string]int{}
	for line := range strings.Lines(read(t, sb, "lines")) {
		counts[strings.TrimSpace(line)]++
	}
	return counts
}

// waitAll waits for every command of the session.
func waitAll(ctx context.Context, sb *sandbox.Sandbox) error {
	cmds, err := sb.ListCommands(ctx)
	if err != nil {
		return err
	}
	for _, cmd := range cmds {
		if _, exited := cmd.ExitStatus(); exited {
			continue
		}
		if _, err := cmd.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// read returns a file's content. Because of the faults, it repeats the command that prints
// it until this succeeds.
func read(t *testing.T, sb *sandbox.Sandbox, path string) string {
	t.Helper()
	for {
		done, err := sb.RunCommand(t.Context(), "cat", []string{path}, nil)
		if errors.Is(err, sandbox.ErrOutcomeUnknown) {
			continue
		}
		require.NoError(t, err)
		out, err := done.Stdout(t.Context())
		require.NoError(t, err)
		return out
	}
}
