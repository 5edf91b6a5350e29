//go:build !linux

package box

import (
	"fmt"
	"log/slog"
	"runtime"
)

func newNamespaceBackend(string, *slog.Logger, bool, seen) (backend, error) {
	return nil, fmt.Errorf("no namespaces on %s", runtime.GOOS)
}
