package box

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

func TestUsersInsideTheBox(t *testing.T) {
	t.Parallel()
	h := sharedHost(t, Namespace)
	b := newBox(t, h, backend.Config{Hostname: "my box"})
	assert.Equal(t, "vercel-sandbox vercel-sandbox 1000 1000", sh(t, b, "echo $(id -un) $(id -gn) $(id -u) $(id -g)"))
	assert.Equal(t, "my-box /home/vercel-sandbox", sh(t, b, "echo $(hostname) $HOME"))
	sh(t, b, "touch $HOME/f /vercel/sandbox/f /tmp/f; ! touch /etc/f 2>/dev/null")
	out, _, _ := run(t, b, backend.Spec{Path: "sh", Args: []string{"-c", "id -u; echo $HOME; mkdir /shared/group; touch /etc/f"}, User: "root"})
	assert.Equal(t, "0\n/root\n", out)

	if h.Rootless() {
		return // then a single user owns everything
	}
	sh(t, b, "! touch /shared/f 2>/dev/null")
	shRoot(t, b, "groupadd team && useradd -m -s /bin/bash alice && usermod -aG team alice && usermod -aG team vercel-sandbox")
	assert.Equal(t, "vercel-sandbox team\nalice team", sh(t, b, "id -Gn; sudo -u alice id -Gn"))
	_, errOut, code := run(t, b, backend.Spec{Path: "sudo", Args: []string{"-u", "alice", "--", "sh", "-c", "touch ~/mine && ! touch /vercel/sandbox/x 2>/dev/null"}})
	assert.Zero(t, code)
	assert.Empty(t, errOut)
}

func TestNothingReachesTheHost(t *testing.T) {
	h := sharedHost(t, Namespace)
	b := newBox(t, h, backend.Config{})
	dir := t.TempDir()
	name := "/var/" + backend.NewID()
	_, _, code := run(t, b, backend.Spec{User: "root", Path: "sh", Args: []string{"-c", `
		touch "$1" /etc/sandbox-was-here /root/sandbox-was-here && rm -f /etc/passwd; mkdir -p "$2" && touch "$2/f"
		echo x > /proc/sys/kernel/domainname; mknod /tmp/disk b 8 0; mount -t tmpfs none /mnt; kill -9 1; true`, "sh", name, dir}})
	assert.Zero(t, code)
	for _, path := range []string{name, "/etc/sandbox-was-here", "/root/sandbox-was-here", filepath.Join(dir, "f")} {
		assert.NoFileExists(t, path)
	}
	assert.FileExists(t, "/etc/passwd")
	assert.True(t, b.Running())
	// The files and processes of other sandboxes are invisible.
	other := newBox(t, h, backend.Config{})
	_, _, code = run(t, other, backend.Spec{User: "root", Path: "sh", Args: []string{"-c", `! test -e "$1" && ! test -e "$2"`, "sh", name, h.dir}})
	assert.Zero(t, code)
	assert.Less(t, len(strings.Fields(sh(t, other, "cd /proc; echo [0-9]*"))), 6)
	// The first process reaps zombies.
	sh(t, b, `for i in 1 2 3 4 5; do (setsid sh -c 'echo >> ended' &); done; until test "$(wc -l < ended)" = 5; do sleep 0.1; done 2>/dev/null`)
	assert.Eventually(t, func() bool { return sh(t, b, `grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l`) == "0" }, wait, tick)
}

// mounts returns the mounts of this process.
func mounts(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	return string(data)
}

func TestManyBoxesAtOnce(t *testing.T) {
	needs.Long(t, "500 sandboxes take a while")
	const count = 500
	for _, mode := range []Mode{Namespace, Folder} {
		t.Run(string(mode), func(t *testing.T) {
			before := mounts(t)
			files := openFiles(t)
			h := openHost(t, Options{Mode: mode})
			seconds := mark()
			boxes := make([]*Box, count)
			outs := make([]buffer, count)
			var wg sync.WaitGroup
			slots := make(chan struct{}, 32)
			for i := range boxes {
				wg.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					b, err := h.New(t.Context(), backend.Config{DenyNetwork: mode == Namespace && i%2 == 0})
					if !assert.NoError(t, err) {
						return
					}
					boxes[i] = b
					_, err = b.Start(t.Context(), backend.Spec{Path: "sh", Args: []string{"-c", "echo $0 > mine; cat mine; exec sleep " + seconds, b.id}, Stdout: &outs[i]})
					assert.NoError(t, err)
				})
			}
			wg.Wait()
			for i, b := range boxes {
				require.NotNil(t, b)
				require.Eventually(t, func() bool { return outs[i].String() == b.id+"\n" }, wait, tick)
			}
			assert.Equal(t, before, mounts(t))
			dir := h.dir
			require.NoError(t, h.Close())
			assert.False(t, isRunning(t, seconds))
			assert.NoDirExists(t, dir)
			assert.Equal(t, before, mounts(t))
			assert.Eventually(t, func() bool { runtime.GC(); return openFiles(t) <= files }, wait, tick)
		})
	}
}

func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}
