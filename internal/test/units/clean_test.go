package units_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/clean"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// forms returns the two command lines with which Run may run a program. Run uses the second
// one if env has no option -S.
func forms(program string, args ...string) (list [][]string) {
	_ = clean.Run(program, args, func(name string, args []string) (int, string, error) {
		list = append(list, append([]string{name}, args...))
		return 1, "env: unrecognized option: S\n", nil
	})
	return list
}

// TestOwnEnvironment: both forms run a program with the same environment, whatever the values
// are. Of recognizes both forms.
func TestOwnEnvironment(t *testing.T) {
	needs.GNU(t)
	needs.Programs(t, "env")
	values := map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": `/a b/"c"/'d'/$e/${PATH}/\n\c;#`, "USER": "", "TMPDIR": "/tmp\nx",
		"BASH_ENV": "/nonexistent", "TAR_OPTIONS": "x", "POSIXLY_CORRECT": "1", "BASH_FUNC_env%%": "() { :; }", "LC_ALL": "C.UTF-8",
	}
	var environ []string
	for name, value := range values {
		environ = append(environ, name+"="+value)
	}
	listing := forms("env", "-0")
	require.Len(t, listing, 2)
	for _, form := range listing {
		cmd := exec.Command(form[0], form[1:]...)
		cmd.Env = environ
		out, err := cmd.Output()
		require.NoError(t, err)
		want := clean.Env(values)
		for kv := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			name, value, _ := strings.Cut(kv, "=")
			assert.Equal(t, want[name], value, name)
		}
		_, program, rest := clean.Of(form[0], form[1:])
		assert.Equal(t, "env", program)
		assert.Equal(t, []string{"-0"}, rest)
	}
	for _, form := range forms("false", "a", "") {
		var exit *exec.ExitError
		require.ErrorAs(t, exec.Command(form[0], form[1:]...).Run(), &exit)
		assert.Equal(t, 1, exit.ExitCode())
	}
	before, program, _ := clean.Of("env", []string{"-i", "sh"})
	assert.Empty(t, before)
	assert.Equal(t, "env", program)
}

// TestEnvWithoutSplit: Run uses the second form only if the message shows that env has no
// option -S. If the program is missing, Run returns an error.
func TestEnvWithoutSplit(t *testing.T) {
	for _, c := range []struct {
		code    int
		stderr  string
		again   bool
		missing bool
	}{
		{125, "env: invalid option -- 'S'\nTry 'env --help' for more information.\n", true, false},
		{1, "env: unrecognized option: S\nBusyBox v1.36.1 () multi-call binary.\n", true, false},
		{1, "env: unrecognized option: S\r\nof a terminal\r\n", true, false},
		{1, "env: invalid option -- 'S'\nBusyBox v1.30.1 multi-call binary.\n\nUse", true, false},
		{2, "env: unrecognized option: S\n", false, false},
		{1, "stat: cannot stat 'env: S'\n", false, false},
		{127, "env: 'stat': No such file or directory\n", false, true},
		{127, "/usr/bin/env: 'stat': No such file or directory\n", false, true},
		{127, "sh: 1: exec: stat: not found\n", false, false},
	} {
		runs := 0
		err := clean.Run("stat", nil, func(string, []string) (int, string, error) {
			if runs++; runs > 1 {
				return 0, "", nil
			}
			return c.code, c.stderr, nil
		})
		assert.Equal(t, c.again, runs == 2, c.stderr)
		assert.Equal(t, c.missing, errors.Is(err, exec.ErrNotFound), c.stderr)
	}
}
