package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"path"
)

// LookPath looks for a program in the PATH that the sandbox's commands have,
// resuming the sandbox if it is stopped, and returns its path, as [exec.LookPath]
// does. A name with a slash is looked at alone. If there is no such program, the
// error is an [*exec.Error] that wraps [exec.ErrNotFound], and [fs.ErrPermission]
// if what there is can't be executed. It makes one request, which runs sh.
func (s *Sandbox) LookPath(ctx context.Context, name string) (string, error) {
	return lookPath(ctx, s, name, nil)
}

// LookPath is like [Sandbox.LookPath], but fails if this session is stopped.
func (s *Session) LookPath(ctx context.Context, name string) (string, error) {
	return lookPath(ctx, s, name, nil)
}

// LookPath is like [Sandbox.LookPath], but looks in the PATH of the user's commands,
// as the user.
func (u *User) LookPath(ctx context.Context, name string) (string, error) {
	return lookPath(ctx, u, name, nil)
}

// lookFor writes where the program $1 is for a command in the directory $2, or ends
// with one code for none and with another for one that can't be executed.
const lookFor = `p=$1 dir=$2; set -f
case $p in
*/*) set -- "$p" ;;
*) IFS=:; set --; for d in $PATH; do set -- "$@" "${d:-.}/$p"; done ;;
esac
code=103
for f; do
	case $f in /*) at=$f;; *) at=$dir/$f;; esac
	[ ! -e "$at" ] || { code=104; [ -d "$at" ] || [ ! -x "$at" ] || { printf %s "$f"; exit 0; }; }
done
exit $code`

// lookPath looks for a program where a command with these options would.
func lookPath(ctx context.Context, t target, name string, o *CommandOptions) (string, error) {
	if _, err := enter(ctx, t); err != nil {
		return "", err
	}
	if err := checkText("name", name); err != nil {
		return "", err
	}
	if name == "" {
		return "", missingProgram(name, nil)
	}
	if o == nil {
		o = &CommandOptions{}
	}
	dir := o.Cwd
	if !path.IsAbs(dir) {
		dir = path.Join(t.cwd(), dir)
	}
	sh := program{name: "/bin/sh", sudo: o.Sudo, env: o.Env, spared: true}
	done, err := sh.command(ctx, t, sh.name, []string{"-c", lookFor, "sh", name, dir})
	switch {
	case err != nil:
		return "", err
	case done.ExitCode == 103:
		return "", missingProgram(name, nil)
	case done.ExitCode == 104:
		return "", &exec.Error{Name: name, Err: fs.ErrPermission}
	}
	return done.Stdout, nil
}

// findProgram returns the error of a program that can't be started. A User's
// programs are started by sudo, which tells that itself.
func findProgram(ctx context.Context, t target, name string, o *CommandOptions) error {
	if _, byUser := t.(*User); byUser && !o.Sudo {
		return nil
	}
	_, err := lookPath(ctx, t, name, o)
	if errors.Is(err, fs.ErrPermission) {
		return &fs.PathError{Op: "exec", Path: name, Err: fs.ErrPermission}
	}
	return err
}
