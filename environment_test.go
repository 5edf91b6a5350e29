package sandbox_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/clean"
	"github.com/go-vercel/sandbox/internal/testkit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostile are environments that change what the programs do that the client runs
// for itself.
var hostile = []sandbox.Env{
	{"TAR_OPTIONS": "--exclude-vcs"},
	{"TAR_OPTIONS": "--exclude=node_modules"},
	{"TAR_OPTIONS": "--mtime=@0 --owner=0 --sort=name"},
	{"TAR_OPTIONS": "--no-such-option"},
	{"TAPE": "/dev/null"},
	{"GZIP": "-9 --no-such-option"},
	{"BASH_ENV": "/vercel/sandbox/hostile.sh"},
	{"ENV": "/vercel/sandbox/hostile.sh"},
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
}

// hostileScript is what BASH_ENV names.
const hostileScript = "echo hello; cd /; tar() { :; }; set -f\n"

// TestEnvironmentOfOwnPrograms: what the operations on files return does not depend
// on the sandbox's environment. With -short it is all of it at once, and a few
// parts by chance.
func TestEnvironmentOfOwnPrograms(t *testing.T) {
	t.Parallel()
	want, used := ownPrograms(t, nil)
	// Each program needs an operation that compares what it says or does.
	assert.Equal(t, []string{"bash", "chmod", "cp", "find", "ln", "mkdir", "mktemp", "mv", "readlink", "rm", "sh", "stat"}, used)
	all := sandbox.Env{}
	for _, env := range hostile {
		maps.Copy(all, env)
	}
	rows := append([]sandbox.Env{all}, hostile...)
	if testing.Short() {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		random.Shuffle(len(hostile), func(i, j int) { rows[1+i], rows[1+j] = rows[1+j], rows[1+i] })
		rows = rows[:3]
	}
	for i, env := range rows {
		got, _ := ownPrograms(t, env)
		row := fmt.Sprint(slices.Sorted(maps.Keys(env)))
		if i == 0 {
			row = "all of it"
		}
		require.Len(t, got, len(want), row)
		for n := range want {
			assert.Equal(t, want[n], got[n], row)
		}
	}
}

// ownPrograms returns what operations return, and the programs that they ran.
func ownPrograms(t *testing.T, env sandbox.Env) (results, programs []string) {
	srv, sb := testkit.Start(t, &sandbox.CreateOptions{Env: env})
	ctx, f := t.Context(), sb.FS()
	say := func(op string, err error, more ...any) {
		if err != nil {
			more = append(more, fmt.Sprintf("%T", err))
			for _, errno := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, syscall.ELOOP, syscall.ENOTEMPTY, syscall.ENOTDIR} {
				if errors.Is(err, errno) {
					more = append(more, errno)
				}
			}
		}
		results = append(results, op+": "+fmt.Sprint(more...))
	}
	require.NoError(t, f.WriteFile(ctx, "hostile.sh", []byte(hostileScript), 0o644))
	say("MkdirAll", f.MkdirAll(ctx, "d/node_modules/x", 0o755))
	say("MkdirAll of a mode", f.MkdirAll(ctx, "d/.git/private/x", 0o700))
	say("Mkdir", f.Mkdir(ctx, "d/private", 0o700))
	say("WriteFile", f.WriteFile(ctx, "d/.git/config", []byte("config\n"), 0o644))
	say("WriteFile", f.WriteFile(ctx, "d/node_modules/x/y", []byte("module\n"), 0o755))
	w, err := f.Create(ctx, "d/made", nil)
	require.NoError(t, err)
	_, err = w.Write([]byte("made\n"))
	require.NoError(t, err)
	say("Create", w.Close())
	say("Symlink", f.Symlink(ctx, "made", "d/link"))
	w, err = f.Create(ctx, "d/link", nil)
	require.NoError(t, err)
	_, err = w.Write([]byte("through a link\n"))
	require.NoError(t, err)
	say("Create of a link", w.Close())
	say("AppendFile", f.AppendFile(ctx, "d/made", []byte("more\n")))
	say("AppendFile of much", f.AppendFile(ctx, "d/much", []byte(strings.Repeat("0123456789abcdef", 20_000))))
	say("Truncate", f.Truncate(ctx, "d/much", 100_000))
	say("Chmod", f.Chmod(ctx, "d/much", 0o640))
	say("ChmodSymbolic", f.ChmodSymbolic(ctx, "d/much", "u+x"))
	say("CopyFile", f.CopyFile(ctx, "d/made", "d/copy"))
	say("Rename", f.Rename(ctx, "d/copy", "d/hard"))
	target, err := f.Readlink(ctx, "d/link")
	say("Readlink", err, target)
	real, err := f.RealPath(ctx, "d/../d/link")
	here, hereErr := f.RealPath(ctx, sb.Cwd()) // in folder mode it is a folder of the machine
	require.NoError(t, hereErr)
	say("RealPath", err, strings.TrimPrefix(real, here))
	tmp, err := f.MkdirTemp(ctx, "d", "tmp-*")
	say("MkdirTemp", err, strings.HasPrefix(tmp, "d/tmp-"))
	say("Remove", f.Remove(ctx, tmp))
	say("Remove of what is not empty", f.Remove(ctx, "d"))
	say("Rename of nothing", f.Rename(ctx, "d/none", "d/x"))
	say("Symlink", f.Symlink(ctx, "loop/x", "d/loop"))
	_, err = f.RealPath(ctx, "d/loop")
	say("RealPath of a loop", err)
	w, err = f.Create(ctx, "d/loop", nil)
	require.NoError(t, err)
	say("Create of a loop", w.Close())
	say("Remove", f.Remove(ctx, "d/loop"))
	for _, name := range []string{"d/made", "d/much", "d/link", "d/private", "none"} {
		info, err := f.Lstat(ctx, name)
		if err == nil {
			say("Lstat", nil, info.Name(), info.Size(), info.Mode())
		} else {
			say("Lstat", err)
		}
	}
	list, err := f.ReadDir(ctx, "d")
	say("ReadDir", err)
	for _, e := range list {
		say("entry", nil, e)
	}
	say("WalkDir", f.WalkDir(ctx, "d", func(p string, d fs.DirEntry, err error) error {
		say("walked", err, p)
		return nil
	}))
	for _, name := range []string{"d/made", "d/hard"} {
		data, err := f.ReadFile(ctx, name)
		say("ReadFile", err, string(data))
	}
	local := t.TempDir()
	say("DownloadDir", f.DownloadDir(ctx, "d", local, nil))
	require.NoError(t, filepath.WalkDir(local, func(p string, d fs.DirEntry, _ error) error {
		info, err := d.Info()
		require.NoError(t, err)
		say("downloaded", nil, strings.TrimPrefix(p, local), info.Mode(), info.Mode().IsRegular() && info.Size() > 0)
		return nil
	}))
	info, err := os.Stat(filepath.Join(local, "much"))
	require.NoError(t, err)
	say("of today", nil, time.Since(info.ModTime()) < 24*time.Hour)
	say("DownloadDir of nothing", f.DownloadDir(ctx, "none", local, nil))
	say("RemoveAll", f.RemoveAll(ctx, "d"))
	found := map[string]bool{}
	for _, r := range srv.Requests() {
		var body struct {
			Command string
			Args    []string
		}
		if strings.HasSuffix(r.Path, "/cmd") && json.Unmarshal(r.Body, &body) == nil && body.Command != "" {
			own, name, _ := clean.Of(body.Command, body.Args)
			assert.NotNil(t, own, "%s has the sandbox's environment", name)
			found[name] = true
		}
	}
	return results, slices.Sorted(maps.Keys(found))
}

// TestEnvThatDoesNotSplit: where env has no -S, as that of BusyBox, a shell does
// it.
func TestEnvThatDoesNotSplit(t *testing.T) {
	t.Parallel()
	_, sb := testkit.Start(t, &sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/vercel/bin:/usr/local/bin:/usr/bin:/bin", "POSIXLY_CORRECT": "1", "TAR_OPTIONS": "--no-such"}})
	ctx, f := t.Context(), sb.FS()
	require.NoError(t, f.WriteFile(ctx, "bin/env", []byte(`#!/bin/sh
[ "$2" != -S ] || { echo 'env: unrecognized option: S' >&2; exit 1; }
exec /usr/bin/env "$@"
`), 0o755))
	require.NoError(t, f.AppendFile(ctx, "d/x", []byte("text")))
	require.NoError(t, f.DownloadDir(ctx, "d", t.TempDir(), nil))
	_, err := f.Lstat(ctx, "none")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

// TestProgramOfOwnMissing: that a program is missing is no file that is missing.
func TestProgramOfOwnMissing(t *testing.T) {
	t.Parallel()
	_, sb := testkit.Start(t, &sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/vercel/bin"}})
	ctx, f := t.Context(), sb.FS()
	require.NoError(t, f.WriteFile(ctx, "bin/env", []byte("#!/bin/sh\nexec /usr/bin/env \"$@\"\n"), 0o755))
	_, err := f.Lstat(ctx, "bin/env")
	assert.ErrorIs(t, err, exec.ErrNotFound)
	assert.NotErrorIs(t, err, fs.ErrNotExist)
}
