//go:build !linux

package box

// withUsualSignals calls start.
func withUsualSignals(start func() error) error { return start() }
