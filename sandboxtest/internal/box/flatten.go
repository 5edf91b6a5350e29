package box

import (
	"errors"
	"fmt"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// longestChain is the length above which a chain of layers is flattened. In a long chain,
// look-ups are slow: for a name that does not exist, the kernel looks into each layer.
const longestChain = 100

// flatten replaces a chain that is too long by one layer. The caller then holds the
// returned layer instead of id. The chain stays as long as snapshots and Boxes depend on
// it.
func (h *Host) flatten(id backend.LayerID, chain []string) (backend.LayerID, []string, error) {
	f, ok := h.backend.(backend.Flattener)
	if !ok || len(chain) <= h.store.maxChain {
		return id, chain, nil
	}
	h.flattening.Lock()
	defer h.flattening.Unlock()
	h.mu.Lock()
	closed := h.closed
	h.mu.Unlock()
	if closed {
		return id, chain, backend.ErrStopped
	}
	if flat, ok := h.store.switchToFlat(id); ok { // another caller has flattened the chain
		return flat, []string{string(flat)}, nil
	}
	// If the process dies, the directory is removed when the store is next opened.
	dir := h.store.boxDir(backend.NewID())
	err := f.Flatten(chain, dir)
	if err == nil {
		err = h.store.addFlat(id, dir)
	}
	if err == nil {
		flat, _ := h.store.switchToFlat(id)
		return flat, []string{string(flat)}, nil
	}
	err = errors.Join(err, backend.RemoveAll(dir))
	if len(chain) <= f.MaxLayers() {
		h.log.Warn("could not merge a chain of layers, using it as it is", "layers", len(chain), "error", err)
		return id, chain, nil
	}
	return id, chain, fmt.Errorf("%w: %d, at most %d, and they can't be merged: %w", backend.ErrTooManyLayers, len(chain), f.MaxLayers(), err)
}

// addFlat renames the tree at dir to make it the replacement for a layer's chain. The
// replacement has no ID of its own, so it is removed with its last user.
func (s *store) addFlat(id backend.LayerID, dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.layers[id]
	if l == nil {
		return fmt.Errorf("%w: %q", ErrNoLayer, id)
	}
	flat, err := s.addLocked(dir, &layer{Removed: true})
	if err != nil {
		return err
	}
	l.Flat = flat
	if err := s.save(id, l); err != nil {
		l.Flat = ""
		s.collectLocked(flat)
		return err
	}
	s.layers[flat].children++
	return nil
}

// switchToFlat releases a layer and acquires the layer that replaces its chain instead. It
// returns false if there is none.
func (s *store) switchToFlat(id backend.LayerID) (backend.LayerID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.layers[id]
	if l == nil || s.layers[l.Flat] == nil {
		return "", false
	}
	flat := l.Flat
	s.layers[flat].boxes++
	l.boxes--
	s.collectLocked(id)
	return flat, true
}
