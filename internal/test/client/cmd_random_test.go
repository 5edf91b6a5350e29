package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// programsEnv names the variable with the number of programs that TestCmdRandom runs.
const programsEnv = "SANDBOX_CMD_PROGRAMS"

// randomCmd is a random program with random inputs and outputs.
type randomCmd struct {
	name string
	args []string
	// stdin is the kind of input, and input its content.
	stdin, input string
	// how is the method that runs the program, and out and err are the kinds of outputs.
	how, out, err string
	env           []string
	dir           string
	binary        bool
	waitDelay     time.Duration
	// cancel says when the context ends: "before" the start, once the program has
	// printed "ready", or never if it is empty.
	cancel string
	// children says that a child process writes after the program has ended.
	children bool
}

func (c randomCmd) String() string {
	return fmt.Sprintf("%q %q, stdin %q of %d bytes, by %s to %q and %q, env %q, dir %q, binary %t, delay %v, canceled %q",
		c.name, c.args, c.stdin, len(c.input), c.how, c.out, c.err, c.env, c.dir, c.binary, c.waitDelay, c.cancel)
}

// variables are the environment variables that random programs can get.
var variables = []string{"A=1", "A=2", "B_C=x=y", "EMPTY=", "a.b=1", "npm_config_//registry/:_token=x", "A-B=2", "1X=4", "UML=ü\n", "IFS=,", "OPTIND=5", "PPID=7"}

// newRandomCmd returns a random program.
func newRandomCmd(r *rand.Rand) randomCmd {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	often := func(percent int) bool { return r.IntN(100) < percent }
	c := randomCmd{
		stdin: pick("", "", "", "reader", "buffer", "file", "stream", "slow", "pipe", "unread pipe", "broken"),
		how:   pick("Run", "Run", "Start", "Output", "CombinedOutput", "pipes"),
		dir:   pick("", "", "work", "work", "none", "file"),
	}
	switch r.IntN(4) {
	case 0:
		c.input = ""
	case 1:
		c.input = strings.Repeat("0123456789abcde\n", r.IntN(20_000))
	default:
		c.input = strings.Repeat("line of input\n", r.IntN(5))
	}
	if often(30) {
		for range 1 + r.IntN(4) {
			c.env = append(c.env, pick(variables...))
		}
	}
	switch c.how {
	case "Run", "Start":
		c.out, c.err = pick("", "buffer", "buffer", "same"), pick("", "buffer", "buffer", "same")
		if c.out == "same" || c.err == "same" {
			c.out, c.err = "same", "same"
		}
	case "Output":
		c.err = pick("", "buffer")
	}
	if c.stdin == "broken" { // the program must read it, otherwise chance decides which error is returned
		c.name, c.dir = "cat", ""
		return c
	}
	if often(15) {
		c.waitDelay = time.Duration(1+r.IntN(20)) * time.Second
	}
	switch r.IntN(12) {
	case 0:
		c.name = pick("no-such-program", "./no-such-program", "/no/such", "/etc/passwd", "/etc", "", "./script", "./plain")
		c.args, c.dir = []string{"a"}, ""
		return c
	case 1:
		c.name, c.args = "printf", []string{"%s|", pick("", "a b", "*"), pick("$HOME", "'", `\`), pick("-n", "ü\n", "\t")}
		return c
	case 2:
		c.name = "env"
		return c
	case 3:
		c.name, c.args, c.cancel = "sh", []string{"-c", "echo ready; exec sleep 60"}, pick("before", "ready")
		c.how, c.out, c.err = "Run", "ready", ""
		if often(50) { // a child process keeps the output open
			c.args[1], c.waitDelay = "sleep 60 & echo ready; wait", 100*time.Millisecond
		}
		return c
	}
	if c.out == "buffer" && often(8) {
		// With more output, the result would depend on timing.
		c.name, c.args, c.out = "sh", []string{"-c", pick("echo x", "echo x; exit 4", "echo e >&2")}, "broken"
		return c
	}
	var lines []string
	for i := range 1 + r.IntN(5) {
		step := []string{
			fmt.Sprintf("echo o%d", i), fmt.Sprintf("echo e%d >&2", i), fmt.Sprintf("printf p%d", i),
			fmt.Sprintf("seq %d", r.IntN(4000)), fmt.Sprintf("seq %d >&2", r.IntN(20000)), `echo "$A|$B_C|$EMPTY|$UML"`,
			`basename "$(pwd)"; basename "$PWD"`, `printf '%s|' "$@"`, "(echo sub; exit 3)", "echo $?", "exec 1>&-", "sleep 0.02", "umask", "exec 2>&1",
		}
		if c.stdin != "unread pipe" {
			step = append(step, "cat", "head -c 3", "cat | wc -c", `read x; echo "got $x"`, "cat >/dev/null", "tail -n 1 >&2")
		}
		lines = append(lines, step[r.IntN(len(step))])
		if often(8) {
			lines, c.binary = append(lines, `printf '\377\376\200'`), true
		}
	}
	switch r.IntN(8) {
	case 0:
		lines = append(lines, fmt.Sprintf("exit %d", r.IntN(256)))
	case 1:
		lines = append(lines, fmt.Sprintf("kill -%s $$; sleep 60", pick("TERM", "KILL", "INT", "HUP", "USR1", "PIPE", "ABRT")))
	case 2:
		lines = append(lines, "exec no-such-program")
	case 3:
		lines = slices.DeleteFunc(lines, func(line string) bool { return line == "exec 1>&-" })
		lines = append(lines, "(sleep 0.6; echo late) & exit "+strconv.Itoa(r.IntN(2)))
		c.children = true
		if often(50) {
			c.waitDelay = 200 * time.Millisecond
		}
	case 4:
		lines = append(lines, "false | true")
	}
	c.name, c.args = "sh", []string{"-c", strings.Join(lines, "\n"), "sh", pick("", "a b"), pick("*", "ü", "-c")}
	return c
}

// playResult is the part of a result that must be the same for both kinds of Cmd.
type playResult struct {
	Stdout, Stderr string
	Err            string // of an exit status or an exec.Error
	Is             string
	Code           int
	State          string
}

// play runs a random program in a directory.
func (c randomCmd) play(t *testing.T, mk makeCmd, files string) playResult {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr, same bytes.Buffer
	var f cmdFields
	f.env, f.waitDelay = c.env, c.waitDelay
	kinds := map[string]io.Writer{"same": &same, "broken": failingWriter{}, "ready": &notifyWriter{text: "ready", notify: cancel}}
	switch c.out {
	case "":
	case "buffer":
		f.stdout = &stdout
	default:
		f.stdout = kinds[c.out]
	}
	switch c.err {
	case "":
	case "buffer":
		f.stderr = &stderr
	default:
		f.stderr = kinds[c.err]
	}
	if c.cancel == "before" {
		cancel()
	}
	switch c.stdin {
	case "reader":
		f.stdin = strings.NewReader(c.input)
	case "buffer":
		f.stdin = bytes.NewBufferString(c.input)
	case "file":
		name := filepath.Join(files, "input")
		require.NoError(t, os.WriteFile(name, []byte(c.input), 0o600))
		file, err := os.Open(name)
		require.NoError(t, err)
		defer file.Close()
		f.stdin = file
	case "stream":
		f.stdin = struct{ io.Reader }{strings.NewReader(c.input)}
	case "slow":
		f.stdin = oneByte{strings.NewReader(c.input[:min(len(c.input), 40)])}
	case "broken":
		f.stdin = io.MultiReader(strings.NewReader("a"), failingReader{})
	}
	cmd := mk(ctx, f, c.name, c.args...)
	if c.stdin == "pipe" || c.stdin == "unread pipe" {
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		if c.stdin == "pipe" {
			go func() {
				defer in.Close()
				_, _ = io.WriteString(in, c.input) // the program may have ended
			}()
		}
	}
	var err error
	switch c.how {
	case "Run":
		err = cmd.Run()
	case "Start":
		if err = cmd.Start(); err == nil {
			err = cmd.Wait()
		}
	case "Output":
		var out []byte
		out, err = cmd.Output()
		stdout.Write(out)
	case "CombinedOutput":
		var out []byte
		out, err = cmd.CombinedOutput()
		same.Write(out)
	case "pipes":
		out, outErr := cmd.StdoutPipe()
		require.NoError(t, outErr)
		errs, errErr := cmd.StderrPipe()
		require.NoError(t, errErr)
		if err = cmd.Start(); err == nil {
			read := make(chan []byte)
			go func() { data, _ := io.ReadAll(errs); read <- data }()
			data, readErr := io.ReadAll(out)
			assert.NoError(t, readErr, "%v", c)
			stdout.Write(data)
			stderr.Write(<-read)
			err = cmd.Wait()
		}
	}
	return c.outcome(cmd, stdout.String(), stderr.String(), same.String(), err)
}

// outcome returns a program's result without the differences to package exec that
// docs/commands.md lists.
func (c randomCmd) outcome(cmd anyCmd, stdout, stderr, same string, err error) playResult {
	o := playResult{Stdout: stdout, Stderr: stderr}
	if c.children && (!c.binary || c.waitDelay > 0) {
		// The output ends with the process, so what children write later is lost. With
		// Binary it is kept, because the process is a bash that waits for its children.
		o.Stdout, same = strings.Replace(stdout, "late\n", "", 1), strings.Replace(same, "late\n", "", 1)
		if errors.Is(err, exec.ErrWaitDelay) {
			err = nil
		}
	}
	if same != "" { // the order of the two streams in one output is not defined
		bytes := []byte(same)
		slices.Sort(bytes)
		o.Stdout = string(bytes)
	}
	if strings.Contains(c.name, "/no") && errors.Is(err, fs.ErrNotExist) { // the service has one code for a missing file and a missing program
		err = &exec.Error{Name: c.name, Err: errors.Join(fs.ErrNotExist, exec.ErrNotFound)}
	}
	if c.name == "env" { // the environments differ in other variables
		o.Stdout = onlyVariables(o.Stdout, variables)
	}
	is := map[string]error{
		"not found": exec.ErrNotFound, "not there": fs.ErrNotExist, "permission": fs.ErrPermission, "canceled": context.Canceled,
		"delay": exec.ErrWaitDelay, "own": errOwn, "short": io.ErrShortWrite, "no directory": syscall.ENOTDIR,
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if errors.Is(err, is[name]) {
			o.Is += name + " "
		}
	}
	switch cmd := cmd.(type) {
	case *exec.Cmd:
		if s := cmd.ProcessState; s != nil {
			o.Code, o.State = s.ExitCode(), s.String()
			if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				o.Code = 128 + int(status.Signal())
				o.State = fmt.Sprint("exit status ", o.Code)
			}
		}
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			o.Err, o.Stderr = o.State, o.Stderr+string(e.Stderr)
		}
	case *sandbox.Cmd:
		if s := cmd.ProcessState; s != nil {
			o.Code, o.State = s.ExitCode(), s.String()
		}
		if e, ok := errors.AsType[*sandbox.ExitError](err); ok {
			o.Err, o.Stderr = e.Error(), o.Stderr+string(e.Stderr)
		}
	}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		o.Err = "exec: " + e.Name
	}
	if o.Err == "" && err != nil {
		o.Err = "another"
	}
	return o
}

// onlyVariables returns the lines of an output of env that set one of the variables.
func onlyVariables(text string, variables []string) string {
	var kept []string
	for line := range strings.Lines(text) {
		name, _, ok := strings.Cut(line, "=")
		if ok && slices.ContainsFunc(variables, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			kept = append(kept, line)
		}
	}
	slices.Sort(kept)
	return strings.Join(kept, "")
}

// TestCmdRandom runs random programs with exec.Cmd and with Cmd. SANDBOX_CMD_PROGRAMS
// sets the number of programs.
func TestCmdRandom(t *testing.T) {
	t.Parallel()
	needs.Long(t, "its programs are random; TestCmdLikeOSExec covers each feature")
	count := 30
	if text := os.Getenv(programsEnv); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	seed := testkit.Seed(t)
	sb := share(t, nil)
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "here")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "work"), 0o755))
	for name, mode := range map[string]fs.FileMode{"script": 0o755, "plain": 0o644, "file": 0o644} {
		text := []byte("#!/bin/sh\necho \"$1\"\n")
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, mode))
		require.NoError(t, sb.FS().WriteFile(ctx, "here/"+name, text, mode))
	}
	require.NoError(t, sb.FS().MkdirAll(ctx, "here/work", 0o755))
	t.Run("programs", func(t *testing.T) {
		for i := range count {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				c := newRandomCmd(rand.New(rand.NewPCG(seed, uint64(i))))
				remote := remoteCmd(sb, filepath.Join("here", c.dir))
				if c.binary {
					remote = binaryCmd(remote)
				}
				want := c.play(t, localCmd(filepath.Join(dir, c.dir)), t.TempDir())
				assert.Equal(t, want, c.play(t, remote, t.TempDir()), "%v", c)
			})
		}
	})
}

// binaryCmd returns Cmds with Binary set.
func binaryCmd(mk makeCmd) makeCmd {
	return func(ctx context.Context, f cmdFields, name string, arg ...string) anyCmd {
		c := mk(ctx, f, name, arg...)
		c.(*sandbox.Cmd).Binary = true
		return c
	}
}
