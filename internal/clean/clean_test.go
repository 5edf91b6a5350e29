package clean

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestProgram: both forms run a program with the same environment, whatever the values
// are, and Of recognizes both.
func TestProgram(t *testing.T) {
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
	for _, form := range []func(string, ...string) (string, []string){program, plain} {
		name, args := form("env", "-0")
		cmd := exec.Command(name, args...)
		cmd.Env = environ
		out, err := cmd.Output()
		require.NoError(t, err)
		want := Env(values)
		for kv := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			name, value, _ := strings.Cut(kv, "=")
			assert.Equal(t, want[name], value, name)
		}
		_, program, rest := Of(name, args)
		assert.Equal(t, "env", program)
		assert.Equal(t, []string{"-0"}, rest)

		name, args = form("false", "a", "")
		var exit *exec.ExitError
		require.ErrorAs(t, exec.Command(name, args...).Run(), &exit)
		assert.Equal(t, 1, exit.ExitCode())
	}
	before, program, _ := Of("env", []string{"-i", "sh"})
	assert.Empty(t, before)
	assert.Equal(t, "env", program)
}

// TestRefused lists the messages of other implementations of env about -S, and messages
// of programs that did run.
func TestRefused(t *testing.T) {
	for stderr, code := range map[string]int{
		"env: invalid option -- 'S'\nTry 'env --help' for more information.\n":  125,
		"env: unrecognized option: S\nBusyBox v1.36.1 () multi-call binary.\n":  1,
		"env: unrecognized option: S\r\nof a terminal\r\n":                      1,
		"env: invalid option -- 'S'\nBusyBox v1.30.1 multi-call binary.\n\nUse": 1,
	} {
		assert.True(t, refused(code, stderr), stderr)
		assert.False(t, refused(2, stderr))
	}
	assert.False(t, refused(1, "stat: cannot stat 'env: S'\n"))
	assert.True(t, missing(127, "env: 'stat': No such file or directory\n"))
	assert.True(t, missing(127, "/usr/bin/env: 'stat': No such file or directory\n"))
	assert.False(t, missing(127, "sh: 1: exec: stat: not found\n"))
}
