package box

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/folder"
)

// TestGuestsElsewhere: if the guest, the user nobody, can't enter the host's directory,
// sandboxes have their files in another directory. The layers stay in the host's directory,
// even if it is on another file system, and sandboxes can't change them. The test sets a
// umask that denies the guest all files that this process creates.
func TestGuestsElsewhere(t *testing.T) {
	if os.Geteuid() != 0 {
		needs.Missing(t, "root")
	}
	nobody, err := folder.NewGuest()
	require.NoError(t, err)
	if err := nobody.Enters("/"); err != nil {
		needs.Missing(t, "the right to become nobody: %v", err)
	}
	defer unix.Umask(unix.Umask(0o027))
	parents := map[string]string{"the same file system": t.TempDir()}
	if dir, err := os.MkdirTemp("/dev/shm", "box-"); err == nil { //nolint:usetesting // another file system
		t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
		parents["another file system"] = dir
	}
	if len(parents) == 2 && !needs.Slow() {
		delete(parents, "the same file system")
	}
	for name, parent := range parents {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.Chmod(parent, 0o700))
			opts := Options{Mode: Folder, Dir: filepath.Join(parent, "dir")}
			h := openHost(t, opts)
			require.True(t, h.way.guest)
			b := newBox(t, h, backend.Config{Mounts: []backend.Mount{{Path: "/data", Drive: "d", Keep: true}}})
			assert.NotEqual(t, "0", sh(t, b, "umask 077; echo kept | tee file /data/file >/dev/null; mkdir dir; ln -s file link; ln file hard; id -u"))
			for _, kept := range []string{filepath.Join(h.store.dir, "l"), filepath.Join(h.dir, drivesName)} {
				assert.Equal(t, "refused", sh(t, b, `ls "$1" 2>/dev/null || echo refused`, kept))
			}
			require.NoError(t, b.Stop())
			id, _, err := b.Freeze()
			require.NoError(t, err)
			require.NoError(t, h.Close())

			h = openHost(t, opts)
			b = newBox(t, h, backend.Config{Layer: id, Mounts: []backend.Mount{{Path: "/data", Drive: "d"}}})
			assert.Equal(t, "kept kept kept drwx------", sh(t, b, "echo $(cat link hard /data/file) $(stat -c %A dir); echo more >file; echo more >>/data/file"))
			require.NoError(t, b.Remove())
			require.NoError(t, h.Close())
			assert.NoDirExists(t, filepath.Dir(filepath.Dir(h.store.boxes)))
		})
	}
}

// TestTerminalsOfGuests: a program can open its terminal by name.
func TestTerminalsOfGuests(t *testing.T) {
	t.Parallel()
	b := sharedBox(t, sharedHost(t, Folder))
	out, _, code := run(t, b, backend.Spec{Path: "sh", Args: []string{"-c", `echo here >"$(tty)"; echo there >/dev/stdout`}, TTY: &backend.Size{Cols: 80, Rows: 24}})
	require.Zero(t, code, "%s", out)
	assert.Equal(t, "here\r\nthere\r\n", out)
}

// TestProcessesOfGuests: a root that may not look into other users' processes, as in a
// container, finds processes that have left their group.
func TestProcessesOfGuests(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		needs.Missing(t, "root")
	}
	needs.Programs(t, "setpriv", "setsid")
	cmd := exec.Command("setpriv", "--bounding-set=-sys_ptrace,-sys_admin,-perfmon", os.Args[0], "-test.run=^TestCloseEndsEverything$/^folder$", "-test.v")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "--- PASS: TestCloseEndsEverything/folder", "%s", out)
}

// TestNoPrivilegesInFolders: set-user-ID programs of the machine, such as sudo, give a
// command no rights.
func TestNoPrivilegesInFolders(t *testing.T) {
	t.Parallel()
	b := sharedBox(t, sharedHost(t, Folder))
	for _, user := range []string{"", backend.RootUser} {
		out, _, _ := run(t, b, backend.Spec{Path: "grep", Args: []string{"NoNewPrivs", "/proc/self/status"}, User: user})
		assert.Equal(t, "NoNewPrivs:\t1\n", out)
	}
}
