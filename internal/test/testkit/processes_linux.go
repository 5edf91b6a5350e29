package testkit

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// ProcessesWith returns the IDs of the machine's processes whose environment contains a
// variable, given as name=value. In a container, root may not be able to read the
// environment of another user's process. Then it runs grep as this user.
func ProcessesWith(t *testing.T, variable string) []int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	var found []string
	denied := map[uint32][]string{}
	for _, dir := range dirs {
		env, err := os.ReadFile(dir + "/environ")
		switch {
		case err == nil && bytes.Contains(append(env, 0), []byte(variable+"\x00")):
			found = append(found, dir)
		case errors.Is(err, fs.ErrPermission) && os.Geteuid() == 0:
			if info, err := os.Stat(dir); err == nil {
				owner := info.Sys().(*syscall.Stat_t).Uid
				denied[owner] = append(denied[owner], dir+"/environ")
			}
		}
	}
	for owner, files := range denied {
		if owner == 0 {
			continue
		}
		grep := exec.Command("grep", append([]string{"-lzxsF", "-e", variable}, files...)...)
		grep.Dir, grep.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner, Gid: owner}}
		out, _ := grep.Output() // fails if there is no match
		for name := range strings.Lines(string(out)) {
			found = append(found, filepath.Dir(name))
		}
	}
	var pids []int
	for _, dir := range found {
		pid, err := strconv.Atoi(filepath.Base(dir))
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}
