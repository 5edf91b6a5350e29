package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-vercel/sandbox/internal/clean"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/tarball"
	"github.com/go-vercel/sandbox/internal/users"
)

// userError is the error of an operation on users or groups when one of its steps failed
// in the sandbox. The steps before it have been completed.
type userError struct{ step *users.StepError }

// Error returns the action and what the sandbox reported.
func (e userError) Error() string {
	reason := cmp.Or(strings.TrimSpace(e.step.Stderr), fmt.Sprintf("exit code %d, output %.100q", e.step.ExitCode, e.step.Stdout))
	return redact.Printable("sandbox: " + e.step.Action + ": " + reason)
}

// Unwrap returns the step, for this module's own packages, and how its program
// ended.
func (e userError) Unwrap() []error {
	errs := []error{e.step}
	if e.step.ExitCode != 0 {
		errs = append(errs, &ExitError{ProcessState: &ProcessState{code: e.step.ExitCode}, Stderr: []byte(e.step.Stderr)})
	}
	return errs
}

// userStep runs one program of an operation on users and returns its output.
func (s *Sandbox) userStep(ctx context.Context, action string, sudo bool, name string, args ...string) (string, error) {
	done, err := program{name: name, args: args, sudo: sudo, outlives: true}.run(ctx, s)
	if err != nil {
		return "", err
	}
	if done.ExitCode != 0 {
		return "", &users.StepError{Action: action, ExitCode: done.ExitCode, Stdout: done.Stdout, Stderr: done.Stderr}
	}
	return done.Stdout, nil
}

// userSteps runs the steps of an operation on users, and stores the names that they
// have found.
func (s *Sandbox) userSteps(ctx context.Context, names *users.Names, steps []users.Step) error {
	err := users.Runner(s.userStep).Run(ctx, names, steps)
	if s.st != nil && names.Me.User != "" {
		s.st.defaultUser.Store(&names.Me)
	}
	return stepError(err)
}

// stepError returns err as a userError if a program failed.
func stepError(err error) error {
	if f, ok := errors.AsType[*users.StepError](err); ok {
		return userError{f}
	}
	return err
}

// userNames returns the known names of the sandbox.
func (s *Sandbox) userNames() *users.Names {
	names := &users.Names{}
	if s.st != nil {
		if me := s.st.defaultUser.Load(); me != nil {
			names.Me = *me
		}
	}
	return names
}

// maxUserName is the limit of useradd and groupadd.
const maxUserName = 32

// checkUserName refuses names that useradd and groupadd would refuse, or that a
// command would misinterpret.
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
			return invalid(field, "%q must begin with a lowercase letter or underscore and contain only those, digits and hyphens", name)
		}
	}
	return nil
}

// CreateUser adds a user with a home directory and the shell bash, resuming the
// sandbox if it is stopped. The sandbox's own user can access the home
// directory too: the API writes files as that user.
//
// If the name is taken, the error matches [ErrConflict]. If a later step
// fails, the error wraps an [*ExitError]; the user then exists, and
// [Sandbox.AsUser] returns it.
//
// It makes one request: like other calls that need several steps, it runs them in one
// command.
func (s *Sandbox) CreateUser(ctx context.Context, username string) (*User, error) {
	const taken = 9 // useradd's exit code
	if _, err := enter(ctx, s); err != nil {
		return nil, err
	}
	if err := checkUserName("username", username); err != nil {
		return nil, err
	}
	create := fmt.Sprintf("create user %q", username)
	home := "/home/" + username
	names := s.userNames()
	steps := append(names.Whoami(), users.Program(create, "useradd", "-m", "-s", "/bin/bash", username))
	steps = append(steps, users.Chown(users.Group, username, home)...)
	err := s.userSteps(ctx, names, append(steps, users.Chmod("770", home)...))
	if e, ok := errors.AsType[*users.StepError](err); ok && e.Action == create && e.ExitCode == taken {
		return nil, fmt.Errorf("sandbox: %s: %w: user already exists", create, ErrConflict)
	}
	if err != nil {
		return nil, err
	}
	u, err := s.AsUser(username)
	if err != nil {
		return nil, err
	}
	u.exists.Store(true)
	return u, nil
}

// AsUser returns a handle for an existing user. It makes no request: if there is no such
// user, [User.RunCommand] returns an error that wraps an [*ExitError]. The home directory
// is assumed to be /root for root and /home/NAME for others.
func (s *Sandbox) AsUser(username string) (*User, error) {
	if _, err := s.client(); err != nil {
		return nil, err
	}
	if err := checkUserName("username", username); err != nil {
		return nil, err
	}
	home := "/home/" + username
	if username == "root" {
		home = "/root"
	}
	return &User{sandbox: s, username: username, home: home}, nil
}

// User is a user of a sandbox: its commands run as that user, in the user's
// home directory, and its files belong to the user. It is returned by
// [Sandbox.CreateUser] and [Sandbox.AsUser], resumes the sandbox like a
// [Sandbox], and is safe for concurrent use.
//
// Relative paths are resolved in the home directory. For a path that leaves it
// with "..", only the owner of the named file itself is changed. Changing the
// owner is done as root and follows symbolic links in parent directories: do
// not write into a directory where an untrusted user can create links.
type User struct {
	sandbox  *Sandbox
	username string
	home     string
	exists   atomic.Bool // the user is known to exist
}

var _ target = (*User)(nil)

var errZeroUser = fmt.Errorf("sandbox: %w: the User was not made by Sandbox.CreateUser or Sandbox.AsUser", ErrInvalid)

func (u *User) client() (*Client, error) {
	if u == nil || u.sandbox == nil {
		return nil, errZeroUser
	}
	return u.sandbox.client()
}

// Username returns the name of the user.
func (u *User) Username() string {
	if u == nil {
		return ""
	}
	return u.username
}

// HomeDir returns the home directory of the user. Commands start there, and relative paths
// are resolved there.
func (u *User) HomeDir() string { return u.cwd() }

// cwd returns the directory in which relative paths are resolved.
func (u *User) cwd() string {
	if u == nil {
		return ""
	}
	return u.home
}

// FS returns the sandbox's files as accessible to the user.
func (u *User) FS() *FileSystem { return &FileSystem{t: u} }

// RunCommand is like [Sandbox.RunCommand], but runs the program as the user,
// with sudo. The default for Cwd is the home directory. With the option Sudo
// the program runs as root, like one run by the sandbox.
//
// The variables of Env are arguments of the program env, visible to other users
// of the sandbox while it runs.
func (u *User) RunCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*CommandResult, error) {
	c, err := enter(ctx, u)
	if err != nil {
		return nil, err
	}
	wrapper, wrapped, opts, err := u.wrap(name, args, opts)
	if err != nil {
		return nil, err
	}
	ctx, e := c.beginCommand(ctx, u, name, args)
	done, err := u.sandbox.runCommand(ctx, wrapper, wrapped, opts, e)
	if err != nil || wrapper != "sudo" {
		return done, err
	}
	if done.ExitCode != 1 {
		u.exists.Store(true)
		return done, nil
	}
	if err := u.checkExists(ctx); err != nil {
		return nil, err
	}
	return done, nil
}

// checkExists returns an error if the user does not exist. sudo reports that on standard
// error with exit code 1, which many programs use too. So checkExists asks the sandbox,
// unless the user is already known to exist.
func (u *User) checkExists(ctx context.Context) error {
	if u.exists.Load() {
		return nil
	}
	_, err := u.sandbox.userStep(ctx, fmt.Sprintf("find user %q", u.username), false, "id", "-u", "--", u.username)
	if _, failed := errors.AsType[*users.StepError](err); failed {
		return stepError(err)
	}
	u.exists.Store(err == nil)
	return nil
}

// StartCommand is like [Sandbox.StartCommand], with the differences described
// at [User.RunCommand]. A start as a user that does not exist succeeds: the
// command ends with code 1, and sudo says why on standard error.
func (u *User) StartCommand(ctx context.Context, name string, args []string, opts *StartOptions) (*Command, error) {
	c, err := enter(ctx, u)
	if err != nil {
		return nil, err
	}
	wrapper, wrapped, o, err := u.wrap(name, args, opts.command())
	if err != nil {
		return nil, err
	}
	ctx, e := c.beginCommand(ctx, u, name, args)
	return u.sandbox.startCommand(ctx, wrapper, wrapped, *o, e)
}

func (u *User) begin(ctx, live context.Context, name string, args []string, o *CommandOptions, followed bool) (*Command, *follower, error) {
	name, args, o, err := u.wrap(name, args, o)
	if err != nil {
		return nil, nil, err
	}
	return u.sandbox.begin(ctx, live, name, args, o, followed)
}

// wrap converts a command of the user to one of the sandbox.
func (u *User) wrap(name string, args []string, opts *CommandOptions) (string, []string, *CommandOptions, error) {
	o := orZero(opts)
	if o.Sudo {
		return name, args, &o, nil
	}
	if _, err := newCommandBody(name, args, &o); err != nil {
		return "", nil, nil, err
	}
	own, name, args := clean.Of(name, args)
	wrapped := []string{"sudo", "-u", u.username, "--", "bash", "-c", `cd "$1" || exit 1; shift; exec "$@"`, "bash"}
	if o.Cwd != "" {
		wrapped = append(wrapped, o.Cwd)
	} else {
		wrapped = append(wrapped, u.home)
	}
	if len(o.Env) > 0 || o.KillOnCancel || o.markTree || o.Binary {
		wrapped = append(wrapped, "env")
		o.envAt = len(own) + len(wrapped) - 1 // the index among the arguments
		for _, k := range slices.Sorted(maps.Keys(o.Env)) {
			wrapped = append(wrapped, k+"="+o.Env[k])
		}
	}
	if o.callerEnv == nil {
		o.callerEnv = o.Env
	}
	o.Cwd, o.Env = "", nil
	wrapped = slices.Concat(own, wrapped, []string{name}, args)
	return wrapped[0], wrapped[1:], &o, nil
}

// abs resolves a path in the home directory.
func (u *User) abs(name string) (string, error) { return absolutePath(u.home, name) }

func (u *User) mkdir(ctx context.Context, name string) error {
	if name == "" {
		return invalid("path", "is empty")
	}
	abs, err := u.abs(name)
	if err != nil {
		return err
	}
	if err := u.sandbox.mkdir(ctx, abs); err != nil {
		return err
	}
	return u.ownDirs(ctx, append([]string{abs}, u.ancestors([]string{abs})...))
}

func (u *User) openFile(ctx context.Context, name, cwd string) (io.ReadCloser, int64, error) {
	cwd = cmp.Or(cwd, u.home)
	return openEncoded(ctx, u, joinCwd(cwd, name))
}

func (u *User) names() (sandbox, session string) {
	if u == nil {
		return "", ""
	}
	return u.sandbox.names()
}

// uploadTarGz uploads an archive whose relative names start in the home. The files belong to the
// image's user; ownUploads changes their owner.
func (u *User) uploadTarGz(ctx context.Context, open func(cwd string) (io.ReadCloser, error)) (int64, error) {
	return u.sandbox.uploadTarGz(ctx, func(string) (io.ReadCloser, error) { return open(u.home) })
}

// ownParents changes the owner of the parent directories of a file that the
// user has created.
func (u *User) ownParents(ctx context.Context, name string) error {
	abs, err := u.abs(name)
	if err != nil {
		return err
	}
	return u.ownDirs(ctx, u.ancestors([]string{abs}))
}

// ownUploads changes the owner of the uploaded files.
func (u *User) ownUploads(ctx context.Context, written []tarball.Entry) error {
	var files, links, dirs, all []string
	for _, e := range written {
		name := "/" + e.Name
		all = append(all, name)
		switch e.Mode.Type() {
		case fs.ModeDir:
			dirs = append(dirs, name)
		case fs.ModeSymlink:
			links = append(links, name)
		default:
			files = append(files, name)
		}
	}
	if len(all) == 0 {
		return nil
	}
	names := u.sandbox.userNames()
	steps := append(names.PrimaryGroup(u.username), users.Chown(users.Primary, u.username, files...)...)
	// Change links themselves, because their targets do not belong to the user.
	steps = append(steps, users.ChownLinks(users.Primary, u.username, links...)...)
	for _, dir := range u.ancestors(all) {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return u.sandbox.userSteps(ctx, names, append(steps, u.dirSteps(names, dirs)...))
}

// ownDirs changes the owner of directories.
func (u *User) ownDirs(ctx context.Context, dirs []string) error {
	names := u.sandbox.userNames()
	return u.sandbox.userSteps(ctx, names, u.dirSteps(names, dirs))
}

// dirSteps returns the steps that change the owner of directories. The group is the
// sandbox's, so that the API can still write there.
func (u *User) dirSteps(names *users.Names, dirs []string) []users.Step {
	if len(dirs) == 0 {
		return nil
	}
	steps := append(names.Whoami(), users.Chown(users.Group, u.username, dirs...)...)
	return append(steps, users.Chmod("770", dirs...)...)
}

// ancestors returns the directories strictly between the home directory and the
// absolute clean paths that are below it.
func (u *User) ancestors(paths []string) []string {
	var dirs []string
	seen := make(map[string]bool)
	for _, p := range paths {
		for dir := path.Dir(p); strings.HasPrefix(dir, u.home+"/") && !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// CreateGroup adds a group, for [User.AddToGroup], and returns a directory that
// all members can write to, /shared/NAME. Files created in it belong to the group.
// If a step fails, the error wraps an [*ExitError].
func (s *Sandbox) CreateGroup(ctx context.Context, groupname string) (sharedDir string, err error) {
	if _, err := enter(ctx, s); err != nil {
		return "", err
	}
	if err := checkUserName("groupname", groupname); err != nil {
		return "", err
	}
	sharedDir = "/shared/" + groupname
	names := s.userNames()
	steps := append(names.Whoami(),
		users.Program(fmt.Sprintf("create group %q", groupname), "groupadd", groupname),
		users.Program("create shared directory "+sharedDir, "mkdir", "-p", sharedDir))
	steps = append(steps, users.Chown(users.Mine, groupname, sharedDir)...)
	if err := s.userSteps(ctx, names, append(steps, users.Chmod("2770", sharedDir)...)); err != nil {
		return "", err
	}
	return sharedDir, nil
}

// AddToGroup makes the user a member of a group. Running processes of the user
// are not affected.
func (u *User) AddToGroup(ctx context.Context, groupname string) error {
	return u.changeGroup(ctx, "add %q to group %q", groupname, "usermod", "-aG", groupname, u.Username())
}

// RemoveFromGroup removes the user from a group. Running processes of the user
// are not affected.
func (u *User) RemoveFromGroup(ctx context.Context, groupname string) error {
	return u.changeGroup(ctx, "remove %q from group %q", groupname, "gpasswd", "-d", u.Username(), groupname)
}

func (u *User) changeGroup(ctx context.Context, action, groupname, name string, args ...string) error {
	if _, err := enter(ctx, u); err != nil {
		return err
	}
	if err := checkUserName("groupname", groupname); err != nil {
		return err
	}
	_, err := u.sandbox.userStep(ctx, fmt.Sprintf(action, u.username, groupname), true, name, args...)
	return stepError(err)
}
