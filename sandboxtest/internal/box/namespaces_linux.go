package box

import (
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/agent"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/namespaces"
)

// machineKey contains everything that decides whether sandboxes can run on this machine.
type machineKey struct {
	rootless bool
	user     int
	device   uint64 // of the store
	path     string // of the programs
}

// machinesTried contains the keys with which a sandbox has run. A process that opens many
// hosts tries each key only once.
var machinesTried sync.Map

func newNamespaces(dir string, log *slog.Logger, rootless bool, seen backend.Visible) (backend.Backend, error) {
	var store unix.Stat_t
	if err := unix.Stat(dir, &store); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	key := machineKey{rootless, os.Geteuid(), uint64(store.Dev), os.Getenv("PATH")} //nolint:unconvert // another type elsewhere
	_, tried := machinesTried.Load(key)
	var b backend.Backend
	var err error
	if rootless {
		b, err = agent.NewBackend(dir, log, seen, tried)
	} else {
		b, err = namespaces.NewBackend(dir, log, false, seen, tried)
	}
	if err != nil {
		return nil, err
	}
	machinesTried.Store(key, true)
	return b, nil
}
