package box

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

const (
	lockName  = "lock"
	ownerName = "owner"
	// claimName is locked while a process tries to become the owner, possibly replacing
	// one that died.
	claimName    = "take"
	claimTimeout = 10 * time.Second
	// killTimeout is how long it may take until a killed process counts as ending: a thread
	// that waits for a new network namespace handles the signal only afterwards.
	killTimeout = time.Second
)

// lockDir locks a directory for this process. It fails if another process has locked it and
// still runs a second later. It replaces the lock of a dead process: the kernel releases
// that lock only when the networks of all its sandboxes are gone, which may take seconds.
func lockDir(dir string) (unlock func() error, err error) {
	claim := flock.New(filepath.Join(dir, claimName), flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	if _, err := claim.TryLockContext(ctx, 10*time.Millisecond); err != nil {
		return nil, fmt.Errorf("lock directory %s: %w", dir, err)
	}
	defer func() { _ = claim.Unlock() }()
	lock, err := tryLock(dir)
	for deadline := time.Now().Add(killTimeout); errors.Is(err, errLocked); lock, err = tryLock(dir) {
		if ownerIsGone(dir) {
			if os.Remove(filepath.Join(dir, lockName)) == nil {
				lock, err = tryLock(dir)
			}
			break
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("directory %s is in use by another host", dir)
	}
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, ownerName), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return lock.Unlock, nil
}

var errLocked = errors.New("locked by another process")

// tryLock locks a directory. A lock on a removed file has no effect, so tryLock checks
// that the file still exists.
func tryLock(dir string) (*flock.Flock, error) {
	path := filepath.Join(dir, lockName)
	lock := flock.New(path, flock.SetPermissions(0o600))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, err
	}
	if ok {
		mine, err := lock.Stat()
		now, nerr := os.Stat(path)
		if err == nil && nerr == nil && os.SameFile(mine, now) {
			return lock, nil
		}
		_ = lock.Unlock()
	}
	return nil, errLocked
}

// ownerIsGone reports whether the process that has locked a directory can no longer use
// it.
func ownerIsGone(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, ownerName))
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(string(data))
	return err == nil && pid > 0 && pid != os.Getpid() && backend.IsGone(pid)
}

// openDir locks the host's directory. If dir is empty, it creates one in parent.
func (h *Host) openDir(dir, parent string) (err error) {
	if dir == "" {
		h.temp = true
		h.dir, h.unlock, err = TempDir(parent, tempPrefix)
		if err != nil {
			return err
		}
		// In folder mode, commands of another user work in directories below it.
		return os.Chmod(h.dir, 0o711)
	}
	if err := backend.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if h.dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	h.unlock, err = lockDir(h.dir)
	return err
}

func (h *Host) closeDir() error {
	var err error
	if h.store != nil {
		h.store.close()
	}
	err = errors.Join(err, h.closeBoxesDir())
	if h.temp && h.dir != "" {
		err = errors.Join(err, backend.RemoveAll(h.dir))
	}
	if h.unlock != nil {
		err = errors.Join(err, h.unlock())
	}
	return err
}

// TempDir creates a temporary directory in parent and locks it until unlock is called. If
// this process dies before it has removed the directory, the next TempDir with the same
// prefix removes it, and kills the processes of its sandboxes.
func TempDir(parent, prefix string) (dir string, unlock func() error, err error) {
	removeAbandoned(parent, prefix)
	made, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return "", nil, err
	}
	var release func() error
	if dir, err = filepath.EvalSymlinks(made); err == nil {
		release, err = lockDir(dir)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(made))
	}
	lockedDirs.Store(made, nil)
	return dir, func() error {
		lockedDirs.Delete(made)
		return release()
	}, nil
}

// lockedDirs contains the directories that TempDir has locked in this process. Each TempDir
// skips them: if many servers run, trying all these locks would take longer than the rest
// of the call.
var lockedDirs sync.Map

// removeAbandoned removes the temporary directories of dead processes. Their locks are
// free.
func removeAbandoned(parent, prefix string) {
	entries, _ := os.ReadDir(parent)
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		// In a shared folder such as /tmp, it may belong to another user.
		if info, err := entry.Info(); err != nil || !backend.IsOurs(info) {
			continue
		}
		dir := filepath.Join(parent, entry.Name())
		if _, ok := lockedDirs.Load(dir); ok {
			continue
		}
		name := filepath.Join(dir, lockName)
		if _, err := os.Lstat(name); err != nil {
			continue // its creator has not locked it yet
		}
		// Create nothing here: the owner may be removing the directory. Both files exist
		// before the owner takes the lock, and until it removes the directory.
		claim := flock.New(filepath.Join(dir, claimName), flock.SetFlag(os.O_RDWR))
		if ok, err := claim.TryLock(); !ok && !errors.Is(err, fs.ErrNotExist) {
			continue // its creator is locking it
		}
		lock := flock.New(name, flock.SetFlag(os.O_RDWR))
		if ok, err := lock.TryLock(); err == nil && ok {
			killBoxesOf(filepath.Join(dir, string(Folder)))
			_ = backend.RemoveAll(dir)
			_ = lock.Unlock()
		}
		_ = claim.Unlock()
	}
}

// killBoxesOf kills the remaining processes of a dead host's store, if processes can be
// found by their sandbox. In namespace mode the kernel has killed them.
func killBoxesOf(store string) {
	boxes, _ := os.ReadDir(filepath.Join(store, "b"))
	ids := make(map[string]bool, len(boxes))
	for _, b := range boxes {
		ids[b.Name()] = true
	}
	if len(ids) > 0 {
		backend.KillMarked(ids)
	}
}
