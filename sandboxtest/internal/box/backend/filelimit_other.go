//go:build !linux

package backend

// CheckFileLimit returns nil.
func CheckFileLimit() error { return nil }
