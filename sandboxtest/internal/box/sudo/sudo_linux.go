package sudo

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/inside"
)

// Every sandbox has sudo, but not every host. If the host has none, this program acts as
// sudo: it is bound into each sandbox at Program, and the sudo that programs find starts it
// with the rights of root.

const (
	// RunDir is the emulator's directory in a sandbox.
	RunDir = "/run/sandbox"
	// Program is this program in a sandbox.
	Program = RunDir + "/sudo"
	// PathFile contains the PATH of commands that sudo runs.
	PathFile = RunDir + "/path"
	// SystemName is where root finds sudo. BinDir contains sudo in sandboxes that have only
	// one user and can't write to /usr.
	SystemName = "/usr/bin/sudo"
	BinDir     = RunDir + "/bin"
)

// UserTools are the programs that need several users. In a sandbox with only one user, this
// program replaces them, because the machine's would only report that they can't lock a
// file.
var UserTools = []string{"useradd", "userdel", "usermod", "groupadd", "groupdel", "groupmod", "gpasswd", "chpasswd", "adduser", "deluser", "addgroup", "delgroup"}

func init() {
	name := filepath.Base(os.Args[0])
	isTool := slices.Contains(UserTools, name)
	if name != "sudo" && !isTool {
		return
	}
	if self, err := os.Readlink("/proc/self/exe"); err == nil && self == Program {
		if isTool {
			fmt.Fprintf(os.Stderr, "%s: this sandbox has one user only, since the emulator runs as an ordinary user: start it as root on Linux to have users\n", name)
			os.Exit(1)
		}
		fmt.Fprintln(os.Stderr, "sudo:", sudo(os.Args[1:], os.Environ()))
		os.Exit(1)
	}
}

// sudo runs a command as another user. It returns only if that fails.
func sudo(args, env []string) error {
	o, err := parseSudo(args)
	if err != nil {
		return err
	}
	caller, err := findUser("#" + strconv.Itoa(os.Getuid()))
	if err != nil {
		return err
	}
	target, err := findUser(cmp.Or(o.user, inside.RootUser))
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 && target.uid != caller.uid {
		return errors.New("this sandbox has one user only, since the emulator does not run as root. " +
			"A command as root is one with the option \"sudo\" of the API")
	}
	if caller.uid != 0 && caller.uid != inside.UserID {
		return fmt.Errorf("%s is not in the sudoers file", caller.name)
	}
	newEnv := o.environment(caller, target, env)
	path, args, err := o.resolve(target, newEnv)
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		groups := []int{int(target.gid)}
		for _, gid := range inside.SupplementaryGroups(target.name) {
			groups = append(groups, int(gid))
		}
		if err := syscall.Setgroups(groups); err != nil {
			return fmt.Errorf("become %s: %w", target.name, err)
		}
		if err := syscall.Setresgid(int(target.gid), int(target.gid), int(target.gid)); err != nil {
			return fmt.Errorf("become %s: %w", target.name, err)
		}
		if err := syscall.Setresuid(int(target.uid), int(target.uid), int(target.uid)); err != nil {
			return fmt.Errorf("become %s: %w", target.name, err)
		}
	}
	newEnv = append(newEnv, "SUDO_COMMAND="+strings.Join(append([]string{path}, args[1:]...), " "))
	return fmt.Errorf("unable to execute %s: %w", path, syscall.Exec(path, args, newEnv))
}

// sudoOptions are the options that SDKs and official tools use.
type sudoOptions struct {
	user     string // the target; empty means root
	login    bool
	keepAll  bool
	keep     []string // names of variables
	setHome  bool
	assigned []string // variables before the command
	command  []string
}

// parseSudo parses the arguments. The error for an option of sudo that this program lacks
// names the option.
func parseSudo(args []string) (*sudoOptions, error) {
	o := new(sudoOptions)
	for len(args) > 0 {
		arg := args[0]
		if strings.Index(arg, "=") > 0 && arg[0] != '-' {
			o.assigned, args = append(o.assigned, arg), args[1:]
			continue
		}
		if len(arg) < 2 || arg[0] != '-' {
			break
		}
		args = args[1:]
		if arg == "--" {
			break
		}
		name, value, given := strings.Cut(arg, "=")
		if !strings.HasPrefix(arg, "--") { // flags of one letter, of which the last may have a value
			flags, user, found := strings.Cut(arg[1:], "u")
			for _, flag := range flags {
				if err := o.flag("-" + string(flag)); err != nil {
					return nil, err
				}
			}
			if !found {
				continue
			}
			name, value, given = "--user", user, user != ""
		}
		switch name {
		case "--user":
			if !given {
				if len(args) == 0 {
					return nil, errors.New("option requires an argument -- 'u'")
				}
				value, args = args[0], args[1:]
			}
			o.user = value
		case "--preserve-env":
			o.keep = append(o.keep, strings.Split(value, ",")...)
			o.keepAll = o.keepAll || !given
		default:
			if err := o.flag(arg); err != nil {
				return nil, err
			}
		}
	}
	for len(args) > 0 && strings.Index(args[0], "=") > 0 { // after --
		o.assigned, args = append(o.assigned, args[0]), args[1:]
	}
	if o.command = args; len(args) == 0 && !o.login {
		return nil, errors.New("usage: sudo [-EHin] [-u user] [--preserve-env=LIST] [VAR=value] [command [arg ...]]")
	}
	return o, nil
}

func (o *sudoOptions) flag(name string) error {
	switch name {
	case "-n", "--non-interactive": // sudo never asks for a password
	case "-E":
		o.keepAll = true
	case "-H", "--set-home":
		o.setHome = true
	case "-i", "--login":
		o.login = true
	default:
		return fmt.Errorf("the emulator's sudo has no option %s: install sudo on this machine for it", name)
	}
	return nil
}

// resolve returns the program and its arguments.
func (o *sudoOptions) resolve(target passwdEntry, env []string) (path string, args []string, err error) {
	if o.login {
		if err := os.Chdir(target.home); err != nil {
			return "", nil, err
		}
		args = []string{"-" + filepath.Base(target.shell)}
		if len(o.command) > 0 {
			quoted := make([]string, len(o.command))
			for i, arg := range o.command {
				quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
			}
			args = append(args, "-c", strings.Join(quoted, " "))
		}
		return target.shell, args, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	if path, err = inside.LookPath(o.command[0], dir, env); err != nil {
		return "", nil, fmt.Errorf("%s: command not found", o.command[0])
	}
	return path, o.command, nil
}

// keptVariables are the variables that sudo keeps by default, in addition to LC_*.
var keptVariables = []string{"COLORTERM", "LANG", "LANGUAGE", "TERM", "TZ"}

func (o *sudoOptions) environment(caller, target passwdEntry, env []string) []string {
	var kept, named []string
	for _, kv := range env {
		key, _, _ := strings.Cut(kv, "=")
		switch {
		case slices.Contains(o.keep, key): // a variable that is requested by name overrides the target's own
			named = append(named, kv)
		case o.keepAll, slices.Contains(keptVariables, key), strings.HasPrefix(key, "LC_"):
			kept = append(kept, kv)
		}
	}
	path := inside.PathOf(env)
	if own, err := inside.ReadSystemFile(PathFile); err == nil {
		path = string(own)
	}
	own := []string{"PATH=" + path, "USER=" + target.name, "LOGNAME=" + target.name, "MAIL=/var/mail/" + target.name}
	if !o.keepAll || o.setHome || o.login {
		own = append(own, "HOME="+target.home, "SHELL="+target.shell)
	}
	own = append(own, "SUDO_USER="+caller.name, "SUDO_UID="+strconv.Itoa(int(caller.uid)), "SUDO_GID="+strconv.Itoa(int(caller.gid)))
	return inside.MergeEnv(inside.MergeEnv(inside.MergeEnv(kept, own), named), o.assigned)
}

// passwdEntry is a line of /etc/passwd.
type passwdEntry struct {
	name        string
	uid, gid    uint32
	home, shell string
}

// findUser finds a user by name, or by number after "#".
func findUser(name string) (passwdEntry, error) {
	number, byNumber := strings.CutPrefix(name, "#")
	data, err := inside.ReadSystemFile("/etc/passwd")
	if err != nil {
		return passwdEntry{}, err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 7 || byNumber && f[2] != number || !byNumber && f[0] != name {
			continue
		}
		uid, err := strconv.ParseUint(f[2], 10, 32)
		gid, gerr := strconv.ParseUint(f[3], 10, 32)
		if err != nil || gerr != nil {
			continue
		}
		return passwdEntry{f[0], uint32(uid), uint32(gid), f[5], cmp.Or(f[6], "/bin/sh")}, nil
	}
	return passwdEntry{}, fmt.Errorf("unknown user %s", name)
}
