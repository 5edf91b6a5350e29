package box

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// LayerID names a layer of one host directory.
type LayerID string

// store keeps the layers of a host: l/ID is the tree, m/ID.json what is known
// of it, and b/ID belongs to a box.
type store struct {
	dir string

	mu     sync.Mutex
	layers map[LayerID]*layer
}

type layer struct {
	Parent LayerID `json:"parent,omitempty"`
	Size   int64   `json:"size"`
	// Removed layers stay for as long as something stands on them.
	Removed bool `json:"removed,omitempty"`

	boxes, children int
}

func openStore(dir string) (*store, error) {
	s := &store{dir: dir, layers: make(map[LayerID]*layer)}
	// What boxes of an earlier run left behind belongs to nobody.
	if err := removeAll(filepath.Join(dir, "b")); err != nil {
		return nil, err
	}
	for _, sub := range []string{"l", "m", "b"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o711); err != nil {
			return nil, err
		}
	}
	metas, err := os.ReadDir(filepath.Join(dir, "m"))
	if err != nil {
		return nil, err
	}
	for _, meta := range metas {
		id, ok := strings.CutSuffix(meta.Name(), ".json")
		if !ok {
			continue // half-written
		}
		name := s.metaName(LayerID(id))
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var l layer
		if err := json.Unmarshal(data, &l); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s.layers[LayerID(id)] = &l
	}
	for _, l := range s.layers {
		if p := s.layers[l.Parent]; p != nil {
			p.children++
		}
	}
	trees, err := os.ReadDir(filepath.Join(dir, "l"))
	if err != nil {
		return nil, err
	}
	for _, t := range trees {
		if s.layers[LayerID(t.Name())] == nil { // a freeze that was cut short
			if err := removeAll(filepath.Join(dir, "l", t.Name())); err != nil {
				return nil, err
			}
		}
	}
	for id := range s.layers {
		s.collectLocked(id)
	}
	return s, nil
}

func (s *store) boxDir(id string) string    { return filepath.Join(s.dir, "b", id) }
func (s *store) treeDir(id LayerID) string  { return filepath.Join(s.dir, "l", string(id)) }
func (s *store) metaName(id LayerID) string { return filepath.Join(s.dir, "m", string(id)+".json") }
func (s *store) get(id LayerID) (*layer, error) {
	l := s.layers[id]
	if l == nil || l.Removed {
		return nil, fmt.Errorf("%w: %q", ErrNoLayer, id)
	}
	return l, nil
}

func (s *store) has(id LayerID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.get(id)
	return err == nil
}

func (s *store) size(id LayerID) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.get(id)
	if err != nil {
		return 0, err
	}
	return l.Size, nil
}

// acquire keeps a layer from being collected and gives the names of its chain,
// newest first; without chained only the layer itself.
func (s *store) acquire(id LayerID, chained bool) ([]string, error) {
	if id == "" {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.get(id)
	if err != nil {
		return nil, err
	}
	l.boxes++
	if !chained {
		return []string{string(id)}, nil
	}
	var chain []string
	for l != nil {
		chain = append(chain, string(id))
		id = l.Parent
		l = s.layers[id]
	}
	return chain, nil
}

func (s *store) release(id LayerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.layers[id]; l != nil {
		l.boxes--
		s.collectLocked(id)
	}
}

// add takes the tree at dir as a new layer by renaming it.
func (s *store) add(dir string, parent LayerID, size int64) (LayerID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := LayerID(newID())
	if err := os.Rename(dir, s.treeDir(id)); err != nil {
		return "", err
	}
	l := &layer{Parent: parent, Size: size}
	if err := s.save(id, l); err != nil {
		_ = os.Rename(s.treeDir(id), dir)
		return "", err
	}
	s.layers[id] = l
	if p := s.layers[parent]; p != nil {
		p.children++
	}
	return id, nil
}

// save writes what is known of a layer in one step.
func (s *store) save(id LayerID, l *layer) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	temp := s.metaName(id) + ".new"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, s.metaName(id))
}

func (s *store) remove(id LayerID) error {
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

// collectLocked removes the files of a removed layer that nothing stands on,
// and then of its parents.
func (s *store) collectLocked(id LayerID) {
	for {
		l := s.layers[id]
		if l == nil || !l.Removed || l.boxes > 0 || l.children > 0 {
			return
		}
		// The tree goes last: a tree without its entry is swept on opening.
		_ = os.Remove(s.metaName(id))
		delete(s.layers, id)
		_ = removeAll(s.treeDir(id))
		id = l.Parent
		if p := s.layers[id]; p != nil {
			p.children--
		}
	}
}
