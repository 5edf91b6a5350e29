package folder

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestRootFSDoesNotWait: if a pipe replaces a file just before it is opened, neither an
// upload nor a download waits.
func TestRootFSDoesNotWait(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	opened := make(chan error, 2)
	for _, open := range []func(string) (*os.File, error){rootFS{root: root}.Open, rootFS{root: root}.Create} {
		go func() {
			f, err := open("/pipe")
			_ = f.Close() // nil after an error
			opened <- err
		}()
		select {
		case <-opened:
		case <-time.After(time.Minute):
			t.Fatal("waits for the other end")
		}
	}
}
