package sandbox

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/tarball"
)

// SandboxUser is a user of a sandbox: its commands run as that user, in the
// user's home directory, and its files belong to the user. It comes from
// [Sandbox.CreateUser] and [Sandbox.AsUser], resumes the sandbox as that does,
// and is safe for concurrent use.
//
// Relative paths start in the home directory. Paths may lead out of it with "..";
// then nothing changes its owner but the named file itself. Symbolic links on the
// way are followed as root when files are handed over: do not write below
// directories in which a user may make links whom you would not trust with what
// they lead to.
type SandboxUser struct {
	sandbox  *Sandbox
	username string
	home     string
	group    memo[string]
}

var (
	_ target = (*SandboxUser)(nil)
	_ owner  = (*SandboxUser)(nil)
)

// Username returns the name of the user.
func (u *SandboxUser) Username() string { return u.username }

// HomeDir returns the home directory of the user.
func (u *SandboxUser) HomeDir() string { return u.home }

// Cwd returns the directory that relative paths and commands start in: the home
// directory.
func (u *SandboxUser) Cwd() string { return u.home }

// FS returns the sandbox's files as the user sees them.
func (u *SandboxUser) FS() *FileSystem { return &FileSystem{t: u} }

// RunCommand is as [Sandbox.RunCommand], but the program runs as the user, by way
// of sudo. The default for Cwd is the home directory. With the option Sudo the
// program runs as root instead, as if the sandbox had been asked.
//
// The variables of Env become arguments of the command env, and can be seen by
// other users of the sandbox while it runs.
func (u *SandboxUser) RunCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*CommandFinished, error) {
	name, args, opts, err := u.wrap(name, args, opts)
	if err != nil {
		return nil, err
	}
	return u.sandbox.RunCommand(ctx, name, args, opts)
}

// StartCommand is as [Sandbox.StartCommand], with the differences of
// [SandboxUser.RunCommand].
func (u *SandboxUser) StartCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*Command, error) {
	name, args, opts, err := u.wrap(name, args, opts)
	if err != nil {
		return nil, err
	}
	return u.sandbox.StartCommand(ctx, name, args, opts)
}

// wrap makes a command of the sandbox out of one of the user.
func (u *SandboxUser) wrap(name string, args []string, opts *CommandOptions) (string, []string, *CommandOptions, error) {
	var o CommandOptions
	if opts != nil {
		o = *opts
	}
	if o.Sudo {
		return name, args, &o, nil
	}
	if _, err := newCommandBody(name, args, &o); err != nil {
		return "", nil, nil, err
	}
	wrapped := []string{"-u", u.username, "--", "bash", "-c", `cd "$1" || exit 1; shift; exec "$@"`, "bash"}
	if o.Cwd != "" {
		wrapped = append(wrapped, o.Cwd)
	} else {
		wrapped = append(wrapped, u.home)
	}
	if len(o.Env) > 0 {
		wrapped = append(wrapped, "env")
		for _, k := range slices.Sorted(maps.Keys(o.Env)) {
			wrapped = append(wrapped, k+"="+o.Env[k])
		}
	}
	o.Cwd, o.Env = "", nil
	return "sudo", append(append(wrapped, name), args...), &o, nil
}

// abs resolves a path in the home directory.
func (u *SandboxUser) abs(name string) (string, error) { return absolutePath(u.home, name) }

// Mkdir makes a directory that belongs to the user, and can be used by the
// sandbox's own user. Directories between the home directory and it are handed
// over to the user as well.
func (u *SandboxUser) Mkdir(ctx context.Context, path string) error { return u.mkdir(ctx, path) }

func (u *SandboxUser) mkdir(ctx context.Context, name string) error {
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

// ReadFile is as [Sandbox.ReadFile], but reads what the user may read. The
// content comes through the output of a command.
func (u *SandboxUser) ReadFile(ctx context.Context, path string, opts *ReadFileOptions) (io.ReadCloser, error) {
	return readFile(ctx, u, path, opts)
}

func (u *SandboxUser) openFile(ctx context.Context, name, cwd string) (io.ReadCloser, int64, error) {
	if cwd == "" {
		cwd = u.home
	}
	return openEncoded(ctx, u, joinCwd(cwd, name))
}

// DownloadFile is as [Sandbox.DownloadFile], but reads what the user may read.
func (u *SandboxUser) DownloadFile(ctx context.Context, src, dst string, opts *DownloadFileOptions) error {
	return downloadFile(ctx, u, src, dst, opts)
}

// DownloadDir is as [Sandbox.DownloadDir], but reads what the user may read.
func (u *SandboxUser) DownloadDir(ctx context.Context, src, dst string, opts *DownloadDirOptions) error {
	return downloadDir(ctx, u, src, dst, opts)
}

// WriteFiles is as [Sandbox.WriteFiles], but the files belong to the user. So do
// the directories between them and the home directory, also those that existed;
// they get mode 0770, as the sandbox's own user has to be able to write there.
//
// The files are written first and handed over then. When that fails, a
// [*UserError] says which step.
func (u *SandboxUser) WriteFiles(ctx context.Context, files []File, opts *WriteFilesOptions) error {
	return writeFiles(ctx, u, files, opts)
}

// CopyFS is as [Sandbox.CopyFS], but the files belong to the user. Directories
// get mode 0770, as the sandbox's own user has to be able to write there.
func (u *SandboxUser) CopyFS(ctx context.Context, dir string, fsys fs.FS, opts *UploadOptions) error {
	return copyFS(ctx, u, dir, fsys, opts)
}

// UploadDir is as [Sandbox.UploadDir], but the files belong to the user.
// Directories get mode 0770, as the sandbox's own user has to be able to write
// there.
func (u *SandboxUser) UploadDir(ctx context.Context, localDir, dir string, opts *UploadOptions) error {
	return uploadDir(ctx, u, localDir, dir, opts)
}

func (u *SandboxUser) uploadTarGz(ctx context.Context, open func() (io.ReadCloser, error)) error {
	return u.sandbox.uploadTarGz(ctx, open)
}

// own hands over what was uploaded.
func (u *SandboxUser) own(ctx context.Context, written iter.Seq2[tarball.Entry, error]) error {
	var files, links, dirs, all []string
	for e, err := range written {
		if err != nil {
			return err
		}
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
	group, err := u.primaryGroup(ctx)
	if err != nil {
		return err
	}
	if err := u.sandbox.chown(ctx, u.username+":"+group, files...); err != nil {
		return err
	}
	if len(links) > 0 {
		// What a link points to is not the user's.
		if err := u.sandbox.asRoot(ctx, "set ownership on ", "chown", []string{"-h", u.username + ":" + group}, links); err != nil {
			return err
		}
	}
	for _, dir := range u.ancestors(all) {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return u.ownDirs(ctx, dirs)
}

// ownDirs hands over directories. The group is the sandbox's, so that the API
// can go on writing there.
func (u *SandboxUser) ownDirs(ctx context.Context, dirs []string) error {
	if len(dirs) == 0 {
		return nil
	}
	me, err := u.sandbox.whoami(ctx)
	if err != nil {
		return err
	}
	if err := u.sandbox.chown(ctx, u.username+":"+me.group, dirs...); err != nil {
		return err
	}
	return u.sandbox.chmod(ctx, "770", dirs...)
}

// ancestors returns the directories strictly between the home directory and the
// absolute clean paths that are below it.
func (u *SandboxUser) ancestors(paths []string) []string {
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

// primaryGroup asks for the user's group, once. It need not have the name of
// the user, who may have existed before.
func (u *SandboxUser) primaryGroup(ctx context.Context) (string, error) {
	return u.group.get(ctx, func(ctx context.Context) (string, error) {
		action := "resolve the primary group of \"" + u.username + "\""
		out, err := u.sandbox.userStep(ctx, action, false, "id", "-gn", u.username)
		if err != nil {
			return "", err
		}
		group := strings.TrimSpace(out)
		if group == "" {
			return "", &UserError{Action: action, Stdout: out}
		}
		return group, nil
	})
}

// AddToGroup makes the user a member of a group.
func (u *SandboxUser) AddToGroup(ctx context.Context, groupname string) error {
	return u.sandbox.AddUserToGroup(ctx, u.username, groupname)
}

// RemoveFromGroup ends the user's membership in a group.
func (u *SandboxUser) RemoveFromGroup(ctx context.Context, groupname string) error {
	return u.sandbox.RemoveUserFromGroup(ctx, u.username, groupname)
}
