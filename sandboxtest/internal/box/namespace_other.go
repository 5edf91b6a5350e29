//go:build !linux

package box

import (
	"fmt"
	"runtime"
)

func newNamespaceBackend(string, Options, bool) (backend, error) {
	return nil, fmt.Errorf("no namespaces on %s", runtime.GOOS)
}
