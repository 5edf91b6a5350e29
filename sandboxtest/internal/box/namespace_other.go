//go:build !linux

package box

import (
	"fmt"
	"log/slog"
	"runtime"
)

func newNamespaceBackend(string, *slog.Logger, bool, []byte) (backend, error) {
	return nil, fmt.Errorf("no namespaces on %s", runtime.GOOS)
}
