//go:build unix

package box

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOwnerThatIsKilled: a process that replaces a killed owner does not give up while
// the owner is still dying.
func TestOwnerThatIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	owner := exec.Command("cat")
	in, err := owner.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	require.NoError(t, owner.Start())
	held, err := tryLock(dir) // which the kernel has yet to release
	require.NoError(t, err)
	defer func() { _ = held.Unlock() }()
	name := filepath.Join(dir, ownerName)
	require.NoError(t, syscall.Mkfifo(name, 0o600)) // shows when it is looked at
	done := make(chan error, 1)
	go func() {
		unlock, err := lockDir(dir)
		if err == nil {
			err = unlock()
		}
		done <- err
	}()
	asked := func() *os.File {
		open := make(chan *os.File, 1)
		go func() {
			f, _ := os.OpenFile(name, os.O_WRONLY, 0)
			open <- f
		}()
		select {
		case f := <-open:
			return f
		case err := <-done:
			t.Fatal("it has given up: ", err)
			return nil
		}
	}
	answer := func(f *os.File) {
		_, err := fmt.Fprint(f, owner.Process.Pid)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	first := asked()
	require.NoError(t, os.Remove(name))
	require.NoError(t, syscall.Mkfifo(name, 0o600))
	answer(first) // and it lives
	second := asked()
	require.NoError(t, os.Remove(name))
	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()
	answer(second)
	require.NoError(t, <-done)
}
