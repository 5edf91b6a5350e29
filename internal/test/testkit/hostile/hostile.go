// Package hostile has environments that would change the behavior of the helper programs that
// this module runs in a sandbox, if the programs got them.
package hostile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// Script is the path of the file in the variables BASH_ENV and ENV. Text is its content.
const (
	Script = "/tmp/hostile.sh"
	Text   = "echo hello; cd /; tar() { :; }; set -f\n"
)

// Shells is the first directory in the PATH of a row. A test may put another shell there,
// with the name sh.
const Shells = "/tmp/shells"

var environments = []map[string]string{
	{"TAR_OPTIONS": "--exclude-vcs"},
	{"TAR_OPTIONS": "--exclude=node_modules"},
	{"TAR_OPTIONS": "--mtime=@0 --owner=0 --sort=name"},
	{"TAR_OPTIONS": "--no-such-option"},
	{"TAPE": "/dev/null"},
	{"GZIP": "-9 --no-such-option"},
	{"BASH_ENV": Script},
	{"ENV": Script},
	{"BASH_ENV": "/nonexistent"},
	{"POSIXLY_CORRECT": "1"},
	{"BASH_FUNC_tar%%": "() { :; }"},
	{"BASH_FUNC_cd%%": "() { builtin cd /; }"},
	{"BASH_FUNC_find%%": "() { echo hello; }", "BASH_FUNC_stat%%": "() { echo hello; }"},
	{"BASH_FUNC_printf%%": "() { :; }", "BASH_FUNC_echo%%": "() { :; }"},
	{"BASH_FUNC_dd%%": "() { :; }", "BASH_FUNC_mv%%": "() { :; }", "BASH_FUNC_chmod%%": "() { false; }"},
	{"BASH_FUNC_base64%%": "() { cat; }", "BASH_FUNC_gzip%%": "() { cat; }", "BASH_FUNC_head%%": "() { :; }"},
	{"BASH_FUNC_mkdir%%": "() { :; }", "BASH_FUNC_rm%%": "() { :; }", "BASH_FUNC_sha256sum%%": "() { false; }"},
	{"BASH_FUNC_[%%": "() { false; }", "BASH_FUNC_exec%%": "() { :; }", "BASH_FUNC_set%%": "() { :; }"},
	{"SHELLOPTS": "noexec"},
	{"SHELLOPTS": "xtrace:verbose:nounset:noglob:errexit"},
	{"SHELLOPTS": "posix:noclobber"},
	{"BASHOPTS": "nullglob:failglob:extdebug"},
	{"BASH_XTRACEFD": "1", "PS4": "+ hello "},
	{"CDPATH": "/:/tmp"},
	{"IFS": "/."},
	{"GLOBIGNORE": "*"},
	{"OPTIND": "5", "PPID": "1", "UID": "7", "RANDOM": "x"},
	{"LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de"},
	{"LANG": "tr_TR.UTF-8", "LC_NUMERIC": "de_DE.UTF-8"},
	{"LC_ALL": "no such locale"},
	{"TZ": "Asia/Kathmandu"},
	{"TIME_STYLE": "+hello", "QUOTING_STYLE": "c", "LS_COLORS": "*=31"},
	{"BLOCK_SIZE": "human-readable", "BLOCKSIZE": "1M", "DF_BLOCK_SIZE": "1K", "DU_BLOCK_SIZE": "1K"},
	{"SIMPLE_BACKUP_SUFFIX": ".bak", "VERSION_CONTROL": "numbered"},
	{"GREP_OPTIONS": "-v", "GREP_COLOR": "1"},
	{"POSIX_ME_HARDER": "1", "_POSIX2_VERSION": "199209"},
	{"LD_BIND_NOW": "1", "LD_DEBUG_OUTPUT": "/tmp/x", "MALLOC_PERTURB_": "165"},
	{"PYTHONSTARTUP": "/nonexistent", "NODE_OPTIONS": "--no-such", "PERL5OPT": "-Mnone"},
	{"PROMPT_COMMAND": "echo hello", "PS1": "$(echo hello)", "TMOUT": "1"},
	{"HOME": "/nonexistent", "USER": "", "LOGNAME": "nobody"},
	{"OLDPWD": "/", "PWD": "/nonexistent", "SHELL": "/bin/false", "SHLVL": "999"},
	{"PYTHONPATH": "/tmp/hostile", "PYTHONHOME": "/nonexistent", "PYTHONIOENCODING": "utf-16", "PYTHONINSPECT": "1"},
	{"XZ_OPT": "-9", "XZ_DEFAULTS": "-T0", "ZSTD_CLEVEL": "19", "BZIP2": "-1", "BZIP": "-1"},
	{"LC_ALL": "tr_TR.UTF-8", "LC_COLLATE": "de_DE.UTF-8", "LC_MESSAGES": "fr_FR.UTF-8"},
	{"BASH_FUNC_grep%%": "() { echo hello; }", "BASH_FUNC_env%%": "() { :; }", "BASH_FUNC_sort%%": "() { :; }"},
	{"BASH_FUNC_stty%%": "() { false; }", "BASH_FUNC_command%%": "() { false; }", "BASH_FUNC_python3%%": "() { :; }"},
}

// Row is an environment of a sandbox.
type Row struct {
	Env map[string]string
	// Bash is set if the test should put bash into Shells as sh.
	Bash bool
}

func (r Row) String() string {
	return fmt.Sprint(slices.Sorted(maps.Keys(r.Env)), " bash: ", r.Bash)
}

// Rows returns the rows for each shell: one with all variables at once, and one for each
// variable. If all is false, it returns one row with all variables and a few random others.
func Rows(seed uint64, all bool) []Row {
	together := map[string]string{}
	var rows []Row
	for _, env := range environments {
		maps.Copy(together, env)
		rows = append(rows, row(env, false), row(env, true))
	}
	if !all {
		random := rand.New(rand.NewPCG(seed, 0))
		random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		return append(rows[:2], row(together, seed%2 == 0))
	}
	return append(rows, row(together, false), row(together, true))
}

func row(env map[string]string, bash bool) Row {
	env = maps.Clone(env)
	env["PATH"] = Shells + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	return Row{env, bash}
}
