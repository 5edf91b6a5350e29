package units_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/users"
)

// localRunner returns a Runner that runs programs on this machine, and counts the runs.
func localRunner(t *testing.T, runs *int) users.Runner {
	needs.Programs(t, "sh", "id")
	return func(ctx context.Context, action string, _ bool, name string, args ...string) (string, error) {
		*runs++
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			return "", &users.StepError{Action: action, ExitCode: e.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
		}
		return stdout.String(), err
	}
}

// TestSteps: one command runs all steps up to the first that fails. The error contains the
// output and the exit code of this step.
func TestSteps(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 && exec.Command("sudo", "-n", "true").Run() != nil {
		needs.Other(t, "needs sudo, or root")
	}
	var runs int
	run := localRunner(t, &runs)
	me, err := run(t.Context(), "", false, "id", "-un")
	if err == nil {
		_, err = run(t.Context(), "", false, "id", "-gn")
	}
	if err != nil {
		needs.Other(t, "needs names of this user and group: %v", err)
	}
	runs = 0
	names := &users.Names{}
	steps := append(names.Whoami(), names.PrimaryGroup("root")...)
	steps = append(steps, users.Program("first", "sh", "-c", "echo fine"), users.Program("second", "sh", "-c", "echo said; echo no >&2; exit 3"), users.Program("third", "false"))
	err = run.Run(t.Context(), names, steps)
	failed, ok := errors.AsType[*users.StepError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, &users.StepError{Action: "second", ExitCode: 3, Stdout: "said\n", Stderr: "no\n"}, failed)
	assert.Equal(t, strings.TrimSpace(me), names.Me.User)
	assert.NotEmpty(t, names.Me.Group)
	assert.NotEmpty(t, names.Primary)
	assert.Equal(t, 1, runs, "one command")
	assert.Empty(t, names.Whoami())
	assert.Empty(t, names.PrimaryGroup("root"))
}

// TestLongListsOfPaths: Chown splits a list of paths that is too long for one command.
func TestLongListsOfPaths(t *testing.T) {
	t.Parallel()
	paths := make([]string, 3000)
	for i := range paths {
		paths[i] = "/home/alice/" + strings.Repeat("x", 50)
	}
	var all []string
	run := users.Runner(func(_ context.Context, _ string, sudo bool, name string, args ...string) (string, error) {
		assert.Equal(t, "chown", name)
		assert.True(t, sudo)
		assert.Less(t, len(strings.Join(args, " ")), 64<<10+100)
		assert.Equal(t, "alice:us", args[0])
		all = append(all, args[1:]...)
		return "", nil
	})
	names := &users.Names{Me: users.Identity{User: "me", Group: "us"}}
	require.NoError(t, run.Run(t.Context(), names, users.Chown(users.Group, "alice", paths...)))
	assert.Equal(t, paths, all)
}

// TestRunWithoutSudo: without sudo, the script ends before its first step. The error names
// the first step.
func TestRunWithoutSudo(t *testing.T) {
	t.Parallel()
	runs := 0
	run := users.Runner(func(context.Context, string, bool, string, ...string) (string, error) {
		runs++
		return "", &users.StepError{ExitCode: 1, Stderr: "sudo: no\n"}
	})
	err := run.Run(t.Context(), &users.Names{}, append((&users.Names{}).Whoami(), users.Program("create", "useradd", "alice")))
	failed, ok := errors.AsType[*users.StepError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, &users.StepError{Action: "resolve the default sandbox user", ExitCode: 1, Stderr: "sudo: no\n"}, failed)
	assert.Equal(t, 1, runs)
}

// TestLongListsOfSteps: if the steps don't fit into one command, several commands run them.
func TestLongListsOfSteps(t *testing.T) {
	t.Parallel()
	var steps, sizes []int
	run := users.Runner(func(_ context.Context, _ string, _ bool, _ string, args ...string) (string, error) {
		args = args[7:] // skip -c, the script, sh, root's script and three names
		n, size := 0, 0
		for ; len(args) > 0; n++ {
			words := 3 // the kind of step, the number of paths, and the owner
			count, err := strconv.Atoi(args[1])
			if err != nil {
				return "", err
			}
			for _, a := range args[words : words+count] {
				size += len(a)
			}
			args = args[words+count:]
		}
		steps, sizes = append(steps, n), append(sizes, size)
		return strings.Repeat("\x1e\n", n), nil
	})
	var all []users.Step
	for range 100 {
		all = append(all, users.Program("write", "touch", strings.Repeat("x", 2000)))
	}
	require.NoError(t, run.Run(t.Context(), &users.Names{}, all))
	total := 0
	for i, n := range steps {
		total += n
		assert.Less(t, sizes[i], 64<<10)
	}
	assert.Equal(t, len(all), total)
	assert.Len(t, steps, 4, "%v", sizes)
}
