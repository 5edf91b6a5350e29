package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// The processes of one folder share its token and its emulator. Each holds a shared lock
// on usersFile of the emulator's folder while it runs: the last one that stops also stops
// the emulator, and an emulator without users ends itself.

const (
	usersFile = "users"
	lockRetry = 20 * time.Millisecond
	// stopPatience is how long the last process waits for the emulator to save its
	// sandboxes.
	stopPatience = 30 * time.Second
)

// withLock calls do while no other process of the folder starts or stops.
func withLock(ctx context.Context, dir string, do func() error) error {
	lock := flock.New(filepath.Join(dir, "lock"))
	if locked, err := lock.TryLockContext(ctx, lockRetry); !locked {
		return fmt.Errorf("locking %s: %w", dir, err)
	}
	defer lock.Unlock() //nolint:errcheck // closing the file unlocks it
	return do()
}

// joinEmulator returns the emulator of a folder, and starts it unless it runs. leave ends
// this process's use of the emulator.
func joinEmulator(ctx context.Context, dir string) (_ *emulator, leave func() error, _ error) {
	users := flock.New(filepath.Join(dir, usersFile))
	if locked, err := users.TryRLockContext(ctx, lockRetry); !locked {
		return nil, nil, fmt.Errorf("locking %s: %w", users.Path(), err)
	}
	e, err := startEmulator(ctx, dir)
	if err != nil {
		_ = users.Unlock()
		return nil, nil, err
	}
	return e, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
		defer cancel()
		return withLock(ctx, filepath.Dir(dir), func() error {
			if err := users.Unlock(); err != nil {
				return err
			}
			last, err := users.TryLock()
			if err != nil || !last {
				return err
			}
			defer users.Unlock() //nolint:errcheck // closing the file unlocks it
			return e.stop(ctx, dir)
		})
	}, nil
}
