//go:build !linux

package box

import (
	"fmt"
	"log/slog"
	"runtime"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

func newNamespaces(string, *slog.Logger, bool, backend.Visible) (backend.Backend, error) {
	return nil, fmt.Errorf("no namespaces on %s", runtime.GOOS)
}
