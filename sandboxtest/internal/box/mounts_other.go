//go:build !linux

package box

// copyOwners does nothing: boxes have no users here.
func copyOwners(string, string) error { return nil }

// makeOverlay is for namespace mode.
func (m Mount) makeOverlay() error { return ErrUnsupported }
