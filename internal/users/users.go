// Package users creates users and groups in a sandbox, and makes users the owners of
// files. An operation is a list of steps, each of which runs one program. One command runs
// as many steps as its length allows.
package users

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-vercel/sandbox/internal/coreutils"
)

// Identity is the user and group that run the sandbox's commands.
type Identity struct{ User, Group string }

// Names are the users and groups that steps refer to. An empty one is not known yet.
type Names struct {
	Me      Identity
	Primary string // the group of the user that the steps are about
}

// kind is the kind of a step. It says which of Names completes the owner in the arguments
// of the step.
type kind string

// The kinds of steps.
const (
	whoami kind = "whoami" // asks who the sandbox's commands run as
	lookup kind = "lookup" // asks for the primary group of the user args[0]

	plain   kind = "plain"   // runs args unchanged
	Mine    kind = "mine"    // runs args; the owner is a group, and gets the sandbox's user before it
	Group   kind = "group"   // runs args; the owner is a user, and gets the sandbox's group after it
	Primary kind = "primary" // runs args; the owner is a user, and gets the user's own group after it
)

// Step is one program of an operation on users or groups. All run as root, except those
// that ask who the user is.
type Step struct {
	kind   kind
	action string // for errors
	args   []string
	owner  int // index of the owner in args
}

// StepError is the error of a step whose program failed.
type StepError struct {
	Action         string
	ExitCode       int
	Stdout, Stderr string
}

// Error names the step and the exit code.
func (e *StepError) Error() string { return fmt.Sprintf("%s: exit code %d", e.Action, e.ExitCode) }

// Runner runs a program in the sandbox and returns its standard output. The
// error is a *StepError if the program fails.
type Runner func(ctx context.Context, action string, sudo bool, name string, args ...string) (string, error)

// size returns about how many bytes of a command the step takes.
func (s *Step) size() int {
	n := 0
	for _, a := range s.args {
		n += len(a) + 1
	}
	return n
}

// words returns the step as words of the script.
func (s *Step) words() []string {
	return append([]string{string(s.kind), strconv.Itoa(len(s.args)), strconv.Itoa(s.owner + 1)}, s.args...)
}

// command returns the step as a separate command.
func (s *Step) command(names *Names) (name string, args []string, sudo bool) {
	switch s.kind {
	case whoami:
		return "sh", []string{"-c", "id -un; id -gn"}, false
	case lookup:
		return "id", []string{"-gn", s.args[0]}, false
	}
	all := slices.Clone(s.args)
	switch s.kind {
	case Mine:
		all[s.owner] = names.Me.User + ":" + all[s.owner]
	case Group:
		all[s.owner] += ":" + names.Me.Group
	case Primary:
		all[s.owner] += ":" + names.Primary
	}
	return all[0], all[1:], true
}

// recordNames records the names that a step has printed, if it asks for names.
func (s *Step) recordNames(names *Names, out string) error {
	first, rest, _ := strings.Cut(strings.TrimSpace(out), "\n")
	second, _, _ := strings.Cut(rest, "\n")
	switch {
	case s.kind == whoami && first != "" && second != "":
		names.Me = Identity{first, second}
	case s.kind == lookup && first != "":
		names.Primary = first
	case s.kind == whoami || s.kind == lookup:
		return &StepError{Action: s.action, Stdout: out}
	}
	return nil
}

// One command runs several steps. Its outer script, stepsBegin, runs as the sandbox's user
// and finds out the names of that user and group. Its inner script, stepsRun, runs the
// steps as root, up to the first failure. On both streams, a mark precedes the output of
// each step. The marks show which step wrote what, and whether any step started.
const (
	stepMark = "\x1e\n"

	stepsBegin = `inner=$1; shift
[ -n "$2" ] || { user=$(id -un) && group=$(id -gn) || exit; primary=$3; shift 3; set -- "$user" "$group" "$primary" "$@"; }
as=; [ "$(id -u)" = 0 ] || as="sudo -n --"
exec $as sh -c "$inner" sh "$@"`

	stepsRun = `user=$1 group=$2 primary=$3; shift 3
while [ $# -gt 0 ]; do
	kind=$1 n=$2 owner=$3; shift 3
	printf '\036\n'; printf '\036\n' >&2
	case $kind in
	whoami) printf '%s\n%s\n' "$user" "$group"; [ -n "$user" ] && [ -n "$group" ] || exit 0;;
	lookup) primary=$(id -gn "$1") || exit; printf '%s\n' "$primary"; [ -n "$primary" ] || exit 0;;
	*)
		cmd= i=0
		while [ $i -lt $n ]; do
			i=$((i+1)) before= after=
			[ $i != $owner ] || case $kind in
			mine) before=\$user: ;;
			group) after=:\$group ;;
			primary) after=:\$primary ;;
			esac
			cmd="$cmd \"$before\${$i}$after\""
		done
		eval "$cmd" || exit;;
	esac
	shift $n
done`
)

// maxArguments limits the paths in one command, far below Linux's limit.
const maxArguments = 64 << 10

// onPaths returns steps that run args on paths, many paths at a time. If args contain an
// owner, it is the last of them.
func onPaths(kind kind, action string, args, paths []string) []Step {
	var list []Step
	for len(paths) > 0 {
		n, size := 0, 0
		for n < len(paths) && (n == 0 || size+len(paths[n]) < maxArguments) {
			size += len(paths[n]) + 1
			n++
		}
		list = append(list, Step{
			kind: kind, action: action + strings.Join(paths[:n], ", "),
			args: append(slices.Clip(args), paths[:n]...), owner: len(args) - 1,
		})
		paths = paths[n:]
	}
	return list
}

// Chown returns the steps that change the owner of paths.
func Chown(kind kind, owner string, paths ...string) []Step {
	return onPaths(kind, "set ownership on ", []string{"chown", owner}, paths)
}

// ChownLinks is like Chown for symbolic links themselves.
func ChownLinks(kind kind, owner string, paths ...string) []Step {
	return onPaths(kind, "set ownership on ", []string{"chown", "-h", owner}, paths)
}

// Chmod returns the steps that change the permissions of paths.
func Chmod(mode string, paths ...string) []Step {
	return onPaths(plain, "set permissions on ", []string{"chmod", mode}, paths)
}

// Program returns the step that runs a program as root.
func Program(action string, args ...string) Step {
	return Step{kind: plain, action: action, args: args}
}

// PrimaryGroup returns the step that asks for the user's primary group, or none if the
// group is known.
func (n *Names) PrimaryGroup(user string) []Step {
	if n.Primary != "" {
		return nil
	}
	return []Step{{kind: lookup, action: fmt.Sprintf("resolve the primary group of %q", user), args: []string{user}}}
}

// Whoami returns the step that asks which user runs the sandbox's commands, or none if
// that is known.
func (n *Names) Whoami() []Step {
	if n.Me.User != "" {
		return nil
	}
	return []Step{{kind: whoami, action: "resolve the default sandbox user"}}
}

// Run runs the steps in as few commands as their length allows, and records what it
// learns in names.
func (run Runner) Run(ctx context.Context, names *Names, steps []Step) error {
	for len(steps) > 0 {
		n := 1
		for size := steps[0].size(); n < len(steps) && size+steps[n].size() < maxArguments; n++ {
			size += steps[n].size()
		}
		if err := run.runTogether(ctx, names, steps[:n]); err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

// runTogether runs steps in one command.
func (run Runner) runTogether(ctx context.Context, names *Names, steps []Step) error {
	if len(steps) == 1 {
		return run.runAlone(ctx, names, &steps[0])
	}
	args := []string{"-c", stepsBegin, "sh", stepsRun, names.Me.User, names.Me.Group, names.Primary}
	for i := range steps {
		args = append(args, steps[i].words()...)
	}
	name, args := coreutils.Carry("sh", args)
	out, err := run(ctx, "", false, name, args...)
	failed, ok := errors.AsType[*StepError](err)
	if err != nil && !ok {
		return err
	}
	if ok {
		out = failed.Stdout
	}
	outputs := strings.Split(out, stepMark)[1:]
	begun := min(len(outputs), len(steps))
	if ok && begun == 0 { // no step began: sudo does not let the sandbox's user become root
		return &StepError{Action: steps[0].action, ExitCode: failed.ExitCode, Stdout: out, Stderr: failed.Stderr}
	}
	for i := range steps[:begun] {
		if ok && i == begun-1 {
			stderrs := strings.Split(failed.Stderr, stepMark)
			return &StepError{Action: steps[i].action, ExitCode: failed.ExitCode, Stdout: outputs[i], Stderr: stderrs[len(stderrs)-1]}
		}
		if err := steps[i].recordNames(names, outputs[i]); err != nil {
			return err
		}
	}
	if begun < len(steps) {
		return &StepError{Action: steps[begun].action, Stdout: out}
	}
	return nil
}

// runAlone runs a step as a separate command.
func (run Runner) runAlone(ctx context.Context, names *Names, st *Step) error {
	name, args, sudo := st.command(names)
	name, args = coreutils.Carry(name, args)
	out, err := run(ctx, st.action, sudo, name, args...)
	if err != nil {
		return err
	}
	return st.recordNames(names, out)
}
