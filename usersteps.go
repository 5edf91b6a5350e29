package sandbox

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-vercel/sandbox/internal/coreutils"
)

// userAndGroup is who the sandbox's commands run as.
type userAndGroup struct{ user, group string }

// owners are the names by which steps say whose something becomes; empty ones
// are not known yet.
type owners struct {
	me      userAndGroup
	primary string // the group of the user that the steps are about
}

// stepKind says what a step does, and what completes the word of its command
// that says whose something becomes.
type stepKind string

const (
	stepWhoami  stepKind = "whoami"  // asks who the sandbox's commands run as
	stepLookup  stepKind = "lookup"  // asks for the primary group of the user args[0]
	stepPlain   stepKind = "plain"   // runs args
	stepMine    stepKind = "mine"    // runs args, of which the owner is a group, with the sandbox's user before it
	stepGroup   stepKind = "group"   // runs args, of which the owner is a user, with the sandbox's group behind it
	stepPrimary stepKind = "primary" // runs args, of which the owner is a user, with the user's own group behind it
)

// step is one program of an operation on users or groups. All run as root, except
// for those that ask.
type step struct {
	kind   stepKind
	action string // for errors
	args   []string
	owner  int // which of args it is
}

// size is about how much of a command the step takes.
func (s *step) size() int {
	n := 0
	for _, a := range s.args {
		n += len(a) + 1
	}
	return n
}

// words is the step as words of the script.
func (s *step) words() []string {
	return append([]string{string(s.kind), strconv.Itoa(len(s.args)), strconv.Itoa(s.owner + 1)}, s.args...)
}

// command is the step as a command of its own.
func (s *step) command(names *owners) (name string, args []string, sudo bool) {
	switch s.kind {
	case stepWhoami:
		return "sh", []string{"-c", "id -un; id -gn"}, false
	case stepLookup:
		return "id", []string{"-gn", s.args[0]}, false
	}
	all := slices.Clone(s.args)
	switch s.kind {
	case stepMine:
		all[s.owner] = names.me.user + ":" + all[s.owner]
	case stepGroup:
		all[s.owner] += ":" + names.me.group
	case stepPrimary:
		all[s.owner] += ":" + names.primary
	}
	return all[0], all[1:], true
}

// learn takes in what a step that asks has said.
func (s *step) learn(names *owners, out string) error {
	first, rest, _ := strings.Cut(strings.TrimSpace(out), "\n")
	second, _, _ := strings.Cut(rest, "\n")
	switch {
	case s.kind == stepWhoami && first != "" && second != "":
		names.me = userAndGroup{first, second}
	case s.kind == stepLookup && first != "":
		names.primary = first
	case s.kind == stepWhoami || s.kind == stepLookup:
		return &UserError{Action: s.action, Stdout: out}
	}
	return nil
}

// Steps run in one command: a script of the sandbox's user finds out who that is,
// and has root go through the steps up to the first that fails. What each writes
// follows a mark, on both streams, so that it is known which step said what, and
// whether any was begun.
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

// maxArguments bounds the paths of one command, far below what Linux takes.
const maxArguments = 64 << 10

// onPaths are the steps that run args on paths, a good number of them at a time.
// The owner among args, if any, is the last of them.
func onPaths(kind stepKind, action string, args, paths []string) []step {
	var list []step
	for len(paths) > 0 {
		n, size := 0, 0
		for n < len(paths) && (n == 0 || size+len(paths[n]) < maxArguments) {
			size += len(paths[n]) + 1
			n++
		}
		list = append(list, step{
			kind: kind, action: action + strings.Join(paths[:n], ", "),
			args: append(slices.Clip(args), paths[:n]...), owner: len(args) - 1,
		})
		paths = paths[n:]
	}
	return list
}

func chownSteps(kind stepKind, owner string, paths ...string) []step {
	return onPaths(kind, "set ownership on ", []string{"chown", owner}, paths)
}

func chmodSteps(mode string, paths ...string) []step {
	return onPaths(stepPlain, "set permissions on ", []string{"chmod", mode}, paths)
}

// owners are the names that are known of the sandbox.
func (s *Sandbox) owners() *owners {
	names := &owners{}
	if s.st != nil {
		if me := s.st.defaultUser.Load(); me != nil {
			names.me = *me
		}
	}
	return names
}

// whoami are the steps that ask who the sandbox's commands run as; none when
// that is known.
func (o *owners) whoami() []step {
	if o.me.user != "" {
		return nil
	}
	return []step{{kind: stepWhoami, action: "resolve the default sandbox user"}}
}

// steps goes through the steps, in as few commands as their length allows, and
// notes in names what it learns. An error of a step is a *UserError.
func (s *Sandbox) steps(ctx context.Context, names *owners, steps []step) error {
	defer func() {
		if s.st != nil && names.me.user != "" {
			s.st.defaultUser.Store(&names.me)
		}
	}()
	for len(steps) > 0 {
		n := 1
		for size := steps[0].size(); n < len(steps) && size+steps[n].size() < maxArguments; n++ {
			size += steps[n].size()
		}
		if err := s.together(ctx, names, steps[:n]); err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

// together takes steps in one command, or one by one where that can't begin,
// because there is no sudo that lets the sandbox's user be root: the API may
// know another way. What failed instead is then told by the first of them.
func (s *Sandbox) together(ctx context.Context, names *owners, steps []step) error {
	if len(steps) == 1 {
		return s.alone(ctx, names, &steps[0])
	}
	args := []string{"-c", stepsBegin, "sh", stepsRun, names.me.user, names.me.group, names.primary}
	for i := range steps {
		args = append(args, steps[i].words()...)
	}
	name, args := coreutils.Carry("sh", args)
	out, err := s.userStep(ctx, "", false, name, args...)
	failed, ok := errors.AsType[*UserError](err)
	if err != nil && !ok {
		return err
	}
	if ok {
		out = failed.Stdout
	}
	said := strings.Split(out, stepMark)[1:]
	begun := min(len(said), len(steps))
	if ok && begun == 0 {
		for i := range steps {
			if err := s.alone(ctx, names, &steps[i]); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range steps[:begun] {
		if ok && i == begun-1 {
			complaints := strings.Split(failed.Stderr, stepMark)
			return &UserError{Action: steps[i].action, ExitCode: failed.ExitCode, Stdout: said[i], Stderr: complaints[len(complaints)-1]}
		}
		if err := steps[i].learn(names, said[i]); err != nil {
			return err
		}
	}
	if begun < len(steps) {
		return &UserError{Action: steps[begun].action, Stdout: out}
	}
	return nil
}

// alone takes a step by a command of its own.
func (s *Sandbox) alone(ctx context.Context, names *owners, st *step) error {
	name, args, sudo := st.command(names)
	name, args = coreutils.Carry(name, args)
	out, err := s.userStep(ctx, st.action, sudo, name, args...)
	if err != nil {
		return err
	}
	return st.learn(names, out)
}
