package sandbox_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

const diskEnv = "SANDBOX_TEST_DISK"

// TestDownloadDisk downloads to a full disk and to one that can't be written to.
// It mounts them in a namespace of its own, in a process of its own.
func TestDownloadDisk(t *testing.T) {
	if os.Getenv(diskEnv) != "" {
		downloadDisk(t, os.Getenv(diskEnv))
		return
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestDownloadDisk$", "-test.v")
	cmd.Env = append(os.Environ(), diskEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Skip("no mount namespace can be had here:", err)
	}
	require.NoError(t, err, string(out))
}

func downloadDisk(t *testing.T, dir string) {
	require.NoError(t, syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	_, sb := start(t, nil)
	ctx := t.Context()
	f := sb.FS()
	require.NoError(t, f.WriteFile(ctx, "d/large", make([]byte, 1<<20), 0o644))
	require.NoError(t, f.AppendFile(ctx, "d/large", []byte("no hole at the end")))
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(i*i>>3) | 1
	}
	require.NoError(t, f.WriteFile(ctx, "d/noise", noise, 0o644))

	small, readonly := filepath.Join(dir, "small"), filepath.Join(dir, "readonly")
	for _, d := range []string{small, readonly} {
		require.NoError(t, os.Mkdir(d, 0o755))
		require.NoError(t, syscall.Mount("tmpfs", d, "tmpfs", 0, "size=256k"))
		t.Cleanup(func() { syscall.Unmount(d, 0) })
	}
	require.NoError(t, os.WriteFile(filepath.Join(small, "dst"), []byte("old"), 0o644))
	require.NoError(t, syscall.Mount("", readonly, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))

	assert.ErrorIs(t, sb.DownloadFile(ctx, "d/noise", filepath.Join(small, "dst"), nil), syscall.ENOSPC)
	data, err := os.ReadFile(filepath.Join(small, "dst"))
	require.NoError(t, err)
	assert.Equal(t, "old", string(data))
	assert.Equal(t, []string{"dst"}, dirNames(t, small))

	assert.ErrorIs(t, sb.DownloadDir(ctx, "d", filepath.Join(small, "dir"), &sandbox.DownloadDirOptions{Include: []string{"noise"}}), syscall.ENOSPC)
	assert.Empty(t, dirNames(t, filepath.Join(small, "dir")))

	assert.ErrorIs(t, sb.DownloadFile(ctx, "d/noise", filepath.Join(readonly, "dst"), nil), syscall.EROFS)
	assert.ErrorIs(t, sb.DownloadDir(ctx, "d", readonly, nil), syscall.EROFS)
	assert.ErrorIs(t, sb.DownloadDir(ctx, "d", filepath.Join(readonly, "new"), nil), syscall.EROFS)
	assert.Empty(t, dirNames(t, readonly))
}
