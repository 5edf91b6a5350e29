package accounts

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// here returns a Runner that runs and counts programs of this machine.
func here(t *testing.T, runs *int) Runner {
	needs.Programs(t, "sh", "id")
	return func(ctx context.Context, action string, _ bool, name string, args ...string) (string, error) {
		*runs++
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			return "", &StepError{Action: action, ExitCode: e.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
		}
		return stdout.String(), err
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 && exec.Command("sudo", "-n", "true").Run() != nil {
		needs.Other(t, "needs sudo, or root")
	}
	var runs int
	run := here(t, &runs)
	me, err := run(t.Context(), "", false, "id", "-un")
	if err == nil {
		_, err = run(t.Context(), "", false, "id", "-gn")
	}
	if err != nil {
		needs.Other(t, "needs names of this user and group: %v", err)
	}
	runs = 0
	names := &Names{}
	steps := append(names.Whoami(), names.PrimaryGroup("root")...)
	steps = append(steps, Program("first", "sh", "-c", "echo fine"), Program("second", "sh", "-c", "echo said; echo no >&2; exit 3"), Program("third", "false"))
	err = run.Run(t.Context(), names, steps)
	failed, ok := errors.AsType[*StepError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, &StepError{Action: "second", ExitCode: 3, Stdout: "said\n", Stderr: "no\n"}, failed)
	assert.Equal(t, strings.TrimSpace(me), names.Me.User)
	assert.NotEmpty(t, names.Me.Group)
	assert.NotEmpty(t, names.Primary)
	assert.Equal(t, 1, runs, "one command")
	assert.Empty(t, names.Whoami())
	assert.Empty(t, names.PrimaryGroup("root"))
}

func TestLongListsOfPaths(t *testing.T) {
	t.Parallel()
	paths := make([]string, 3000)
	for i := range paths {
		paths[i] = "/home/alice/" + strings.Repeat("x", 50)
	}
	var all []string
	for _, s := range Chown(Group, "alice", paths...) {
		assert.Less(t, s.size(), maxArguments+100)
		_, args, sudo := s.command(&Names{Me: Identity{"me", "us"}})
		assert.True(t, sudo)
		assert.Equal(t, "alice:us", args[0])
		all = append(all, args[1:]...)
	}
	assert.Equal(t, paths, all)
}
