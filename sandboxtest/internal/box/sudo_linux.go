package box

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Every sandbox has sudo, but not every host. Where the host has none, this
// program itself acts as sudo: it is bound into each box at sudoProgram, and the
// sudo that programs find starts it with the rights of root.

const (
	// ownRun is the directory of what a box needs to be one.
	ownRun = "/run/sandbox"
	// sudoProgram is this program in a box.
	sudoProgram = ownRun + "/sudo"
	// sudoName is where root finds sudo, and ownBin where sudo is in boxes that
	// have one user only and can't write /usr.
	sudoName = "/usr/bin/sudo"
	ownBin   = ownRun + "/bin"
)

// userTools are the programs that need more than one user. Where a box has only
// one, this program replaces them too, since the machine's would only report that
// they can't lock a file.
var userTools = []string{"useradd", "userdel", "usermod", "groupadd", "groupdel", "groupmod", "gpasswd", "chpasswd", "adduser", "deluser", "addgroup", "delgroup"}

func init() {
	name := filepath.Base(os.Args[0])
	isTool := slices.Contains(userTools, name)
	if name != "sudo" && !isTool {
		return
	}
	if self, err := os.Readlink("/proc/self/exe"); err == nil && self == sudoProgram {
		if isTool {
			fmt.Fprintf(os.Stderr, "%s: this sandbox has one user only, since the emulator runs as an ordinary user: start it as root on Linux to have users\n", name)
			os.Exit(1)
		}
		s := &sudo{stdout: os.Stdout}
		os.Exit(s.main(os.Args[1:], os.Environ()))
	}
}

// sudo is one run of it.
type sudo struct {
	stdout io.Writer

	user, group string // to become; empty is root and the user's own
	shell       bool
	login       bool
	keepAll     bool
	setHome     bool
	forget      bool
	keep        []string // names of variables
	chdir       string
	list        bool
	background  bool
	command     []string
	assigned    []string // variables before the command
}

// errNothingToDo ends sudo with success.
var errNothingToDo = errors.New("nothing to do")

func (s *sudo) main(args, env []string) int {
	err := s.parse(args)
	if err == nil {
		err = s.become(env)
	}
	switch {
	case errors.Is(err, errNothingToDo):
		return 0
	default:
		fmt.Fprintln(os.Stderr, "sudo:", err)
		return 1
	}
}

// ignoredFlags have no effect here, where sudo needs no password.
const ignoredFlags = "nSBP"

// parse reads the arguments, as far as programs use them.
func (s *sudo) parse(args []string) error {
	for len(args) > 0 {
		arg := args[0]
		switch {
		case arg == "--":
			s.command = args[1:]
			return s.check()
		case strings.HasPrefix(arg, "--"):
			rest, err := s.long(arg[2:], args[1:])
			if err != nil {
				return err
			}
			args = rest
		case len(arg) > 1 && arg[0] == '-':
			rest, err := s.short(arg[1:], args[1:])
			if err != nil {
				return err
			}
			args = rest
		case strings.Contains(arg, "=") && !strings.HasPrefix(arg, "="):
			s.assigned = append(s.assigned, arg)
			args = args[1:]
		default:
			s.command = args
			return s.check()
		}
	}
	return s.check()
}

func (s *sudo) check() error {
	// Variables may come after "--" as well.
	for len(s.command) > 0 && strings.Contains(s.command[0], "=") && !strings.HasPrefix(s.command[0], "=") {
		s.assigned, s.command = append(s.assigned, s.command[0]), s.command[1:]
	}
	if len(s.command) == 0 && !s.shell && !s.login && !s.list {
		if s.forget {
			return errNothingToDo
		}
		return errors.New("usage: sudo [-EHinS] [-u user] [-g group] [VAR=value] [-i | -s] [command [arg ...]]")
	}
	return nil
}

// long reads an option with two dashes and returns the remaining arguments.
func (s *sudo) long(option string, rest []string) ([]string, error) {
	name, value, given := strings.Cut(option, "=")
	switch name {
	case "preserve-env":
		if given {
			s.keep = append(s.keep, strings.Split(value, ",")...)
		} else {
			s.keepAll = true
		}
	case "login":
		s.login = true
	case "shell":
		s.shell = true
	case "background":
		s.background = true
	case "list":
		s.list = true
	case "version":
		return nil, s.flag('V')
	case "validate":
		return nil, errNothingToDo
	case "set-home":
		s.setHome = true
	case "reset-timestamp", "remove-timestamp":
		s.forget = true
	case "non-interactive", "stdin", "preserve-groups", "bell":
	case "user", "group", "chdir", "prompt":
		if !given {
			if len(rest) == 0 {
				return nil, fmt.Errorf("option '--%s' requires an argument", name)
			}
			value, rest = rest[0], rest[1:]
		}
		s.value(name[0], value)
	default:
		return nil, fmt.Errorf("unrecognized option '--%s'", name)
	}
	return rest, nil
}

// short reads options with one dash, which may be several.
func (s *sudo) short(options string, rest []string) ([]string, error) {
	for i := range len(options) {
		c := options[i]
		if !strings.ContainsRune("ugpDCTRrt", rune(c)) {
			if err := s.flag(c); err != nil {
				return nil, err
			}
			continue
		}
		value := options[i+1:]
		if value == "" {
			if len(rest) == 0 {
				return nil, fmt.Errorf("option requires an argument -- '%c'", c)
			}
			value, rest = rest[0], rest[1:]
		}
		s.value(c, value)
		break
	}
	return rest, nil
}

func (s *sudo) value(option byte, value string) {
	switch option {
	case 'u':
		s.user = value
	case 'g':
		s.group = value
	case 'D', 'c': // -D, --chdir
		s.chdir = value
	}
}

func (s *sudo) flag(c byte) error {
	switch {
	case strings.IndexByte(ignoredFlags, c) >= 0:
	case c == 'k' || c == 'K':
		s.forget = true
	case c == 'E':
		s.keepAll = true
	case c == 'H':
		s.setHome = true
	case c == 'i':
		s.login = true
	case c == 's':
		s.shell = true
	case c == 'b':
		s.background = true
	case c == 'l':
		s.list = true
	case c == 'v':
		return errNothingToDo
	case c == 'V':
		fmt.Fprintln(s.stdout, "Sudo of the sandbox emulator")
		return errNothingToDo
	default:
		return fmt.Errorf("invalid option -- '%c'", c)
	}
	return nil
}

// become runs the command as another user. It returns only an error.
func (s *sudo) become(env []string) error {
	caller, err := findUser("#" + strconv.Itoa(os.Getuid()))
	if err != nil {
		return err
	}
	name := s.user
	if name == "" {
		name = rootUser
		if s.group != "" {
			name = caller.name
		}
	}
	target, err := findUser(name)
	if err != nil {
		return err
	}
	gid, groups := target.gid, append([]uint32{target.gid}, supplementaryGroups(target.name)...)
	if s.group != "" {
		if gid, err = findGroup(s.group); err != nil {
			return err
		}
		groups = append(groups, gid)
	}
	if os.Geteuid() != 0 && (target.uid != caller.uid || gid != caller.gid) {
		return errors.New("this sandbox has one user only, since the emulator does not run as root. " +
			"A command as root is one with the option \"sudo\" of the API")
	}
	rules := readSudoers("/etc/sudoers.d")
	if os.Geteuid() == 0 && !rules.allow(caller) {
		return fmt.Errorf("%s is not in the sudoers file.", caller.name) //nolint:staticcheck // sudo's own words
	}
	if s.list {
		fmt.Fprintf(s.stdout, "User %s may run the following commands:\n    (ALL : ALL) NOPASSWD: ALL\n", caller.name)
		return errNothingToDo
	}
	path, args, newEnv, err := s.prepare(caller, target, rules, env)
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		for _, set := range []func() error{
			func() error { return syscall.Setgroups(ints(groups)) },
			func() error { return syscall.Setresgid(int(gid), int(gid), int(gid)) },
			func() error { return syscall.Setresuid(int(target.uid), int(target.uid), int(target.uid)) },
		} {
			if err := set(); err != nil {
				return fmt.Errorf("become %s: %w", target.name, err)
			}
		}
	}
	if s.background {
		if err := (&exec.Cmd{Path: path, Args: args, Env: newEnv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}).Start(); err != nil {
			return err
		}
		return errNothingToDo
	}
	return fmt.Errorf("unable to execute %s: %w", path, unix.Exec(path, args, newEnv))
}

func ints(list []uint32) []int {
	out := make([]int, len(list))
	for i, n := range list {
		out[i] = int(n)
	}
	return out
}

// prepare finds the program, and assembles its arguments and environment.
func (s *sudo) prepare(caller, target passwdEntry, rules *sudoers, env []string) (path string, args, newEnv []string, err error) {
	command := s.command
	if s.login || s.shell {
		shell := target.shell
		if !s.login {
			if own := lookupEnv(env, "SHELL"); own != "" {
				shell = own
			}
		}
		name := shell
		if s.login {
			name = "-" + filepath.Base(shell)
			if err := os.Chdir(target.home); err != nil {
				return "", nil, nil, err
			}
		}
		path, args = shell, []string{name}
		if len(command) > 0 {
			args = append(args, "-c", quoteCommand(command))
		}
	}
	if s.chdir != "" {
		if err := os.Chdir(s.chdir); err != nil {
			return "", nil, nil, fmt.Errorf("unable to change directory to %s: %w", s.chdir, errors.Unwrap(err))
		}
	}
	newEnv = s.environment(caller, target, rules, env)
	if path == "" {
		dir, derr := os.Getwd()
		if derr != nil {
			dir = "/"
		}
		if path, err = lookPath(command[0], dir, newEnv); err != nil {
			return "", nil, nil, fmt.Errorf("%s: command not found", command[0])
		}
		args = append([]string{command[0]}, command[1:]...)
	}
	return path, args, append(newEnv, "SUDO_COMMAND="+strings.Join(append([]string{path}, args[1:]...), " ")), nil
}

// quoteCommand is a command as a shell reads it.
func quoteCommand(command []string) string {
	quoted := make([]string, len(command))
	for i, arg := range command {
		quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// keptVariables are those that sudo keeps by default; a star matches any suffix.
var keptVariables = []string{
	"COLORS", "COLORTERM", "DISPLAY", "HOSTNAME", "KRB5CCNAME", "LANG", "LANGUAGE", "LC_*", "LINGUAS", "LS_COLORS", "PS1", "PS2", "TERM", "TZ",
	"XAUTHORITY", "XDG_CURRENT_DESKTOP",
}

func (s *sudo) environment(caller, target passwdEntry, rules *sudoers, env []string) []string {
	var kept []string
	for _, kv := range env {
		key, _, _ := strings.Cut(kv, "=")
		keep := s.keepAll || slices.Contains(s.keep, key) || slices.ContainsFunc(keptVariables, func(pattern string) bool {
			prefix, star := strings.CutSuffix(pattern, "*")
			return key == pattern || star && strings.HasPrefix(key, prefix)
		})
		if keep {
			kept = append(kept, kv)
		}
	}
	path := rules.path
	if path == "" {
		path = lookupEnv(env, "PATH")
	}
	own := []string{"PATH=" + path, "USER=" + target.name, "LOGNAME=" + target.name, "MAIL=/var/mail/" + target.name}
	if !s.keepAll || s.setHome || s.login {
		own = append(own, "HOME="+target.home, "SHELL="+target.shell)
	}
	own = append(own, "SUDO_USER="+caller.name, "SUDO_UID="+strconv.Itoa(int(caller.uid)), "SUDO_GID="+strconv.Itoa(int(caller.gid)))
	// What is asked for by name wins over what is set.
	var named []string
	for _, kv := range env {
		if key, _, _ := strings.Cut(kv, "="); slices.Contains(s.keep, key) {
			named = append(named, kv)
		}
	}
	return mergeEnv(mergeEnv(mergeEnv(kept, own), named), s.assigned)
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
	data, err := readOwn("/etc/passwd")
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
		a := passwdEntry{f[0], uint32(uid), uint32(gid), f[5], f[6]}
		if a.shell == "" {
			a.shell = "/bin/sh"
		}
		return a, nil
	}
	return passwdEntry{}, fmt.Errorf("unknown user %s", name)
}

// findGroup finds the number of a group by its name, or after "#".
func findGroup(name string) (uint32, error) {
	number, byNumber := strings.CutPrefix(name, "#")
	data, err := readOwn("/etc/group")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 4 || byNumber && f[2] != number || !byNumber && f[0] != name {
			continue
		}
		if gid, err := strconv.ParseUint(f[2], 10, 32); err == nil {
			return uint32(gid), nil
		}
	}
	return 0, fmt.Errorf("unknown group %s", name)
}

// sudoers is the supported part of the rules that say who may do what.
type sudoers struct {
	users, groups []string
	path          string // secure_path
}

// readSudoers reads a directory of rules. It supports those that allow everything
// without a password.
func readSudoers(dir string) *sudoers {
	s := &sudoers{users: []string{rootUser}}
	files, _ := filepath.Glob(filepath.Join(dir, "*")) // a good pattern
	for _, name := range files {
		data, err := readOwn(name)
		if err != nil || strings.ContainsAny(filepath.Base(name), ".~") {
			continue // as sudo does
		}
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			if path, ok := strings.CutPrefix(line, "Defaults secure_path="); ok {
				s.path = strings.Trim(path, `"`)
				continue
			}
			fields := strings.Fields(line)
			if len(fields) < 3 || !strings.HasPrefix(fields[1], "ALL") || !strings.Contains(line, "NOPASSWD:") || fields[len(fields)-1] != "ALL" {
				continue
			}
			if group, ok := strings.CutPrefix(fields[0], "%"); ok {
				s.groups = append(s.groups, group)
			} else {
				s.users = append(s.users, fields[0])
			}
		}
	}
	return s
}

func (s *sudoers) allow(a passwdEntry) bool {
	if a.uid == 0 || slices.Contains(s.users, a.name) {
		return true
	}
	groups := append(supplementaryGroups(a.name), a.gid)
	return slices.ContainsFunc(s.groups, func(name string) bool {
		gid, err := findGroup(name)
		return err == nil && slices.Contains(groups, gid)
	})
}
