package sandbox

import (
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"
)

const (
	// maxAhead is the maximum number of entries listed ahead.
	maxAhead = 5000
	// aheadFor is how long a listing made ahead is valid.
	aheadFor = time.Second
)

// ahead holds listings of directories that a walk is about to read, for as long
// as nothing is known to have changed. Each is used once.
type ahead struct {
	mu     sync.Mutex
	limit  int    // the number of entries listed at once; 0 means maxAhead
	top    string // the directory that a walk began with; "" for none
	topped bool   // the tree below top has been listed
	idle   bool   // a listing made ahead expired unused: the walk is too slow

	lists map[string][]fs.DirEntry
	used  bool
	since time.Time
	mark  uint64 // the client's changes when lists were requested
}

// below reports whether name is a path in dir.
func below(name, dir string) bool {
	return name != "." && (dir == "." || strings.HasPrefix(name, dir+"/"))
}

// take returns the listing of a directory, if there is a valid one.
func (a *ahead) take(name string, mark uint64) ([]fs.DirEntry, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lists != nil && (a.mark != mark || time.Since(a.since) > aheadFor) {
		a.idle = !a.used
		a.lists = nil
	}
	list, ok := a.lists[name]
	if ok {
		a.used = true
		if delete(a.lists, name); len(a.lists) == 0 {
			a.lists = nil
		}
	}
	return list, ok
}

// next returns the directory whose tree is to be listed instead of name alone.
// A walk is assumed when a directory is listed inside one that was listed
// before.
func (a *ahead) next(name string) (dir string, limit int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.top == "" || !below(name, a.top) {
		a.top, a.topped, a.idle = name, false, false
		return "", 0, false
	}
	if limit = a.limit; limit == 0 {
		limit = maxAhead
	}
	switch {
	case a.idle:
		return "", 0, false
	case !a.topped:
		a.topped = true
		return a.top, limit, true
	}
	return name, limit, true
}

// put stores listings.
func (a *ahead) put(lists map[string][]fs.DirEntry, since time.Time, mark uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists, a.used, a.since, a.mark = lists, false, since, mark
}

// listAhead returns the listing of a directory as part of that of a tree, the
// rest of which it stores. It fails if that is not possible with one request;
// the directory is then listed by itself.
func (x *ioFS) listAhead(name string) (list []fs.DirEntry, ok bool) {
	c, err := x.fsys.t.client()
	if err != nil {
		return nil, false
	}
	mark, since := c.api.Changes(), time.Now()
	if list, ok := x.ahead.take(name, mark); ok {
		return list, true
	}
	dir, limit, ok := x.ahead.next(name)
	if !ok {
		return nil, false
	}
	p, err := x.path("readdir", dir)
	if err != nil {
		return nil, false
	}
	tree, err := x.fsys.tools().Tree(x.ctx, p, limit)
	if err != nil {
		return nil, false
	}
	lists := make(map[string][]fs.DirEntry, len(tree))
	for sub, entries := range tree {
		lists[path.Join(dir, sub)] = dirEntries(entries)
	}
	x.ahead.put(lists, since, mark)
	return x.ahead.take(name, mark)
}
