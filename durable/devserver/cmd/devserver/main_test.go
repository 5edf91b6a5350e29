package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

// envProgram is an environment variable that makes the test binary act as the program, or
// as the command that it runs.
const envProgram = "DEVSERVER_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(envProgram) {
	case "program":
		os.Setenv(envProgram, "command")
		main()
	case "command":
		os.Exit(command())
	}
	os.Exit(m.Run())
}

// command returns the exit code 7 if it reaches the server of its environment.
func command() int {
	c, err := client.Dial(envconfig.MustLoadDefaultClientOptions())
	if err != nil {
		return 1
	}
	c.Close()
	return 7
}

// TestCommand: the command finds the server, even if the environment named another Temporal
// before, and its exit code becomes the exit code of devserver. A command that cannot run
// is an error.
func TestCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "database")
	program := func(args ...string) (stderr string, code int) {
		cmd := exec.Command(os.Args[0], append([]string{"-dir", dir}, args...)...)
		cmd.Env = append(os.Environ(), envProgram+"=program", "TEMPORAL_ADDRESS=cluster.example:7233", "TEMPORAL_API_KEY=others", "TEMPORAL_CONFIG_FILE=/nowhere")
		var text bytes.Buffer
		cmd.Stderr = &text
		if err := cmd.Run(); err != nil {
			require.IsType(t, new(exec.ExitError), err)
		}
		return text.String(), cmd.ProcessState.ExitCode()
	}
	stderr, code := program(os.Args[0])
	assert.Equal(t, 7, code, stderr)
	stderr, code = program("no-such-program")
	assert.Equal(t, exitNotFound, code)
	assert.Contains(t, stderr, "no-such-program")
	stderr, code = program("-port", "0x")
	assert.Equal(t, exitUsage, code)
	assert.True(t, strings.HasPrefix(stderr, "invalid value"), stderr)
}
