//go:build !linux

package backend

// withUsualSignals calls start.
func withUsualSignals(start func() error) error { return start() }
