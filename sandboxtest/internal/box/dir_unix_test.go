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
	held, err := tryLock(dir) // the kernel has not yet released the owner's lock
	require.NoError(t, err)
	defer func() { _ = held.Unlock() }()
	name := filepath.Join(dir, ownerName)
	require.NoError(t, syscall.Mkfifo(name, 0o600)) // blocks lockDir when it reads the owner's process ID
	done := make(chan error, 1)
	go func() {
		unlock, err := lockDir(dir)
		if err == nil {
			err = unlock()
		}
		done <- err
	}()
	awaitRead := func() *os.File {
		open := make(chan *os.File, 1)
		go func() {
			f, _ := os.OpenFile(name, os.O_WRONLY, 0)
			open <- f
		}()
		select {
		case f := <-open:
			return f
		case err := <-done:
			t.Fatal("lockDir has given up: ", err)
			return nil
		}
	}
	answer := func(f *os.File) {
		_, err := fmt.Fprint(f, owner.Process.Pid)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	first := awaitRead()
	require.NoError(t, os.Remove(name))
	require.NoError(t, syscall.Mkfifo(name, 0o600))
	answer(first) // the owner still runs
	second := awaitRead()
	require.NoError(t, os.Remove(name))
	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()
	answer(second)
	require.NoError(t, <-done)
}
