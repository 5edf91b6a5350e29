package box

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// store keeps the layers of a host in dir. l/ID is the tree of a layer, and m/ID.json its
// record. The files of Boxes are in boxes, which is usually dir/b.
type store struct {
	dir, boxes string

	mu     sync.Mutex
	layers map[backend.LayerID]*layer
	// damaged are layers that can't be used, with the reason. While there are any,
	// nothing is removed, because the layers that they depend on are unknown.
	damaged map[backend.LayerID]error

	maxChain int // the longest chain of layers on which a Box starts

	// removingOld waits for the goroutine that removes the files of an earlier process's
	// Boxes.
	removingOld sync.WaitGroup
}

type layer struct {
	Parent backend.LayerID `json:"parent,omitempty"`
	// Removed layers stay while a Box or another layer uses them.
	Removed bool `json:"removed,omitempty"`
	// Flat is a layer without parents that has the contents of this layer and its chain.
	// Boxes start from it instead.
	Flat backend.LayerID `json:"flat,omitempty"`

	boxes, children int
}

// openStore opens the store in dir. If one of the wanted layers is missing, it changes
// nothing.
func openStore(dir string, want []backend.LayerID) (*store, error) {
	s := &store{dir: dir, boxes: filepath.Join(dir, "b"), layers: make(map[backend.LayerID]*layer), damaged: make(map[backend.LayerID]error), maxChain: longestChain}
	unfinished, err := s.readRecords()
	if err != nil {
		return nil, err
	}
	if err := s.check(want); err != nil {
		return nil, err
	}
	for _, name := range unfinished {
		if err := os.Remove(name); err != nil {
			return nil, err
		}
	}
	if err := s.removeOldBoxes(); err != nil {
		return nil, err
	}
	for _, sub := range []string{"l", "m", "b"} {
		if err := backend.MkdirAll(filepath.Join(dir, sub), 0o711); err != nil {
			return nil, err
		}
	}
	for _, l := range s.layers {
		for _, below := range []backend.LayerID{l.Parent, l.Flat} {
			if b := s.layers[below]; b != nil {
				b.children++
			}
		}
	}
	trees, err := os.ReadDir(filepath.Join(dir, "l"))
	if err != nil {
		return nil, err
	}
	for _, t := range trees {
		if id := backend.LayerID(t.Name()); s.layers[id] == nil && s.damaged[id] == nil { // a freeze that was cut short
			if err := backend.RemoveAll(filepath.Join(dir, "l", t.Name())); err != nil {
				return nil, err
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Collect(maps.Keys(s.layers)) {
		s.collectLocked(id)
	}
	return s, nil
}

// HasContents reports whether a host's directory contains layers or drives.
func HasContents(dir string) (bool, error) {
	all := []string{drivesName}
	for _, way := range []way{{mode: Namespace}, {mode: Namespace, rootless: true}, {mode: Folder}} {
		all = append(all, filepath.Join(way.kind(), "l"), filepath.Join(way.kind(), "m"))
	}
	for _, sub := range all {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if len(entries) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// readRecords reads the records of the layers, and returns the names of unfinished ones.
// If a record can't be read, its layer and those that depend on it can't be used. Their
// files are kept for repair.
func (s *store) readRecords() (unfinished []string, err error) {
	dir := filepath.Join(s.dir, "m")
	records, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, r := range records {
		name := filepath.Join(dir, r.Name())
		id, ok := strings.CutSuffix(r.Name(), ".json")
		if !ok {
			unfinished = append(unfinished, name)
			continue
		}
		data, err := os.ReadFile(name)
		l := new(layer)
		if err == nil {
			err = json.Unmarshal(data, l)
		}
		if err != nil {
			s.damaged[backend.LayerID(id)] = fmt.Errorf("%s is damaged: %w", name, err)
			continue
		}
		s.layers[backend.LayerID(id)] = l
	}
	for changed := len(s.damaged) > 0; changed; {
		changed = false
		for id, l := range s.layers {
			if err := s.damaged[l.Parent]; err != nil {
				s.damaged[id], changed = err, true
				delete(s.layers, id)
			}
		}
	}
	return unfinished, nil
}

// check returns an error if a layer, or one that it depends on, has no record or no files.
func (s *store) check(ids []backend.LayerID) error {
	for _, id := range ids {
		for id != "" && s.damaged[id] == nil {
			l := s.layers[id]
			if l == nil {
				return incompleteError("a snapshot", &fs.PathError{Op: "stat", Path: s.metaName(id), Err: fs.ErrNotExist})
			}
			for _, tree := range []backend.LayerID{id, l.Flat} {
				if s.layers[tree] == nil {
					continue
				}
				if _, err := os.Stat(s.treeDir(tree)); err != nil {
					return incompleteError("a snapshot", err)
				}
			}
			id = l.Parent
		}
	}
	return nil
}

// incompleteError returns the error that a file of the store, or of what it contains, is
// missing. err names the file.
func incompleteError(what string, err error) error {
	return fmt.Errorf("%s is incomplete, and nothing was changed: put back what is missing, or use another directory: %w", what, err)
}

// removeOldBoxes moves the files of an earlier process's Boxes aside and removes them in
// the background. There may be many. If that process was killed, the last processes of its
// Boxes may still be writing to them.
func (s *store) removeOldBoxes() error {
	boxes, dead := filepath.Join(s.dir, "b"), filepath.Join(s.dir, "dead")
	killBoxesOf(s.dir)
	if err := os.MkdirAll(dead, 0o700); err != nil {
		return err
	}
	if err := os.Rename(boxes, filepath.Join(dead, backend.NewID())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.removingOld.Go(func() {
		for range 100 {
			if backend.RemoveAll(dead) == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	return nil
}

// close waits until the store is no longer used.
func (s *store) close() { s.removingOld.Wait() }

// keepOnly removes all layers except the given ones and those that they depend on.
func (s *store) keepOnly(ids []backend.LayerID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.damaged) > 0 {
		return nil
	}
	for id, l := range s.layers {
		if l.Removed || slices.Contains(ids, id) {
			continue
		}
		l.Removed = true
		if err := s.save(id, l); err != nil {
			return err
		}
	}
	for _, id := range slices.Collect(maps.Keys(s.layers)) {
		s.collectLocked(id)
	}
	return nil
}

func (s *store) boxDir(id string) string           { return filepath.Join(s.boxes, id) }
func (s *store) treeDir(id backend.LayerID) string { return filepath.Join(s.dir, "l", string(id)) }
func (s *store) metaName(id backend.LayerID) string {
	return filepath.Join(s.dir, "m", string(id)+".json")
}
func (s *store) get(id backend.LayerID) (*layer, error) {
	l := s.layers[id]
	if l == nil || l.Removed {
		return nil, fmt.Errorf("%w: %q", ErrNoLayer, id)
	}
	return l, nil
}

// acquire protects a layer from removal, and returns its ID. If another layer has replaced
// the layer's chain, acquire protects that one, and returns its ID instead. If chained is
// set, it also returns the names of the chain, newest first; otherwise only the name of the
// layer.
func (s *store) acquire(id backend.LayerID, chained bool) (backend.LayerID, []string, error) {
	if id == "" {
		return "", nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.get(id)
	if err != nil {
		return "", nil, err
	}
	if flat := s.layers[l.Flat]; flat != nil {
		id, l = l.Flat, flat
	}
	l.boxes++
	chain := []string{string(id)}
	for chained {
		below := l.Parent
		if p := s.layers[below]; p != nil && s.layers[p.Flat] != nil {
			below = p.Flat
		}
		if l = s.layers[below]; l == nil {
			break
		}
		chain = append(chain, string(below))
	}
	return id, chain, nil
}

func (s *store) release(id backend.LayerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.layers[id]; l != nil {
		l.boxes--
		s.collectLocked(id)
	}
}

// add renames the tree at dir to make it a new layer.
func (s *store) add(dir string, parent backend.LayerID) (backend.LayerID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addLocked(dir, &layer{Parent: parent})
}

func (s *store) addLocked(dir string, l *layer) (backend.LayerID, error) {
	id := backend.LayerID(backend.NewID())
	if err := backend.MoveTree(dir, s.treeDir(id)); err != nil {
		return "", err
	}
	if err := s.save(id, l); err != nil {
		_ = backend.MoveTree(s.treeDir(id), dir)
		return "", err
	}
	s.layers[id] = l
	if p := s.layers[l.Parent]; p != nil {
		p.children++
	}
	return id, nil
}

// save writes the record of a layer atomically.
func (s *store) save(id backend.LayerID, l *layer) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return WriteFile(s.metaName(id), data, false)
}

// WriteFile replaces a file atomically: if this process dies, or the disk is full, the
// file has the old content or the new. With sync this also holds if the machine dies.
// Only the owner may read the file.
func WriteFile(name string, data []byte, sync bool) (err error) {
	temp := name + backend.HalfWritten
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, name); err != nil {
		return err
	}
	if !sync {
		return nil
	}
	if dir, err := os.Open(filepath.Dir(name)); err == nil {
		_, _ = dir.Sync(), dir.Close() // not every file system can sync a directory
	}
	return nil
}

func (s *store) remove(id backend.LayerID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.get(id)
	if err != nil {
		return err
	}
	l.Removed = true
	if err := s.save(id, l); err != nil {
		return err
	}
	s.collectLocked(id)
	return nil
}

// collectLocked removes the files of a removed layer that nothing depends on, and then
// those of its parents.
func (s *store) collectLocked(id backend.LayerID) {
	l := s.layers[id]
	if l == nil || !l.Removed || l.boxes > 0 || l.children > 0 || len(s.damaged) > 0 {
		return
	}
	// Remove the tree last: a tree without a record is removed when the store is opened.
	_ = os.Remove(s.metaName(id))
	delete(s.layers, id)
	_ = backend.RemoveAll(s.treeDir(id))
	for _, below := range []backend.LayerID{l.Parent, l.Flat} {
		if b := s.layers[below]; b != nil {
			b.children--
			s.collectLocked(below)
		}
	}
}
