package sandbox_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cutSandbox returns a sandbox behind a cutter.
func cutSandbox(t *testing.T) (*sandboxtest.Server, *sandbox.Sandbox, *cutter) {
	t.Helper()
	srv := sandboxtest.New(t, nil)
	cuts := &cutter{next: transport(t)}
	client := clientOf(t, srv, sandbox.ClientOptions{
		HTTPClient: cuts.client(),
		Retry:      &sandbox.RetryOptions{Max: 2, Wait: time.Millisecond},
		Reattach:   &sandbox.ReattachOptions{Wait: time.Millisecond},
	})
	sb, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	return srv, sb, cuts
}

// script is a command with output on both streams, characters of one to four
// bytes, and an exit code of its own. Its output is what a run without cuts gave.
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

// bigScript writes about n bytes.
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

// run runs the script waited with writers, and checks all that it gives.
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

// TestExactlyOnceWaited cuts the stream of a waited command at every offset
// behind its first record, in every way.
func TestExactlyOnceWaited(t *testing.T) {
	t.Parallel()
	_, sb, cuts := cutSandbox(t)
	s := smallScript()
	s.run(t, sb, "no cut")
	size := cuts.lastStream()
	first := cuts.firstRecord()
	require.Greater(t, size, first)
	for at := first; at <= size; at++ {
		how := ways[at%int64(len(ways))]
		cuts.set(cut{after: at, how: how})
		s.run(t, sb, fmt.Sprintf("cut at %d of %d by %v", at, size, how))
	}
}

// TestExactlyOnceLogs cuts the log of a command that still runs, and that of one
// that a repair meets after its end, at every offset.
func TestExactlyOnceLogs(t *testing.T) {
	t.Parallel()
	_, sb, cuts := cutSandbox(t)
	s := smallScript()
	// The command waits behind its output for a file, so that a clean cut of
	// its log can be told from its end.
	hold := []string{"-c", strings.Replace(s.args[1], "exit 3", "while [ ! -e go ]; do sleep 0.01; done; exit 3", 1)}
	cmd, err := sb.StartCommand(t.Context(), "bash", hold, nil)
	require.NoError(t, err)
	size := int64(len(s.stdout) + len(s.stderr)) // the log is longer than that
	for at := int64(0); at <= size; at += 3 {
		how := ways[at%int64(len(ways))]
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

// TestExactlyOnceRandom makes 2,000 cuts at random places of larger streams,
// several each, of waited commands and of logs copied to writers.
func TestExactlyOnceRandom(t *testing.T) {
	t.Parallel()
	_, sb, cuts := cutSandbox(t)
	want := 2000
	if testing.Short() {
		want = 100
	}
	s := bigScript(20_000)
	s.run(t, sb, "no cut")
	size, first := cuts.lastStream(), cuts.firstRecord()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i, made := 0, 0; made < want; i++ {
		plan := randomPlan(rng, first, size)
		made += len(plan)
		why := fmt.Sprintf("round %d, %+v", i, plan)
		cuts.set(plan...)
		if i%3 == 0 {
			s.run(t, sb, why)
			continue
		}
		// A log that is cut cleanly after the command's end can't be told from
		// a whole one unless another break made it suspect.
		plan = append([]cut{{after: rng.Int64N(size), how: errReset}}, plan...)
		cuts.set(plan...)
		var stdout, stderr bytes.Buffer
		cmd, err := sb.StartCommand(t.Context(), "bash", s.args, &sandbox.CommandOptions{Stdout: &stdout, Stderr: &stderr})
		require.NoError(t, err)
		done, err := cmd.Wait(t.Context())
		require.NoError(t, err, why)
		s.check(t, why, stdout.String(), stderr.String(), done.ExitCode)
	}
}

// TestReattachGivesUp: a stream that can't be repaired is an error that says
// which command it was.
func TestReattachGivesUp(t *testing.T) {
	srv := sandboxtest.New(t, nil)
	cuts := &cutter{next: transport(t)}
	client := clientOf(t, srv, sandbox.ClientOptions{
		HTTPClient: cuts.client(), Retry: &sandbox.RetryOptions{Max: -1},
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
	out, err := again.Output(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "out\n", out)
}

// TestCutBeforeTheCommand: a stream that breaks before the command is known
// leaves the outcome unknown, and nothing is sent again.
func TestCutBeforeTheCommand(t *testing.T) {
	srv, sb, cuts := cutSandbox(t)
	for i, how := range ways {
		cuts.set(cut{after: int64(5 * i), how: how})
		_, err := sb.RunCommand(t.Context(), "true", nil, nil)
		require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
	}
	assert.Equal(t, len(ways), count(srv, sandboxtest.RunCommand))
}
