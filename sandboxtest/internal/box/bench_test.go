package box

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

func BenchmarkBoot(b *testing.B) {
	h := openHost(b, Options{Mode: Namespace})
	for b.Loop() {
		box := newBox(b, h, backend.Config{})
		done, err := box.use() // a sandbox boots at its first use
		require.NoError(b, err)
		done()
		require.NoError(b, box.Remove())
	}
}

func BenchmarkCommand(b *testing.B) {
	h := openHost(b, Options{Mode: Namespace})
	box := newBox(b, h, backend.Config{})
	for b.Loop() {
		run(b, box, backend.Spec{Path: "true"})
	}
}

// BenchmarkFreeze shows that the cost of a snapshot, and of a sandbox started from it, does
// not depend on its size.
func BenchmarkFreeze(b *testing.B) {
	for _, mib := range []int{1, 1024} {
		b.Run(fmt.Sprintf("%dMiB", mib), func(b *testing.B) {
			h := openHost(b, Options{Mode: Namespace})
			for b.Loop() {
				b.StopTimer()
				box := newBox(b, h, backend.Config{})
				sh(b, box, fmt.Sprintf("head -c %dM /dev/zero > data", mib))
				b.StartTimer()
				require.NoError(b, box.Stop())
				layer, size, err := box.Freeze()
				require.NoError(b, err)
				require.Equal(b, int64(mib)<<20, size)
				again := newBox(b, h, backend.Config{Layer: layer})
				b.StopTimer()
				require.NoError(b, again.Remove())
				require.NoError(b, h.RemoveLayer(layer))
				b.StartTimer()
			}
		})
	}
}
