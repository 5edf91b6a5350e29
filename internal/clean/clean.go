// Package clean gives the programs that this module runs for itself a separate
// environment: the sandbox's variables and exported functions must only affect the
// caller's commands, and not tar, bash or dd.
package clean

import (
	"os/exec"
	"path"
	"slices"
	"strings"
)

// kept are the sandbox's variables that helper programs get: those that are needed to find
// and load programs and to find the user's files, and the one that identifies a process.
var kept = []string{"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LD_LIBRARY_PATH", "GO_SANDBOX_COMMAND"}

// english makes programs print messages in English, because this module parses them.
const english = "LC_ALL=C"

// splitEnv is the environment as one argument, which env -S splits. env replaces ${NAME}.
var splitEnv = func() string {
	var b strings.Builder
	for _, name := range kept {
		b.WriteString(name + "=${" + name + "} ")
	}
	return b.String() + english
}()

// shellScript replaces env -S where env has no -S, as in BusyBox. env -S is better,
// because bash would read BASH_ENV, SHELLOPTS and exported functions before the script.
var shellScript = func() string {
	var b strings.Builder
	b.WriteString("exec env -i")
	for _, name := range kept {
		b.WriteString(" " + name + `="$` + name + `"`)
	}
	return b.String() + " " + english + ` "$@"`
}()

// Run runs a program in a separate environment. command runs a command and returns its
// result and its standard error. If env does not support -S, Run calls it again with
// another form. If the program does not exist, the error is an [*exec.Error].
func Run(name string, args []string, command func(name string, args []string) (exitCode int, stderr string, err error)) error {
	code, stderr, err := command(program(name, args...))
	if err == nil && lacksSplit(code, stderr) {
		code, stderr, err = command(plain(name, args...))
	}
	if err == nil && programMissing(code, stderr) {
		err = &exec.Error{Name: name, Err: exec.ErrNotFound}
	}
	return err
}

// program returns the command that runs a program in a separate environment.
func program(name string, args ...string) (string, []string) {
	return "env", append([]string{"-i", "-S", splitEnv, name}, args...)
}

// plain returns the alternative to program for an env without -S.
func plain(name string, args ...string) (string, []string) {
	return "sh", append([]string{"-c", shellScript, "sh", name}, args...)
}

// lacksSplit reports whether the command from program has failed, before anything ran,
// because env has no -S.
func lacksSplit(exitCode int, stderr string) bool {
	line, _, _ := strings.Cut(stderr, "\n")
	return (exitCode == 1 || exitCode == 125) && saidByEnv(line) && strings.HasSuffix(strings.Trim(line, "'\"‘’\r"), "S")
}

// programMissing reports whether the command from program has failed because the program does
// not exist.
func programMissing(exitCode int, stderr string) bool {
	return exitCode == 127 && saidByEnv(stderr)
}

// saidByEnv reports whether a message starts with the name under which env was started.
func saidByEnv(message string) bool {
	name, _, _ := strings.Cut(message, ": ")
	return path.Base(name) == "env"
}

// Of splits a command that Run made into the wrapper that sets the environment, the
// program and its arguments. For any other command, before is nil.
func Of(name string, args []string) (before []string, program string, rest []string) {
	for _, before := range [][]string{{"env", "-i", "-S", splitEnv}, {"sh", "-c", shellScript, "sh"}} {
		if n := len(before) - 1; name == before[0] && len(args) > n && slices.Equal(args[:n], before[1:]) {
			return before, args[n], args[n+1:]
		}
	}
	return nil, name, args
}

// Env returns the environment of a helper program, given the sandbox's.
func Env(env map[string]string) map[string]string {
	own := map[string]string{}
	for _, name := range kept {
		if value, ok := env[name]; ok {
			own[name] = value
		}
	}
	name, value, _ := strings.Cut(english, "=")
	own[name] = value
	return own
}
