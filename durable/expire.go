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

// ExpiringDir is [Dir] that removes outputs older than age, except below [NeededPrefix]. It
// looks for them when something is written, at most once an hour. A viewer of an expired
// output gets output_lost. An age of zero keeps everything.
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
	next time.Time // of the next search
}

func (e *expiring) Create(ctx context.Context, key string) (OutputWriter, error) {
	if e.due() {
		e.expire()
	}
	w, err := e.dir.Create(ctx, key)
	if errors.Is(err, fs.ErrNotExist) { // another process removed the empty folder
		w, err = e.dir.Create(ctx, key)
	}
	return w, err
}

// due reports whether it is time to search. Only one caller gets true.
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

// expire removes old files. It ignores errors: a file that stays only takes space.
func (e *expiring) expire() {
	var old []string
	_ = filepath.WalkDir(string(e.dir), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == string(e.dir) {
			return nil // it was removed, or can't be read
		}
		if needed := filepath.Join(string(e.dir), filepath.FromSlash(NeededPrefix)); name == needed {
			return fs.SkipDir
		}
		age := e.age
		if strings.HasPrefix(entry.Name(), unfinishedPrefix) { // a silent command may still write it
			age = max(age, abandonedAfter)
		}
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) <= age {
			return nil // it was removed, or is new
		}
		old = append(old, name)
		return nil
	})
	for _, name := range slices.Backward(old) { // folders last; a full one stays
		_ = os.Remove(name)
	}
}
