//go:build !linux

package backend

// withDefaultSignals calls start.
func withDefaultSignals(start func() error) error { return start() }
