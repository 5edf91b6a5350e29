// Package clean gives the programs that this module runs for itself an
// environment of their own: what the sandbox's variables and exported functions
// make of tar, bash or dd is for the caller's commands alone.
package clean

import (
	"os/exec"
	"path"
	"slices"
	"strings"
)

// kept are the variables of the sandbox that its programs need to be found and
// loaded, and to find what belongs to the user, and the one by which a process
// is known.
var kept = []string{"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LD_LIBRARY_PATH", "GO_SANDBOX_COMMAND"}

// fixed are those that are always the same: messages are read.
const fixed = "LC_ALL=C"

// split is the environment as env splits it, which replaces ${NAME}.
var split = func() string {
	var b strings.Builder
	for _, name := range kept {
		b.WriteString(name + "=${" + name + "} ")
	}
	return b.String() + fixed
}()

// shell is the same for an env that does not split, as that of BusyBox. The
// program that is started has to be env where that is possible: bash reads
// BASH_ENV, SHELLOPTS and functions before any script of ours.
var shell = func() string {
	var b strings.Builder
	b.WriteString("exec env -i")
	for _, name := range kept {
		b.WriteString(" " + name + `="$` + name + `"`)
	}
	return b.String() + " " + fixed + ` "$@"`
}()

// Run runs a program in an environment of its own. command runs a command and
// returns how it has ended, with what it wrote to standard error; that is done
// again in another form if env does not split. The error of a program that is not
// there is an [*exec.Error].
func Run(name string, args []string, command func(name string, args []string) (exitCode int, stderr string, err error)) error {
	code, stderr, err := command(program(name, args...))
	if err == nil && refused(code, stderr) {
		code, stderr, err = command(plain(name, args...))
	}
	if err == nil && missing(code, stderr) {
		err = &exec.Error{Name: name, Err: exec.ErrNotFound}
	}
	return err
}

// program returns the command that runs a program in an environment of its own.
func program(name string, args ...string) (string, []string) {
	return "env", append([]string{"-i", "-S", split, name}, args...)
}

// plain is program where refused.
func plain(name string, args ...string) (string, []string) {
	return "sh", append([]string{"-c", shell, "sh", name}, args...)
}

// refused reports whether what program returns has failed because env does not
// split, before anything ran.
func refused(exitCode int, stderr string) bool {
	line, _, _ := strings.Cut(stderr, "\n")
	return (exitCode == 1 || exitCode == 125) && saidByEnv(line) && strings.HasSuffix(strings.Trim(line, "'\"‘’\r"), "S")
}

// missing reports whether what program returns has failed because there is no such
// program.
func missing(exitCode int, stderr string) bool {
	return exitCode == 127 && saidByEnv(stderr)
}

// saidByEnv reports whether a message begins with the name that env was called by.
func saidByEnv(message string) bool {
	name, _, _ := strings.Cut(message, ": ")
	return path.Base(name) == "env"
}

// Of returns the program that a command runs in an environment of its own, and the
// words before it: none if it is another command.
func Of(name string, args []string) (before []string, program string, rest []string) {
	for _, before := range [][]string{{"env", "-i", "-S", split}, {"sh", "-c", shell, "sh"}} {
		if n := len(before) - 1; name == before[0] && len(args) > n && slices.Equal(args[:n], before[1:]) {
			return before, args[n], args[n+1:]
		}
	}
	return nil, name, args
}

// Env returns what such a program has of the sandbox's environment.
func Env(env map[string]string) map[string]string {
	own := map[string]string{}
	for _, name := range kept {
		if value, ok := env[name]; ok {
			own[name] = value
		}
	}
	name, value, _ := strings.Cut(fixed, "=")
	own[name] = value
	return own
}
