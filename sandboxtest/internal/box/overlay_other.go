//go:build !linux

package box

import (
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// copyOwners does nothing: sandboxes have no users on this system.
func copyOwners(string, string) error { return nil }

// makeOverlay is for namespace mode.
func makeOverlay(m backend.Mount) error { return backend.ErrUnsupported }
