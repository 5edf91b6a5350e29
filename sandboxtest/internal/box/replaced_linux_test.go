package box

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// TestReplacedSystemFiles replaces the files that the emulator reads in a sandbox by
// endless ones, or by pipes without a writer. Commands, uploads and restarts work as if the
// files were missing.
func TestReplacedSystemFiles(t *testing.T) {
	t.Parallel()
	h := openWithUsers(t)
	kinds := map[string]string{"pipe": "mkfifo", "device": "ln -s /dev/zero"}
	if needs.Slow() {
		maps.Copy(kinds, map[string]string{
			"sparse":    "truncate -s 2T",
			"terminal":  "ln -s /dev/ptmx",
			"directory": "mkdir",
			"log":       "ln -s ../../../../../../proc/kmsg",
			"loop":      "ln -s group",
		})
	}
	for kind, script := range kinds {
		t.Run(kind, func(t *testing.T) {
			b := newBox(t, h, backend.Config{Hostname: "a-name-that-is-in-no-file"})
			_, _, code := run(t, b, backend.Spec{User: "root", Path: "sh", Args: []string{"-c", "cd /etc && for file in group hosts sudoers.d/x; do rm -f $file && " + script + " $file || exit; done"}})
			require.Zero(t, code)
			done := make(chan struct{})
			go func() {
				defer close(done)
				assert.Equal(t, "1000", sh(t, b, "id -G"))
				assert.NoError(t, b.Extract(t.Context(), archive(t), ""))
				sh(t, b, "sudo true || true")
				assert.NoError(t, b.Stop())
				assert.NoError(t, b.Restart())
				assert.Equal(t, "1000", sh(t, b, "id -G"))
			}()
			select {
			case <-done:
			case <-time.After(wait):
				t.Fatal("the emulator waits for a file of the sandbox")
			}
		})
	}
}
