package durable

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// ExpiringDir is [Dir] without outputs that were written longer ago than age: it looks
// for them at most once an hour, when something is written. What is below [NeededPrefix]
// is kept. A viewer of an output that has expired gets output_lost. A store of another kind
// has means of its own, like a lifecycle rule. An age of zero keeps everything.
func ExpiringDir(path string, age time.Duration) OutputStore {
	if age <= 0 {
		return Dir(path)
	}
	return &expiring{dir: dir(path), age: age}
}

type expiring struct {
	dir
	age  time.Duration
	mu   sync.Mutex
	next time.Time // when it is to be looked for
}

func (e *expiring) Create(ctx context.Context, key string) (OutputWriter, error) {
	if e.due() {
		e.expire()
	}
	w, err := e.dir.Create(ctx, key)
	if errors.Is(err, fs.ErrNotExist) { // another process has removed the empty folder
		w, err = e.dir.Create(ctx, key)
	}
	return w, err
}

// due reports whether it is time to look, to one caller.
func (e *expiring) due() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if now.Before(e.next) {
		return false
	}
	e.next = now.Add(min(e.age/10, time.Hour))
	return true
}

// expire removes what is too old. What can't be removed costs room, no more.
func (e *expiring) expire() {
	var old []string
	_ = filepath.WalkDir(string(e.dir), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == string(e.dir) {
			return nil // it is gone, or not ours to read
		}
		if needed := filepath.Join(string(e.dir), filepath.FromSlash(NeededPrefix)); name == needed {
			return fs.SkipDir
		}
		age := e.age
		if strings.HasPrefix(entry.Name(), unfinishedPrefix) { // a command that is silent writes it
			age = max(age, leftAfter)
		}
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) <= age {
			return nil // it is gone
		}
		old = append(old, name)
		return nil
	})
	for _, name := range slices.Backward(old) { // a folder, if it is empty then
		_ = os.Remove(name)
	}
}
