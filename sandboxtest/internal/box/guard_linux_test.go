package box

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// TestOutputThatCannotBeDelivered: a command continues if its output can't be delivered.
func TestOutputThatCannotBeDelivered(t *testing.T) {
	t.Parallel()
	eachBox(t, func(t *testing.T, b *Box) {
		var out buffer
		_, _, code := run(t, b, backend.Spec{Path: "true"})
		assert.Zero(t, code)
		failed := make(chan struct{})
		p := start(t, b, backend.Spec{Path: "sh", Args: []string{"-c", "echo faulty; read -r line; echo fine"}, OpenStdin: true, Stdout: writerFunc(func(p []byte) (int, error) {
			if strings.Contains(string(p), "faulty") {
				close(failed)
				panic("faulty output")
			}
			return out.Write(p)
		}), Stderr: &out})
		<-failed
		_, err := io.WriteString(p.Input(), "\n")
		require.NoError(t, err)
		assert.Zero(t, p.Wait())
		assert.Equal(t, "fine\n", out.String())
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestPanicOfAThread: a panic on a thread is an error for the caller that waits.
func TestPanicOfAThread(t *testing.T) {
	t.Parallel()
	fail := func() error { panic("on a thread") }
	for _, err := range []error{backend.OnThread(fail), onPool(fail)} {
		require.ErrorContains(t, err, "on a thread")
		require.ErrorContains(t, err, "guard_linux_test.go:")
	}
}

func onPool(f func() error) error {
	pool := backend.NewThreads()
	defer pool.Close()
	if err := pool.Add(func() error { return nil }); err != nil {
		return err
	}
	return pool.Do(f)
}
