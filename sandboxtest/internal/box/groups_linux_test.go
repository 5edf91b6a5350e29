package box

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestOwnGroup reads what kernels write.
func TestOwnGroup(t *testing.T) {
	const (
		v2     = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
		below  = "30 23 0:26 /user.slice /mnt/my\\040groups rw - cgroup2 none rw\n"
		v1     = "31 23 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
		mine   = "/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope"
		hybrid = "9:name=systemd:/\n8:pids:/a\n0::" + mine + "\n"
	)
	for _, x := range []struct{ mounts, cgroups, top, own string }{
		{v1 + v2, hybrid, "/sys/fs/cgroup", "/sys/fs/cgroup" + mine},
		{v2, "0::/\n", "/sys/fs/cgroup", "/sys/fs/cgroup"},
		{below, hybrid, "/mnt/my groups", "/mnt/my groups" + strings.TrimPrefix(mine, "/user.slice")},
		{below, "0::/system.slice/x\n", "", ""}, // not in what is mounted
		{v2, "0::/../x\n", "", ""},              // of another namespace
		{v1, hybrid, "", ""},
		{v2, "8:pids:/a\n", "", ""},
	} {
		top, own, err := ownGroup(x.mounts, x.cgroups)
		assert.Equal(t, x.top == "", err != nil, "%v", x)
		assert.Equal(t, x.top, top, "%v", x)
		assert.Equal(t, x.own, own, "%v", x)
	}
}

// TestWhereGroupsMayBeMade decides on a tree of ordinary files, which shows the
// decision and nothing of the kernel's.
func TestWhereGroupsMayBeMade(t *testing.T) {
	top := t.TempDir()
	own := filepath.Join(top, "user.slice/user@1.service/app.slice/x.scope")
	require.NoError(t, os.MkdirAll(own, 0o755))
	for dir, enabled := range map[string]string{
		"": "cpu memory pids", "user.slice": "memory pids", "user.slice/user@1.service": "memory pids", "user.slice/user@1.service/app.slice": "memory pids cpu",
		"user.slice/user@1.service/app.slice/x.scope": "",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(top, dir, "cgroup.subtree_control"), []byte(enabled+"\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(top, dir, "cgroup.procs"), nil, 0o600))
	}
	app, service := filepath.Dir(own), filepath.Dir(filepath.Dir(own))
	marks := func(names ...string) func(string) bool {
		return func(dir string) bool { return slices.Contains(names, dir) }
	}
	is := func(want string, root bool, marked func(string) bool) {
		t.Helper()
		got, err := delegatedGroup(top, own, root, marked)
		assert.Equal(t, want, got)
		assert.Equal(t, want == "", err != nil)
	}
	is(app, false, marks())
	is(app, true, marks(service))
	is("", true, marks())
	is("", true, marks("/elsewhere"))
	require.NoError(t, os.WriteFile(filepath.Join(app, "cgroup.subtree_control"), []byte("memory\n"), 0o600))
	is(service, false, marks())
	if os.Geteuid() != 0 { // whom permissions bind
		for _, dir := range []string{top, filepath.Dir(service), service} {
			require.NoError(t, os.Chmod(filepath.Join(dir, "cgroup.procs"), 0o400))
		}
		is("", false, marks())
	}
}

// TestGroupOfABox moves a process to a real group by its start, without
// controllers, which not every machine has: the group holds it, and goes after it,
// as does what a killed host has left.
func TestGroupOfABox(t *testing.T) {
	top := t.TempDir()
	if err := unix.Mount("none", top, "cgroup2", 0, ""); err != nil {
		needs.Other(t, "needs the right to mount control groups of version 2: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(top, unix.MNT_DETACH)) })
	left := filepath.Join(top, groupPrefix+"999999999-x")
	require.NoError(t, os.MkdirAll(filepath.Join(left, "box"), 0o755))
	g, err := newGroups(top, nil)
	require.NoError(t, err)
	defer func() { g.close(); assert.NoDirExists(t, g.dir) }()
	assert.NoDirExists(t, left)

	_, err = g.add("bad", map[string]string{"no.such.file": "1"})
	require.Error(t, err)
	assert.NoDirExists(t, filepath.Join(g.dir, "bad"))
	b, err := g.add("box", map[string]string{"cgroup.max.depth": "0"})
	require.NoError(t, err)
	depth, err := os.ReadFile(filepath.Join(b.dir, "cgroup.max.depth"))
	require.NoError(t, err)
	assert.Equal(t, "0\n", string(depth))
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := b.in(cmd.SysProcAttr, cmd.Start); err != nil {
		require.NoError(t, b.close())
		needs.Other(t, "needs a kernel that starts processes in groups: %v", err)
	}
	procs, err := os.ReadFile(filepath.Join(b.dir, "cgroup.procs"))
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintln(cmd.Process.Pid), string(procs))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	require.NoError(t, b.close())
	assert.NoDirExists(t, b.dir)
	require.ErrorIs(t, b.in(&syscall.SysProcAttr{}, func() error { return nil }), ErrStopped)
}

// TestLimits: a box has the processes and the memory that it may have, and no
// more.
func TestLimits(t *testing.T) {
	h := openHost(t, Options{Mode: Namespace})
	if !h.Limited() {
		needs.Other(t, "needs a control group of version 2 with memory and pids that is delegated to this user")
	}
	b := newBox(t, h, Config{Limits: Limits{Memory: 64 << 20, Processes: 30}})
	_, errOut, res := run(t, b, Spec{Path: "sh", Args: []string{"-c", "for i in $(seq 60); do sleep 600 & done"}})
	assert.NotZero(t, res.ExitCode)
	assert.Contains(t, strings.ToLower(errOut), "fork")
	require.NoError(t, b.Stop(t.Context()))
	require.NoError(t, b.Restart(t.Context()))
	out, _, _ := run(t, b, Spec{Path: "sh", Args: []string{"-c", "head -c 300000000 /dev/zero | tail >/dev/null; echo $?"}})
	assert.Equal(t, "137\n", out)
}
