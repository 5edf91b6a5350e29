package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// UserError reports a step of an operation on users or groups that failed in
// the sandbox. Steps before it have been done.
type UserError struct {
	// Action says what failed, such as `create user "alice"`.
	Action string
	// ExitCode, Stdout and Stderr are those of the program that failed.
	ExitCode       int
	Stdout, Stderr string
}

// Error says what failed and what the sandbox said.
func (e *UserError) Error() string {
	reason := strings.TrimSpace(e.Stderr)
	if reason == "" {
		reason = fmt.Sprintf("exit code %d, output %.100q", e.ExitCode, e.Stdout)
	}
	return "sandbox: " + e.Action + ": " + reason
}

// UserExistsError is the error of [Sandbox.CreateUser] for a name that is taken.
// It matches [ErrUserExists].
type UserExistsError struct{ Username string }

// Error names the user.
func (e *UserExistsError) Error() string {
	return fmt.Sprintf("sandbox: create user %q: user already exists", e.Username)
}

// Is reports whether target is [ErrUserExists].
func (e *UserExistsError) Is(target error) bool { return target == ErrUserExists }

// Group is a group of users of a sandbox.
type Group struct {
	// Name is the name of the group.
	Name string
	// SharedDir is a directory that all members can write to. What is made in
	// it belongs to the group.
	SharedDir string
}

// userAndGroup is who the sandbox's commands run as.
type userAndGroup struct{ user, group string }

// whoami asks who the sandbox's commands run as, once for all handles.
func (s *Sandbox) whoami(ctx context.Context) (userAndGroup, error) {
	if s.st == nil {
		return userAndGroup{}, errZeroSandbox
	}
	return s.st.defaultUser.get(ctx, func(ctx context.Context) (userAndGroup, error) {
		out, err := s.userStep(ctx, "resolve the default sandbox user", false, "sh", "-c", "id -un; id -gn")
		if err != nil {
			return userAndGroup{}, err
		}
		user, rest, _ := strings.Cut(strings.TrimSpace(out), "\n")
		group, _, _ := strings.Cut(rest, "\n")
		if user == "" || group == "" {
			return userAndGroup{}, &UserError{Action: "resolve the default sandbox user", Stdout: out}
		}
		return userAndGroup{user, group}, nil
	})
}

// userStep runs one program of an operation on users and returns its output.
func (s *Sandbox) userStep(ctx context.Context, action string, sudo bool, name string, args ...string) (string, error) {
	done, err := s.RunCommand(ctx, name, args, &CommandOptions{Sudo: sudo})
	if err != nil {
		return "", err
	}
	stdout, err := done.Stdout(ctx)
	if err != nil {
		return "", err
	}
	if done.ExitCode != 0 {
		stderr, err := done.Stderr(ctx)
		if err != nil {
			return "", err
		}
		return "", &UserError{Action: action, ExitCode: done.ExitCode, Stdout: stdout, Stderr: stderr}
	}
	return stdout, nil
}

// maxUserName is what useradd and groupadd take.
const maxUserName = 32

// checkUserName refuses names that useradd and groupadd would refuse, or that
// would be read as something else in a command.
func checkUserName(field, name string) error {
	if name == "" {
		return invalid(field, "is empty")
	}
	if len(name) > maxUserName {
		return invalid(field, "%.40q is longer than %d characters", name, maxUserName)
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', c == '_':
		case i > 0 && ('0' <= c && c <= '9' || c == '-'):
		default:
			return invalid(field, "%q has to begin with a lowercase letter or underscore and go on with those, digits and hyphens", name)
		}
	}
	return nil
}

// CreateUser adds a user with a home directory and the shell bash, and returns
// it. The sandbox's own user can use the home directory too: files are written
// to it through the API, which acts as that user.
//
// A name that is taken is a [*UserExistsError]. When a later step fails, a
// [*UserError] says which; the user exists then, and [Sandbox.AsUser] returns it.
func (s *Sandbox) CreateUser(ctx context.Context, username string) (*SandboxUser, error) {
	const taken = 9 // useradd's exit code
	if err := checkUserName("username", username); err != nil {
		return nil, err
	}
	me, err := s.whoami(ctx)
	if err != nil {
		return nil, err
	}
	_, err = s.userStep(ctx, fmt.Sprintf("create user %q", username), true, "useradd", "-m", "-s", "/bin/bash", username)
	if e, ok := errors.AsType[*UserError](err); ok && e.ExitCode == taken {
		return nil, &UserExistsError{Username: username}
	}
	if err != nil {
		return nil, err
	}
	home := "/home/" + username
	if err := s.chown(ctx, username+":"+me.group, home); err != nil {
		return nil, err
	}
	if err := s.chmod(ctx, "770", home); err != nil {
		return nil, err
	}
	return s.AsUser(username)
}

// AsUser returns a user that exists in the sandbox. It makes no request, so a
// user that does not exist is noticed by the first call. The home directory is
// taken to be /root for root and /home/NAME for others.
func (s *Sandbox) AsUser(username string) (*SandboxUser, error) {
	if err := checkUserName("username", username); err != nil {
		return nil, err
	}
	home := "/home/" + username
	if username == "root" {
		home = "/root"
	}
	return &SandboxUser{sandbox: s, username: username, home: home}, nil
}

// CreateGroup adds a group and a directory /shared/NAME that its members share.
// When a step fails, a [*UserError] says which.
func (s *Sandbox) CreateGroup(ctx context.Context, groupname string) (*Group, error) {
	if err := checkUserName("groupname", groupname); err != nil {
		return nil, err
	}
	me, err := s.whoami(ctx)
	if err != nil {
		return nil, err
	}
	g := &Group{Name: groupname, SharedDir: "/shared/" + groupname}
	if _, err := s.userStep(ctx, fmt.Sprintf("create group %q", groupname), true, "groupadd", groupname); err != nil {
		return nil, err
	}
	if _, err := s.userStep(ctx, "create shared directory "+g.SharedDir, true, "mkdir", "-p", g.SharedDir); err != nil {
		return nil, err
	}
	if err := s.chown(ctx, me.user+":"+groupname, g.SharedDir); err != nil {
		return nil, err
	}
	if err := s.chmod(ctx, "2770", g.SharedDir); err != nil {
		return nil, err
	}
	return g, nil
}

// AddUserToGroup makes a user a member of a group. Processes of the user that
// run already don't notice.
func (s *Sandbox) AddUserToGroup(ctx context.Context, username, groupname string) error {
	if err := checkUserName("username", username); err != nil {
		return err
	}
	if err := checkUserName("groupname", groupname); err != nil {
		return err
	}
	_, err := s.userStep(ctx, fmt.Sprintf("add %q to group %q", username, groupname), true, "usermod", "-aG", groupname, username)
	return err
}

// RemoveUserFromGroup ends a user's membership in a group.
func (s *Sandbox) RemoveUserFromGroup(ctx context.Context, username, groupname string) error {
	if err := checkUserName("username", username); err != nil {
		return err
	}
	if err := checkUserName("groupname", groupname); err != nil {
		return err
	}
	_, err := s.userStep(ctx, fmt.Sprintf("remove %q from group %q", username, groupname), true, "gpasswd", "-d", username, groupname)
	return err
}

// chown and chmod act as root, on paths that are absolute.
func (s *Sandbox) chown(ctx context.Context, owner string, paths ...string) error {
	return s.asRoot(ctx, "set ownership on ", "chown", []string{owner}, paths)
}

func (s *Sandbox) chmod(ctx context.Context, mode string, paths ...string) error {
	return s.asRoot(ctx, "set permissions on ", "chmod", []string{mode}, paths)
}

// maxArguments bounds the paths of one command, far below what Linux takes.
const maxArguments = 64 << 10

// asRoot runs a program on paths, a good number of them at a time.
func (s *Sandbox) asRoot(ctx context.Context, action, program string, args, paths []string) error {
	for len(paths) > 0 {
		n, size := 0, 0
		for n < len(paths) && (n == 0 || size+len(paths[n]) < maxArguments) {
			size += len(paths[n]) + 1
			n++
		}
		name, all := carry(program, append(slices.Clip(args), paths[:n]...))
		if _, err := s.userStep(ctx, action+strings.Join(paths[:n], ", "), true, name, all...); err != nil {
			return err
		}
		paths = paths[n:]
	}
	return nil
}
